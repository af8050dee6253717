#include "kernels/scalar/functions.h"
#include "kernels/scalar/products.h"

namespace k3::kernels::scalar {

void pack_pairs(const float* x, size_t n, float* out) {
  for (size_t i = 0; i < packed_pairs_length(n); ++i) out[pairs_position(i)] = i < n ? x[i] : 0.0F;
}

void pack_octets(const float* x, size_t n, float* out) {
  for (size_t i = 0; i < packed_octets_length(n); ++i) {
    out[octets_position(i)] = i < n ? x[i] : 0.0F;
  }
}

}  // namespace k3::kernels::scalar
