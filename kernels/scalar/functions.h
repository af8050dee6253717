// The scalar functions: the definition of every result, written to be read.
#pragma once

#include "kernels/table.h"

namespace k3::kernels::scalar {

/// The complete table of this instruction set.
Kernels make_table();

#include "kernels/functions.inc"

}  // namespace k3::kernels::scalar
