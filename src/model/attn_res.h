// Attention residuals: what a sublayer reads is a softmax mixture of the block snapshots and of the
// running sum, per position. The values that are mixed are the raw sources, not the normalised
// keys.
//
// A score of minus infinity would vanish in the softmax: finiteness is tested before it.
#pragma once

#include <cstddef>
#include <span>

#include "kernels/table.h"

namespace k3::model {

inline constexpr size_t kAttnResSourcesMax = 256;

/// out = sum_s p_s * source_s; p = softmax_s(dot(source_s, f) * r_s), f = norm_w * proj_w.
/// sources: the snapshots by age, then the running sum; each [n]. False, and nothing in `out`, when
/// a score is not finite.
bool attn_res_mix(const kernels::Kernels& kernels, std::span<const float* const> sources,
                  const float* f, size_t n, float eps, float* out);

}  // namespace k3::model
