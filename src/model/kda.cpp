#include "model/kda.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/check.h"

namespace k3::model {
namespace {

/// The pre-convolution vector `back` positions before row `row`: a row, or one of the carried tail.
const float* history(const ConvRows& conv, const Config& config, size_t row, size_t back) {
  if (back <= row) return conv.rows + (row - back) * conv.stride;
  const size_t from_end = back - row;  // 1: the newest of the tail
  return conv.tail + (config.conv_kernel - 1 - from_end) * config.kda_width();
}

bool normable(const kernels::Kernels& kernels, const float* x, size_t n) {
  return std::isfinite(kernels.dot(x, x, n));
}

bool decay_is_finite(const float* z, const float* bias, float exp_a, size_t n) {
  bool finite = true;
  for (size_t i = 0; i < n; ++i) finite &= std::isfinite(exp_a * (z[i] + bias[i]));
  return finite;
}

}  // namespace

void kda_convolve(const kernels::Kernels& kernels, const Config& config, const ConvRows& conv,
                  kernels::Range channels) {
  constexpr size_t kTapsMax = 8;
  const size_t taps = config.conv_kernel, width = config.kda_width();
  const size_t begin = channels.begin, n = channels.end - channels.begin;
  K3_CHECK(taps <= kTapsMax);
  // The new tail is taken before the rows are overwritten.
  for (size_t j = 0; j + 1 < taps; ++j) {
    const float* from = history(conv, config, conv.count - 1, taps - 2 - j);
    std::copy_n(from + begin, n, conv.next_tail + j * width + begin);
  }
  // From the last row back: a row is overwritten only when no later row needs it any more.
  for (size_t row = conv.count; row-- > 0;) {
    std::array<const float*, kTapsMax> window;
    for (size_t j = 0; j < taps; ++j) {
      window[j] = history(conv, config, row, taps - 1 - j) + begin;
    }
    kernels.short_conv(window.data(), conv.taps + begin, width, taps, n,
                       conv.rows + row * conv.stride + begin);
  }
  for (size_t j = 0; j + 1 < taps; ++j) {
    std::copy_n(conv.next_tail + j * width + begin, n, conv.tail + j * width + begin);
  }
}

KdaRows KdaRows::block(size_t first, size_t rows_count) const {
  KdaRows part = *this;
  part.count = rows_count;
  for (auto* rows : {&part.q, &part.k, &part.decay, &part.out}) *rows += first * stride;
  for (auto* rows : {&part.v, &part.gate}) *rows += first * stride;
  part.beta += first * beta_stride;
  return part;
}

bool kda_heads(const kernels::Kernels& kernels, const Config& config, const KdaRows& rows,
               kernels::Range heads) {
  const size_t dim = config.kda_head_dim;
  const float q_scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(dim)));
  bool finite = true;
  for (size_t h = heads.begin; h < heads.end; ++h) {
    const size_t channel = h * dim;
    for (size_t t = 0; t < rows.count; ++t) {
      const size_t at = t * rows.stride + channel;
      finite &= normable(kernels, rows.q + at, dim) && normable(kernels, rows.k + at, dim) &&
                decay_is_finite(rows.decay + at, rows.dt_bias + channel, rows.exp_a[h], dim);
      kernels.l2_norm(rows.q + at, dim, q_scale, rows.q + at);
      kernels.l2_norm(rows.k + at, dim, 1.0f, rows.k + at);
      kernels.kda_decay(rows.decay + at, rows.dt_bias + channel, rows.exp_a[h],
                        config.gate_lower_bound, dim, rows.decay + at);
    }
    kernels.kda_head({.dim = dim,
                      .positions = rows.count,
                      .stride = rows.stride,
                      .q = rows.q + channel,
                      .k = rows.k + channel,
                      .v = rows.v + channel,
                      .decay = rows.decay + channel,
                      .beta = rows.beta + h,
                      .beta_stride = rows.beta_stride,
                      .state = rows.state + h * dim * dim,
                      .out = rows.out + channel});
    for (size_t t = 0; t < rows.count; ++t) {
      float* out = rows.out + t * rows.stride + channel;
      finite &= normable(kernels, out, dim);
      kernels.rms_norm(out, rows.o_norm, dim, config.rms_norm_eps, out);
      kernels.gate(out, rows.gate + t * rows.stride + channel, dim, out);
    }
  }
  return finite;
}

}  // namespace k3::model
