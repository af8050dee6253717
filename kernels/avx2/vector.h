// The 16 lanes of the contract in two AVX registers: lanes 0..7 and 8..15.
#pragma once

#include <immintrin.h>

#include <cstring>

#include "kernels/lanes.h"

namespace k3::kernels::avx2 {
namespace {

struct Lanes {
  __m256 low;
  __m256 high;
};

inline Lanes load_lanes(const float* from) {
  return {_mm256_loadu_ps(from), _mm256_loadu_ps(from + 8)};
}

inline void store_lanes(float* to, const Lanes& lanes) {
  _mm256_storeu_ps(to, lanes.low);
  _mm256_storeu_ps(to + 8, lanes.high);
}

inline Lanes zero_lanes() {
  return {_mm256_setzero_ps(), _mm256_setzero_ps()};
}

inline Lanes multiply(const Lanes& a, const Lanes& b) {
  return {_mm256_mul_ps(a.low, b.low), _mm256_mul_ps(a.high, b.high)};
}

inline Lanes fma(const Lanes& a, const Lanes& b, const Lanes& c) {
  return {_mm256_fmadd_ps(a.low, b.low, c.low), _mm256_fmadd_ps(a.high, b.high, c.high)};
}

/// reduce_lanes on registers.
inline float reduce(const Lanes& lanes) {
  const __m256 eight = _mm256_add_ps(lanes.low, lanes.high);
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

/// The even and the odd elements of 16 in natural order.
inline __m256 even_elements(__m256 a, __m256 b) {
  const __m256d mixed = _mm256_castps_pd(_mm256_shuffle_ps(a, b, 0x88));
  return _mm256_castpd_ps(_mm256_permute4x64_pd(mixed, 0xD8));
}

inline __m256 odd_elements(__m256 a, __m256 b) {
  const __m256d mixed = _mm256_castps_pd(_mm256_shuffle_ps(a, b, 0xDD));
  return _mm256_castpd_ps(_mm256_permute4x64_pd(mixed, 0xD8));
}

/// Eight bf16 as floats.
inline __m256 widen_eight(const std::byte* from) {
  const __m128i halves = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16));
}

/// `from` itself where kBytes can be read there, else a copy in `block` that is padded with zeros.
template <size_t kBytes>
inline const std::byte* whole_block(const std::byte* from, size_t bytes,
                                    std::byte (&block)[kBytes]) {
  if (bytes >= kBytes) return from;
  std::memset(block, 0, kBytes);
  std::memcpy(block, from, bytes);
  return block;
}

/// What tiles.h and accumulate_tiles.h ask for.
struct Vector {
  using Register = __m256;
  static constexpr size_t kWidth = 8;
  static constexpr size_t kTileRows = 4;

  static Register load(const void* from) {
    return _mm256_loadu_ps(static_cast<const float*>(from));
  }
  static Register widen(const std::byte* from) { return widen_eight(from); }
  static Register broadcast(float value) { return _mm256_set1_ps(value); }
  /// A load that is used several times: GCC 12 would repeat it as an operand of every use.
  static Register load_once(const float* from) {
    Register value = load(from);
    asm("" : "+x"(value));
    return value;
  }
  static void store(float* to, Register value) { _mm256_storeu_ps(to, value); }
  static Register multiply(Register a, Register b) { return _mm256_mul_ps(a, b); }
  static Register fma(Register a, Register b, Register c) { return _mm256_fmadd_ps(a, b, c); }

  // Two rows in a register of half sums, then four.
  static void reduce_rows(const float (&lanes)[kTileRows][kLanes], float (&out)[kTileRows]) {
    const __m256d a = _mm256_castps_pd(halve_two(eight(lanes[0]), eight(lanes[1])));
    const __m256d b = _mm256_castps_pd(halve_two(eight(lanes[2]), eight(lanes[3])));
    const __m256 two = _mm256_add_ps(_mm256_castpd_ps(_mm256_unpacklo_pd(a, b)),
                                     _mm256_castpd_ps(_mm256_unpackhi_pd(a, b)));
    const __m256 one = _mm256_add_ps(two, _mm256_movehdup_ps(two));  // rows 0 - 2 - | 1 - 3 -
    const __m128 even = _mm256_castps256_ps128(one);
    const __m128 odd = _mm256_extractf128_ps(one, 1);
    _mm_storeu_ps(out, _mm_movelh_ps(_mm_unpacklo_ps(even, odd), _mm_unpackhi_ps(even, odd)));
  }

 private:
  static __m256 eight(const float (&lanes)[kLanes]) {
    return _mm256_add_ps(load(lanes), load(lanes + 8));
  }
  static __m256 halve_two(__m256 a, __m256 b) {
    return _mm256_add_ps(_mm256_permute2f128_ps(a, b, 0x20), _mm256_permute2f128_ps(a, b, 0x31));
  }
};

}  // namespace
}  // namespace k3::kernels::avx2
