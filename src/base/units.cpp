#include "k3/units.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cmath>

#include "k3/error.h"

namespace k3 {
namespace {

[[noreturn]] void out_of_range(Bytes a, char operation, uint64_t b) {
  throw Error(ErrorKind::kUsage, fmt::format("{} {} {} is not a size of memory or file (0 to 2^64)",
                                             a.value, operation, b));
}

[[noreturn]] void bad_size(std::string_view text, std::string_view found) {
  throw Error(ErrorKind::kUsage,
              fmt::format("size `{}`: {}; expected a number with an optional unit, such as 500M, "
                          "8G, 8.5G or 8GiB",
                          text, found));
}

char lower(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

/// Bytes in one `unit` ("", "b", "k", "kb", "kib", ...); 0 when there is no such unit.
uint64_t unit_bytes(std::string_view unit) {
  std::string name;
  for (char c : unit) name += lower(c);
  if (name.empty() || name == "b") return 1;
  uint64_t decimal = 1;
  uint64_t binary = 1;
  for (char prefix : {'k', 'm', 'g', 't'}) {
    decimal *= 1000;
    binary *= 1024;
    if (name[0] != prefix) continue;
    const std::string_view rest = std::string_view(name).substr(1);
    if (rest.empty() || rest == "b") return decimal;
    return rest == "ib" ? binary : 0;
  }
  return 0;
}

std::string_view take_digits(std::string_view& text) {
  const size_t end = std::min(text.find_first_not_of("0123456789"), text.size());
  const std::string_view digits = text.substr(0, end);
  text.remove_prefix(end);
  return digits;
}

}  // namespace

Bytes operator+(Bytes a, Bytes b) {
  uint64_t sum = 0;
  if (__builtin_add_overflow(a.value, b.value, &sum)) out_of_range(a, '+', b.value);
  return Bytes{sum};
}

Bytes operator-(Bytes a, Bytes b) {
  if (b > a) out_of_range(a, '-', b.value);
  return Bytes{a.value - b.value};
}

Bytes operator*(Bytes a, uint64_t count) {
  uint64_t product = 0;
  if (__builtin_mul_overflow(a.value, count, &product)) out_of_range(a, '*', count);
  return Bytes{product};
}

Bytes parse_bytes(std::string_view text) {
  std::string_view rest = text;
  const std::string_view whole_digits = take_digits(rest);
  uint64_t whole = 0;
  if (whole_digits.empty()) bad_size(text, "it does not begin with a digit");
  const char* whole_end = whole_digits.data() + whole_digits.size();
  if (std::from_chars(whole_digits.data(), whole_end, whole).ec != std::errc()) {
    bad_size(text, "larger than 2^64 bytes");
  }
  double fraction = 0;
  const bool has_fraction = rest.starts_with('.');
  if (has_fraction) {
    const char* begin = rest.data();  // from the point on: ".5"
    rest.remove_prefix(1);
    if (take_digits(rest).empty()) bad_size(text, "no digit after the point");
    std::from_chars(begin, rest.data(), fraction);
  }
  const uint64_t unit = unit_bytes(rest);
  if (unit == 0) bad_size(text, fmt::format("unknown unit `{}`", rest));
  if (has_fraction && unit == 1) bad_size(text, "a fraction of a byte");
  // The fraction of the largest unit, 2^40, is below 2^53: the rounding is exact to the byte.
  const auto fraction_bytes = static_cast<uint64_t>(std::llround(fraction * double(unit)));
  uint64_t bytes = 0;
  if (__builtin_mul_overflow(whole, unit, &bytes) ||
      __builtin_add_overflow(bytes, fraction_bytes, &bytes)) {
    bad_size(text, "larger than 2^64 bytes");
  }
  return Bytes{bytes};
}

std::string format_bytes(Bytes bytes) {
  if (bytes.value < 10'000) return fmt::format("{} B", bytes.value);
  constexpr std::array kUnits = {"kB", "MB", "GB", "TB", "PB", "EB"};
  double value = double(bytes.value) / 1000;
  size_t unit = 0;
  for (; value >= 999.5; ++unit) value /= 1000;  // 999.5 would print as 1000
  const int decimals = value < 9.995 ? 2 : value < 99.95 ? 1 : 0;
  return fmt::format("{:.{}f} {}", value, decimals, kUnits[unit]);
}

}  // namespace k3
