// The functions for AVX-512 (F, BW, VL, DQ).
#pragma once

#include "kernels/table.h"

namespace k3::kernels::avx512 {

/// The complete table of this instruction set.
Kernels make_table();

#include "kernels/functions.inc"

}  // namespace k3::kernels::avx512
