// What the tokenizer's pattern asks of a character, as one byte. Unicode's general categories and
// scripts come from ICU; locale and environment play no part.
#pragma once

#include <cstdint>

namespace k3::text {

using CharClass = uint8_t;  // a set of the bits below

inline constexpr CharClass kHan = 1;       // Script=Han (not the block, not Script_Extensions)
inline constexpr CharClass kUpper = 2;     // Lu, Lt, Lm, Lo, M, but not Han
inline constexpr CharClass kLower = 4;     // Ll, Lm, Lo, M, but not Han: overlaps kUpper
inline constexpr CharClass kLetter = 8;    // L
inline constexpr CharClass kNumber = 16;   // N
inline constexpr CharClass kSpace = 32;    // White_Space: \s of the pattern
inline constexpr CharClass kNewline = 64;  // CR, LF
inline constexpr CharClass kBlank = 128;   // Python's isspace: White_Space and U+001C..U+001F

CharClass classify(char32_t code);

}  // namespace k3::text
