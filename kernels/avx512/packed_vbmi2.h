// Packed weights for CPUs that also have AVX-512 VBMI and VBMI2: bytes are looked up and expanded
// in one instruction each.
#pragma once

#include "kernels/table.h"

namespace k3::kernels::avx512 {

/// Kernels::unpack.
const std::byte* unpack_vbmi2(const WeightView& w, size_t begin, size_t count, std::byte* scratch);

/// Kernels::matmul_packed of one column and rows of whole blocks.
void matvec_packed_vbmi2(const WeightView& w, Range rows, const float* x, float* y);

}  // namespace k3::kernels::avx512
