#include <cmath>

#include "kernels/scalar/functions.h"

namespace k3::kernels::scalar {

/// One position for one column (value channel) of the state.
static void advance_column(const KdaHead& head, size_t position, size_t column) {
  const float* q = head.q + position * head.stride;
  const float* k = head.k + position * head.stride;
  const float* decay = head.decay + position * head.stride;
  float* state = head.state + column;

  float recalled = 0.0F;
  for (size_t i = 0; i < head.dim; ++i) {
    state[i * head.dim] = decay[i] * state[i * head.dim];
    recalled = std::fma(k[i], state[i * head.dim], recalled);
  }
  const float value = head.v[position * head.stride + column];
  const float delta = head.beta[position * head.beta_stride] * (value - recalled);
  float out = 0.0F;  // reads the state after the update
  for (size_t i = 0; i < head.dim; ++i) {
    state[i * head.dim] = std::fma(k[i], delta, state[i * head.dim]);
    out = std::fma(q[i], state[i * head.dim], out);
  }
  head.out[position * head.stride + column] = out;
}

void kda_head(const KdaHead& head) {
  for (size_t position = 0; position < head.positions; ++position) {
    for (size_t column = 0; column < head.dim; ++column) advance_column(head, position, column);
  }
}

}  // namespace k3::kernels::scalar
