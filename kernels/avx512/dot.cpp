#include "kernels/avx512/functions.h"
#include "kernels/avx512/vector.h"

namespace k3::kernels::avx512 {
namespace {

// 32 elements in natural order. The even and the odd ones are taken within quarters of a register,
// which leaves the lanes in the order 0 1 8 9 | 2 3 10 11 | 4 5 12 13 | 6 7 14 15; in_order undoes
// it once.
struct Group {
  __m512 low;
  __m512 high;

  __m512 even() const { return _mm512_shuffle_ps(low, high, 0x88); }
  __m512 odd() const { return _mm512_shuffle_ps(low, high, 0xDD); }
};

inline Group load_group(const float* from, size_t left) {
  if (left >= kPairGroup) return {_mm512_loadu_ps(from), _mm512_loadu_ps(from + kLanes)};
  const size_t left_high = left > kLanes ? left - kLanes : 0;
  return {_mm512_maskz_loadu_ps(first_lanes(left), from),
          _mm512_maskz_loadu_ps(first_lanes(left_high), from + kLanes)};
}

inline __m512 in_order(__m512 lanes) {
  const __m512i order = _mm512_set_epi32(15, 14, 11, 10, 7, 6, 3, 2, 13, 12, 9, 8, 5, 4, 1, 0);
  return _mm512_permutexvar_ps(order, lanes);
}

}  // namespace

float dot(const float* a, const float* b, size_t n) {
  __m512 acc = _mm512_setzero_ps();
  for (size_t i = 0; i < n; i += kPairGroup) {
    const Group x = load_group(a + i, n - i);
    const Group y = load_group(b + i, n - i);
    acc = _mm512_fmadd_ps(x.even(), y.even(), acc);
    acc = _mm512_fmadd_ps(x.odd(), y.odd(), acc);
  }
  return reduce(in_order(acc));
}

}  // namespace k3::kernels::avx512
