#include "kernels/scalar/functions.h"
#include "kernels/scalar/products.h"

namespace k3::kernels::scalar {

float dot(const float* a, const float* b, size_t n) {
  return dot_pairs(
      n, [a](size_t i) { return a[i]; }, [b](size_t i) { return b[i]; });
}

}  // namespace k3::kernels::scalar
