#include "text/utf8.h"

namespace k3::text {
namespace {

struct Lead {
  uint32_t length = 0;  // of the whole sequence; 0: no sequence starts with this byte
  uint8_t bits = 0;     // of the code point in the lead byte
  // Bounds of the second byte: they exclude overlong forms, surrogates and what is above U+10FFFF.
  uint8_t second_low = 0x80;
  uint8_t second_high = 0xBF;
};

Lead read_lead(uint8_t byte) {
  const auto low_bits = [byte](int mask) { return static_cast<uint8_t>(byte & mask); };
  if (byte < 0x80) return {.length = 1, .bits = byte};
  if (byte < 0xC2 || byte > 0xF4) return {};
  if (byte < 0xE0) return {.length = 2, .bits = low_bits(0x1F)};
  if (byte == 0xE0) return {.length = 3, .bits = 0, .second_low = 0xA0};
  if (byte == 0xED) return {.length = 3, .bits = 0x0D, .second_high = 0x9F};
  if (byte < 0xF0) return {.length = 3, .bits = low_bits(0x0F)};
  if (byte == 0xF0) return {.length = 4, .bits = 0, .second_low = 0x90};
  if (byte == 0xF4) return {.length = 4, .bits = 0x04, .second_high = 0x8F};
  return {.length = 4, .bits = low_bits(0x07)};
}

}  // namespace

Utf8Char decode_utf8(std::string_view bytes, size_t at) {
  const Lead lead = read_lead(static_cast<uint8_t>(bytes[at]));
  if (lead.length == 0) return {.status = Utf8Status::kIllFormed};
  char32_t code = lead.bits;
  uint8_t low = lead.second_low;
  uint8_t high = lead.second_high;
  for (uint32_t i = 1; i < lead.length; ++i) {
    if (at + i == bytes.size()) return {.length = i, .status = Utf8Status::kIncomplete};
    const auto byte = static_cast<uint8_t>(bytes[at + i]);
    if (byte < low || byte > high) return {.length = i, .status = Utf8Status::kIllFormed};
    code = code << 6 | (byte & 0x3F);
    low = 0x80;
    high = 0xBF;
  }
  return {.code = code, .length = lead.length};
}

size_t append_valid_utf8(std::string_view bytes, std::string& out, size_t& replaced) {
  size_t valid_from = 0;
  size_t at = 0;
  while (at < bytes.size()) {
    const Utf8Char character = decode_utf8(bytes, at);
    if (character.status == Utf8Status::kIncomplete) break;
    if (character.status == Utf8Status::kIllFormed) {
      out.append(bytes.substr(valid_from, at - valid_from)).append(kReplacement);
      ++replaced;
      valid_from = at + character.length;
    }
    at += character.length;
  }
  out.append(bytes.substr(valid_from, at - valid_from));
  return at;
}

}  // namespace k3::text
