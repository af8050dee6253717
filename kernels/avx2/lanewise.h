// Eight floats: the operations in which kernels/transcendental.h, kernels/elementwise.inc and the
// tiled kernels are written. The meaning of each is scalar/lanewise.h, lane by lane.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

namespace k3::kernels::avx2 {

struct Int {
  __m256i value;
};

struct Mask {
  __m256 value;
};

struct Vec {
  static constexpr size_t kLanes = 8;
  __m256 value;

  static Vec load(const float* p) { return {_mm256_loadu_ps(p)}; }
  static Vec broadcast(float x) { return {_mm256_set1_ps(x)}; }
  void store(float* p) const { _mm256_storeu_ps(p, value); }

  /// The first `count` lanes, 0 < count < kLanes; the others are +0 and their memory is not
  /// touched.
  static Vec load_part(const float* p, size_t count) {
    return {_mm256_maskload_ps(p, first_lanes(count))};
  }
  void store_part(float* p, size_t count) const {
    _mm256_maskstore_ps(p, first_lanes(count), value);
  }

  static __m256i first_lanes(size_t count) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(count)),
                              _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  }
};

static inline Vec operator+(Vec a, Vec b) {
  return {_mm256_add_ps(a.value, b.value)};
}
static inline Vec operator-(Vec a, Vec b) {
  return {_mm256_sub_ps(a.value, b.value)};
}
static inline Vec operator*(Vec a, Vec b) {
  return {_mm256_mul_ps(a.value, b.value)};
}
static inline Vec operator/(Vec a, Vec b) {
  return {_mm256_div_ps(a.value, b.value)};
}
static inline Vec fma(Vec a, Vec b, Vec c) {
  return {_mm256_fmadd_ps(a.value, b.value, c.value)};
}

static inline Vec min(Vec a, Vec b) {
  return {_mm256_min_ps(a.value, b.value)};
}
static inline Vec max(Vec a, Vec b) {
  return {_mm256_max_ps(a.value, b.value)};
}

static inline Mask less(Vec a, Vec b) {
  return {_mm256_cmp_ps(a.value, b.value, _CMP_LT_OQ)};
}
static inline Mask equal(Vec a, Vec b) {
  return {_mm256_cmp_ps(a.value, b.value, _CMP_EQ_OQ)};
}
static inline Vec select(Mask condition, Vec a, Vec b) {
  return {_mm256_blendv_ps(b.value, a.value, condition.value)};
}
static inline uint32_t lane_bits(Mask condition) {
  return static_cast<uint32_t>(_mm256_movemask_ps(condition.value));
}

static inline Int as_int(Vec a) {
  return {_mm256_castps_si256(a.value)};
}
static inline Vec as_float(Int a) {
  return {_mm256_castsi256_ps(a.value)};
}
static inline Int operator+(Int a, uint32_t b) {
  return {_mm256_add_epi32(a.value, _mm256_set1_epi32(static_cast<int>(b)))};
}
static inline Int operator-(Int a, Int b) {
  return {_mm256_sub_epi32(a.value, b.value)};
}
static inline Int shift_right(Int a) {
  return {_mm256_srai_epi32(a.value, 1)};
}
static inline Int shift_left_23(Int a) {
  return {_mm256_slli_epi32(a.value, 23)};
}

static inline Vec abs(Vec a) {
  return {_mm256_andnot_ps(_mm256_set1_ps(-0.0F), a.value)};
}
static inline Vec copysign(Vec size, Vec sign) {
  const __m256 sign_bit = _mm256_set1_ps(-0.0F);
  return {
      _mm256_or_ps(_mm256_andnot_ps(sign_bit, size.value), _mm256_and_ps(sign_bit, sign.value))};
}

}  // namespace k3::kernels::avx2
