// Kimi Delta Attention between its projections, on spans. Spec section 5.3; the order of every sum
// is docs/numeric-contract.md.
//
// Rows are consecutive positions of one sequence. Buffers [rows, width] have `stride` floats
// between rows. Functions take a range of channels or heads, so that a caller may split them over
// threads.
#pragma once

#include <cstdint>

#include "kernels/table.h"
#include "model/config.h"

namespace k3::model {

/// The short convolution of q, k or v over positions, with SiLU, in place.
struct ConvRows {
  float* rows;  // [rows, kda_width]: pre-convolution in, activated out
  size_t count;
  size_t stride;
  float* tail;        // [conv_kernel-1, kda_width], oldest first: of the sequence; advanced
  float* next_tail;   // the same size: scratch
  const float* taps;  // [conv_kernel, kda_width]: oldest tap first
};
void kda_convolve(const kernels::Kernels& kernels, const Config& config, const ConvRows& conv,
                  kernels::Range channels);

/// The recurrence and what surrounds it, for whole heads.
struct KdaRows {
  size_t count;
  size_t stride;  // of q, k, v, decay, gate and out
  float* q;       // [rows, kda_width] after the convolution; normalised in place
  float* k;       // likewise
  const float* v;
  float* decay;       // in: f_b(f_a(x)); out: exp(g)
  const float* beta;  // [rows, beta_stride]: sigmoid applied
  size_t beta_stride;
  const float* gate;     // g_proj(x)
  float* out;            // [rows, kda_width]: normalised and gated output
  float* state;          // of head 0: [heads, D, D]
  const float* exp_a;    // [heads]: exp(A_log), one per head
  const float* dt_bias;  // [kda_width]
  const float* o_norm;   // [D], shared by the heads

  /// `rows_count` rows from `first` on; the state must have taken in all before.
  KdaRows block(size_t first, size_t rows_count) const;
};
/// False when a number is not finite that the functions after it would hide: the sum of squares
/// below a norm (the norm would be zero), or what the sigmoid of the decay takes.
bool kda_heads(const kernels::Kernels& kernels, const Config& config, const KdaRows& rows,
               kernels::Range heads);

}  // namespace k3::model
