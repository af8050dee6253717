// UTF-8 one character at a time, ill-formed input included: a maximal ill-formed part (the longest
// start of a valid sequence, else one byte) counts as one U+FFFD, as Unicode recommends and as the
// WHATWG decoders and Python do.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace k3::text {

inline constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

enum class Utf8Status : uint8_t {
  kValid,
  kIllFormed,   // no continuation of the input can make it valid
  kIncomplete,  // the input ends inside a sequence that is valid so far
};

struct Utf8Char {
  char32_t code = 0;    // meaningful when valid
  uint32_t length = 1;  // bytes of the character, or of the ill-formed part
  Utf8Status status = Utf8Status::kValid;
};

/// The character (or ill-formed part) at bytes[at]; `at` is inside.
Utf8Char decode_utf8(std::string_view bytes, size_t at);

/// Appends bytes to `out` with every ill-formed part replaced, adds the number of replacements to
/// `replaced`, and stops before an incomplete sequence at the end. Returns the bytes consumed.
size_t append_valid_utf8(std::string_view bytes, std::string& out, size_t& replaced);

}  // namespace k3::text
