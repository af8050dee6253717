// The functions for AVX2 and FMA.
#pragma once

#include "kernels/table.h"

namespace k3::kernels::avx2 {

/// The complete table of this instruction set.
Kernels make_table();

#include "kernels/functions.inc"

}  // namespace k3::kernels::avx2
