#include "kernels/avx2/functions.h"
#include "kernels/avx2/vector.h"
#include "kernels/formats.h"

namespace k3::kernels::avx2 {

void widen_bf16(const std::byte* bf16, size_t n, float* out) {
  size_t i = 0;
  for (; i + 8 <= n; i += 8) _mm256_storeu_ps(out + i, widen_eight(bf16 + 2 * i));
  for (; i < n; ++i) out[i] = bf16_value(bf16 + 2 * i);
}

}  // namespace k3::kernels::avx2
