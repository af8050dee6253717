#include "base/one_line.h"

#include <fmt/format.h>

#include <cstdint>

#include "k3/error.h"

namespace k3 {
namespace {

struct Character {
  size_t bytes;   // 1 for what is not UTF-8
  uint32_t code;  // 0 for what is not UTF-8: shown as a control character
};

/// Bytes that a first byte announces; 0: none begins with it.
size_t announced(unsigned char first) {
  if (first < 0x80) return 1;
  if (first >= 0xC2 && first <= 0xDF) return 2;
  if (first >= 0xE0 && first <= 0xEF) return 3;
  return first >= 0xF0 && first <= 0xF4 ? 4 : 0;
}

Character first_character(std::string_view text) {
  constexpr uint32_t kLeast[] = {0, 0, 0x80, 0x800,
                                 0x10000};  // by length: less is not the shortest
  const auto first = static_cast<unsigned char>(text[0]);
  const size_t bytes = announced(first);
  if (bytes == 1) return {1, first};
  if (bytes == 0 || bytes > text.size()) return {1, 0};
  uint32_t code = first & (0x7Fu >> bytes);
  for (size_t i = 1; i < bytes; ++i) {
    const auto next = static_cast<unsigned char>(text[i]);
    if ((next & 0xC0u) != 0x80u) return {1, 0};
    code = code << 6 | (next & 0x3Fu);
  }
  const bool surrogate = code >= 0xD800 && code <= 0xDFFF;
  if (code < kLeast[bytes] || code > 0x10FFFF || surrogate) return {1, 0};
  return {bytes, code};
}

bool shown_as_it_is(uint32_t code) {
  if (code < 0x20 || (code >= 0x7F && code < 0xA0)) return false;
  const bool separator = code == 0x2028 || code == 0x2029;
  const bool turns = code == 0x200E || code == 0x200F || code == 0x061C ||
                     (code >= 0x202A && code <= 0x202E) || (code >= 0x2066 && code <= 0x2069);
  return !separator && !turns;
}

}  // namespace

std::string one_line(std::string_view text) {
  std::string line;
  line.reserve(text.size());
  while (!text.empty()) {
    const Character character = first_character(text);
    const std::string_view bytes = text.substr(0, character.bytes);
    if (shown_as_it_is(character.code)) {
      line += bytes;
    } else {
      for (const char byte : bytes)
        line += fmt::format("\\x{:02x}", static_cast<unsigned char>(byte));
    }
    text.remove_prefix(bytes.size());
  }
  return line;
}

Error::Error(ErrorKind kind, std::string_view message)
    : std::runtime_error(one_line(message)), kind_(kind) {}

}  // namespace k3
