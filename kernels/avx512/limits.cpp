#include "kernels/limits.h"

#include <immintrin.h>

#include "kernels/avx512/limits.h"

namespace k3::kernels::avx512 {
namespace {

struct Probe {
  using Integer = __m512i;
  using Float = __m512;
  static constexpr size_t kLanes = 16;
  static Integer load(const std::byte* p) { return _mm512_loadu_si512(p); }
  static Integer mix(Integer a, Integer b) { return _mm512_xor_si512(a, b); }
  static uint64_t fold(Integer a) {
    alignas(64) uint64_t words[8];
    _mm512_store_si512(words, a);
    uint64_t folded = 0;
    for (uint64_t word : words) folded ^= word;
    return folded;
  }
  static Float broadcast(float x) { return _mm512_set1_ps(x); }
  static Float load_floats(const float* p) { return _mm512_loadu_ps(p); }
  static void store(float* p, Float x) { _mm512_storeu_ps(p, x); }
  static Float fma(Float a, Float b, Float c) { return _mm512_fmadd_ps(a, b, c); }
};

}  // namespace

#include "kernels/limits.inc"

}  // namespace k3::kernels::avx512
