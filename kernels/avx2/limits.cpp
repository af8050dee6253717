#include "kernels/limits.h"

#include <immintrin.h>

#include "kernels/avx2/limits.h"

namespace k3::kernels::avx2 {
namespace {

struct Probe {
  using Integer = __m256i;
  using Float = __m256;
  static constexpr size_t kLanes = 8;
  static Integer load(const std::byte* p) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  }
  static Integer mix(Integer a, Integer b) { return _mm256_xor_si256(a, b); }
  static uint64_t fold(Integer a) {
    return static_cast<uint64_t>(_mm256_extract_epi64(a, 0) ^ _mm256_extract_epi64(a, 1) ^
                                 _mm256_extract_epi64(a, 2) ^ _mm256_extract_epi64(a, 3));
  }
  static Float broadcast(float x) { return _mm256_set1_ps(x); }
  static Float load_floats(const float* p) { return _mm256_loadu_ps(p); }
  static void store(float* p, Float x) { _mm256_storeu_ps(p, x); }
  static Float fma(Float a, Float b, Float c) { return _mm256_fmadd_ps(a, b, c); }
};

}  // namespace

#include "kernels/limits.inc"

}  // namespace k3::kernels::avx2
