#include "text/base64.h"

#include <array>
#include <cstdint>

namespace k3::text {
namespace {

constexpr uint8_t kForeign = 64;

constexpr std::array<uint8_t, 256> make_values() {
  constexpr std::string_view kAlphabet =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::array<uint8_t, 256> values{};
  values.fill(kForeign);
  for (size_t i = 0; i < kAlphabet.size(); ++i) {
    values[static_cast<uint8_t>(kAlphabet[i])] = static_cast<uint8_t>(i);
  }
  return values;
}

constexpr std::array<uint8_t, 256> kValues = make_values();

}  // namespace

bool decode_base64(std::string_view text, std::string& out) {
  out.clear();
  if (text.size() % 4 != 0) return false;
  const size_t padding = text.ends_with("==") ? 2 : text.ends_with("=") ? 1 : 0;
  uint32_t bits = 0;
  uint32_t bit_count = 0;
  for (const char c : text.substr(0, text.size() - padding)) {
    const uint8_t value = kValues[static_cast<uint8_t>(c)];
    if (value == kForeign) return false;
    bits = bits << 6 | value;
    bit_count += 6;
    if (bit_count < 8) continue;
    bit_count -= 8;
    out.push_back(static_cast<char>(bits >> bit_count));
    bits &= (1u << bit_count) - 1;
  }
  return bits == 0;
}

}  // namespace k3::text
