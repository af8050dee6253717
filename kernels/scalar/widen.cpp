#include "kernels/formats.h"
#include "kernels/scalar/functions.h"

namespace k3::kernels::scalar {

void widen_bf16(const std::byte* bf16, size_t n, float* out) {
  for (size_t i = 0; i < n; ++i) out[i] = bf16_value(bf16 + 2 * i);
}

}  // namespace k3::kernels::scalar
