// The 16 lanes of the contract in one AVX-512 register.
#pragma once

#include <immintrin.h>

#include "kernels/lanes.h"

namespace k3::kernels::avx512 {
namespace {

/// reduce_lanes on a register.
inline float reduce(__m512 lanes) {
  const __m256 eight =
      _mm256_add_ps(_mm512_castps512_ps256(lanes), _mm512_extractf32x8_ps(lanes, 1));
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

/// The same for eight registers, row by row of the tree: a register of half sums holds two rows,
/// then four, then eight.
inline __m512 halve_two(__m512 a, __m512 b) {
  return _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x44), _mm512_shuffle_f32x4(a, b, 0xEE));
}

inline __m512 halve_four(__m512 ab, __m512 cd) {
  return _mm512_add_ps(_mm512_shuffle_f32x4(ab, cd, 0x88), _mm512_shuffle_f32x4(ab, cd, 0xDD));
}

inline __m256 reduce_eight(const __m512 (&rows)[8]) {
  const __m512 low = halve_four(halve_two(rows[0], rows[1]), halve_two(rows[2], rows[3]));
  const __m512 high = halve_four(halve_two(rows[4], rows[5]), halve_two(rows[6], rows[7]));
  const __m512d a = _mm512_castps_pd(low);
  const __m512d b = _mm512_castps_pd(high);
  const __m512 two = _mm512_add_ps(_mm512_castpd_ps(_mm512_unpacklo_pd(a, b)),
                                   _mm512_castpd_ps(_mm512_unpackhi_pd(a, b)));
  const __m512 one = _mm512_add_ps(two, _mm512_movehdup_ps(two));
  const __m512i order = _mm512_set_epi32(0, 0, 0, 0, 0, 0, 0, 0, 14, 10, 6, 2, 12, 8, 4, 0);
  return _mm512_castps512_ps256(_mm512_permutexvar_ps(order, one));
}

/// What tiles.h and accumulate_tiles.h ask for.
struct Vector {
  using Register = __m512;
  static constexpr size_t kWidth = 16;
  static constexpr size_t kTileRows = 8;

  static Register load(const void* from) { return _mm512_loadu_ps(from); }
  static Register widen(const std::byte* from) {
    const __m256i halves = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16));
  }
  static Register broadcast(float value) { return _mm512_set1_ps(value); }
  /// A load that is used several times: GCC 12 would repeat it as an operand of every use.
  static Register load_once(const float* from) {
    Register value = load(from);
    asm("" : "+v"(value));
    return value;
  }
  static void store(float* to, Register value) { _mm512_storeu_ps(to, value); }
  static Register multiply(Register a, Register b) { return _mm512_mul_ps(a, b); }
  static Register fma(Register a, Register b, Register c) { return _mm512_fmadd_ps(a, b, c); }
  static void reduce_rows(const float (&lanes)[kTileRows][kLanes], float (&out)[kTileRows]) {
    const __m512 rows[8] = {load(lanes[0]), load(lanes[1]), load(lanes[2]), load(lanes[3]),
                            load(lanes[4]), load(lanes[5]), load(lanes[6]), load(lanes[7])};
    _mm256_storeu_ps(out, reduce_eight(rows));
  }
};

/// A mask of the first `count` lanes, count <= 16; all for more.
inline __mmask16 first_lanes(size_t count) {
  return static_cast<__mmask16>(count < 16 ? (1U << count) - 1 : 0xFFFF);
}

/// Elements 0, 2, .. 30 and 1, 3, .. 31 of 32 in natural order.
inline __m512 even_elements(__m512 low, __m512 high) {
  const __m512i even = _mm512_set_epi32(30, 28, 26, 24, 22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0);
  return _mm512_permutex2var_ps(low, even, high);
}

inline __m512 odd_elements(__m512 low, __m512 high) {
  const __m512i odd = _mm512_set_epi32(31, 29, 27, 25, 23, 21, 19, 17, 15, 13, 11, 9, 7, 5, 3, 1);
  return _mm512_permutex2var_ps(low, odd, high);
}

}  // namespace
}  // namespace k3::kernels::avx512
