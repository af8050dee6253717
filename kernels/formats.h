// Stored weights as floats, all exact: bf16, and MXFP4 (E2M1 nibbles under E8M0 scales).
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace k3::kernels {

static inline float float_from_bits(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

/// bf16 is the upper half of a float, stored little-endian.
static inline float bf16_value(const std::byte* stored) {
  uint16_t bits;
  std::memcpy(&bits, stored, sizeof bits);
  return float_from_bits(uint32_t{bits} << 16);
}

static inline float f32_value(const std::byte* stored) {
  float value;
  std::memcpy(&value, stored, sizeof value);
  return value;
}

/// E2M1 by nibble: bit 3 is the sign, 8 is -0.
constexpr float kE2m1[16] = {0.0F,  0.5F,  1.0F,  1.5F,  2.0F,  3.0F,  4.0F,  6.0F,
                             -0.0F, -0.5F, -1.0F, -1.5F, -2.0F, -3.0F, -4.0F, -6.0F};

/// Element `index` of a packed row: even elements are low nibbles.
static inline float e2m1_value(const std::byte* row, size_t index) {
  const auto pair = std::to_integer<unsigned>(row[index / 2]);
  return kE2m1[index % 2 == 0 ? pair & 15 : pair >> 4];
}

/// 2^(scale - 127). 0 is the subnormal 2^-127. 255 is the format's NaN and is refused before a
/// kernel sees it; here it is infinity, so that no result under it is finite.
static inline float e8m0_value(std::byte scale) {
  constexpr uint32_t kSmallest = 0x00400000;
  const uint32_t bits = std::to_integer<uint32_t>(scale) << 23;
  return float_from_bits(bits > kSmallest ? bits : kSmallest);
}

/// The scale of padding.
constexpr std::byte kE8m0One{127};

}  // namespace k3::kernels
