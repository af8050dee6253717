// Sixteen floats: the operations in which kernels/transcendental.h, kernels/elementwise.inc and the
// tiled kernels are written. The meaning of each is scalar/lanewise.h, lane by lane.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

namespace k3::kernels::avx512 {

struct Int {
  __m512i value;
};

struct Mask {
  __mmask16 value;
};

struct Vec {
  static constexpr size_t kLanes = 16;
  __m512 value;

  static Vec load(const float* p) { return {_mm512_loadu_ps(p)}; }
  static Vec broadcast(float x) { return {_mm512_set1_ps(x)}; }
  void store(float* p) const { _mm512_storeu_ps(p, value); }

  /// The first `count` lanes, 0 < count < kLanes; the others are +0 and their memory is not
  /// touched.
  static Vec load_part(const float* p, size_t count) {
    return {_mm512_maskz_loadu_ps(first_lanes(count), p)};
  }
  void store_part(float* p, size_t count) const {
    _mm512_mask_storeu_ps(p, first_lanes(count), value);
  }

  static __mmask16 first_lanes(size_t count) { return static_cast<__mmask16>((1U << count) - 1); }
};

static inline Vec operator+(Vec a, Vec b) {
  return {_mm512_add_ps(a.value, b.value)};
}
static inline Vec operator-(Vec a, Vec b) {
  return {_mm512_sub_ps(a.value, b.value)};
}
static inline Vec operator*(Vec a, Vec b) {
  return {_mm512_mul_ps(a.value, b.value)};
}
static inline Vec operator/(Vec a, Vec b) {
  return {_mm512_div_ps(a.value, b.value)};
}
static inline Vec fma(Vec a, Vec b, Vec c) {
  return {_mm512_fmadd_ps(a.value, b.value, c.value)};
}

static inline Vec min(Vec a, Vec b) {
  return {_mm512_min_ps(a.value, b.value)};
}
static inline Vec max(Vec a, Vec b) {
  return {_mm512_max_ps(a.value, b.value)};
}

static inline Mask less(Vec a, Vec b) {
  return {_mm512_cmp_ps_mask(a.value, b.value, _CMP_LT_OQ)};
}
static inline Mask equal(Vec a, Vec b) {
  return {_mm512_cmp_ps_mask(a.value, b.value, _CMP_EQ_OQ)};
}
static inline Vec select(Mask condition, Vec a, Vec b) {
  return {_mm512_mask_blend_ps(condition.value, b.value, a.value)};
}
static inline uint32_t lane_bits(Mask condition) {
  return condition.value;
}

static inline Int as_int(Vec a) {
  return {_mm512_castps_si512(a.value)};
}
static inline Vec as_float(Int a) {
  return {_mm512_castsi512_ps(a.value)};
}
static inline Int operator+(Int a, uint32_t b) {
  return {_mm512_add_epi32(a.value, _mm512_set1_epi32(static_cast<int>(b)))};
}
static inline Int operator-(Int a, Int b) {
  return {_mm512_sub_epi32(a.value, b.value)};
}
static inline Int shift_right(Int a) {
  return {_mm512_srai_epi32(a.value, 1)};
}
static inline Int shift_left_23(Int a) {
  return {_mm512_slli_epi32(a.value, 23)};
}

static inline Vec abs(Vec a) {
  return {_mm512_abs_ps(a.value)};
}
static inline Vec copysign(Vec size, Vec sign) {
  const __m512 sign_bit = _mm512_set1_ps(-0.0F);
  return {
      _mm512_or_ps(_mm512_andnot_ps(sign_bit, size.value), _mm512_and_ps(sign_bit, sign.value))};
}

}  // namespace k3::kernels::avx512
