// Sizes of memory and files. Bytes is a type of its own so that a size is never mistaken for a
// count; sums and products are checked.
#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <string_view>

namespace k3 {

struct Bytes {
  uint64_t value = 0;

  constexpr Bytes() = default;
  constexpr explicit Bytes(uint64_t v) : value(v) {}
  auto operator<=>(const Bytes&) const = default;
};

/// Sum, difference and product; a result outside 64 bits (or below zero) throws Error(kUsage).
Bytes operator+(Bytes a, Bytes b);
Bytes operator-(Bytes a, Bytes b);
Bytes operator*(Bytes a, uint64_t count);
inline Bytes& operator+=(Bytes& a, Bytes b) {
  return a = a + b;
}

/// Reads `500M`, `8G` (8 x 10^9), `8.5G`, `8GiB` (8 x 2^30), `4096`, `64KiB`, `1TB`; case of the
/// unit is ignored. Anything else, a negative or overflowing size throws Error(kUsage).
Bytes parse_bytes(std::string_view text);

/// "8.50 GB", "512 MB", "4096 B": decimal units, three significant digits.
std::string format_bytes(Bytes bytes);

}  // namespace k3
