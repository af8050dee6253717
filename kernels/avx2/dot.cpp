#include "kernels/avx2/functions.h"
#include "kernels/avx2/vector.h"

namespace k3::kernels::avx2 {
namespace {

// Even and odd elements of 32 in natural order. The lanes of each register come in the order
// 0 1 4 5 2 3 6 7, which saves a permutation at every step; in_order undoes it once.
struct Planes {
  Lanes even;
  Lanes odd;
};

inline Planes load_planes(const float* from) {
  const __m256 a = _mm256_loadu_ps(from);
  const __m256 b = _mm256_loadu_ps(from + 8);
  const __m256 c = _mm256_loadu_ps(from + 16);
  const __m256 d = _mm256_loadu_ps(from + 24);
  return {{_mm256_shuffle_ps(a, b, 0x88), _mm256_shuffle_ps(c, d, 0x88)},
          {_mm256_shuffle_ps(a, b, 0xDD), _mm256_shuffle_ps(c, d, 0xDD)}};
}

inline __m256 in_order(__m256 lanes) {
  return _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(lanes), 0xD8));
}

inline Lanes add_group(const float* a, const float* b, const Lanes& acc) {
  const Planes x = load_planes(a);
  const Planes y = load_planes(b);
  return fma(x.odd, y.odd, fma(x.even, y.even, acc));
}

}  // namespace

float dot(const float* a, const float* b, size_t n) {
  Lanes acc = zero_lanes();
  size_t i = 0;
  for (; i + kPairGroup <= n; i += kPairGroup) acc = add_group(a + i, b + i, acc);
  if (i < n) {
    float rest[2][kPairGroup] = {};
    std::memcpy(rest[0], a + i, (n - i) * sizeof(float));
    std::memcpy(rest[1], b + i, (n - i) * sizeof(float));
    acc = add_group(rest[0], rest[1], acc);
  }
  return reduce({in_order(acc.low), in_order(acc.high)});
}

}  // namespace k3::kernels::avx2
