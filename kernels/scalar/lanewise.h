// A "vector" of one float: the operations in which kernels/transcendental.h and
// kernels/elementwise.inc are written, and with that their scalar definition.
#pragma once

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>

namespace k3::kernels::scalar {

/// Wraps around.
struct Int {
  uint32_t value;
};

struct Vec {
  static constexpr size_t kLanes = 1;
  float value;

  static Vec load(const float* p) { return {*p}; }
  static Vec broadcast(float x) { return {x}; }
  void store(float* p) const { *p = value; }
};

static inline Vec operator+(Vec a, Vec b) {
  return {a.value + b.value};
}
static inline Vec operator-(Vec a, Vec b) {
  return {a.value - b.value};
}
static inline Vec operator*(Vec a, Vec b) {
  return {a.value * b.value};
}
static inline Vec operator/(Vec a, Vec b) {
  return {a.value / b.value};
}
static inline Vec fma(Vec a, Vec b, Vec c) {
  return {std::fma(a.value, b.value, c.value)};
}

/// The second argument when the two are unordered or equal, as the x86 instructions have it.
static inline Vec min(Vec a, Vec b) {
  return a.value < b.value ? a : b;
}
static inline Vec max(Vec a, Vec b) {
  return a.value > b.value ? a : b;
}

static inline bool less(Vec a, Vec b) {
  return a.value < b.value;
}
static inline bool equal(Vec a, Vec b) {
  return a.value == b.value;
}
static inline Vec select(bool condition, Vec a, Vec b) {
  return condition ? a : b;
}
/// Bit j is the condition of lane j.
static inline uint32_t lane_bits(bool condition) {
  return condition ? 1 : 0;
}

static inline Int as_int(Vec a) {
  return {std::bit_cast<uint32_t>(a.value)};
}
static inline Vec as_float(Int a) {
  return {std::bit_cast<float>(a.value)};
}
static inline Int operator+(Int a, uint32_t b) {
  return {a.value + b};
}
static inline Int operator-(Int a, Int b) {
  return {a.value - b.value};
}
/// Half of a signed number, rounded down.
static inline Int shift_right(Int a) {
  return {static_cast<uint32_t>(static_cast<int32_t>(a.value) >> 1)};
}
static inline Int shift_left_23(Int a) {
  return {a.value << 23};
}

static inline Vec abs(Vec a) {
  return {std::fabs(a.value)};
}
static inline Vec copysign(Vec size, Vec sign) {
  return {std::copysign(size.value, sign.value)};
}

}  // namespace k3::kernels::scalar
