// A stretch of valid UTF-8 as characters: where each one starts and which classes it is in.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "text/char_class.h"

namespace k3::text {

/// A view: characters [0, size()) of some text.
struct CharView {
  std::string_view text;               // the offsets count from its start
  std::span<const uint32_t> offsets;   // size() + 1: start of each character, then the end
  std::span<const CharClass> classes;  // size()

  size_t size() const { return classes.size(); }
  CharView part(size_t begin, size_t end) const {
    return {text, offsets.subspan(begin, end - begin + 1), classes.subspan(begin, end - begin)};
  }
  std::string_view bytes(size_t begin, size_t end) const {
    return text.substr(offsets[begin], offsets[end] - offsets[begin]);
  }
};

/// Owner of such a list; reused from slice to slice.
class Characters {
 public:
  /// Reads the first characters of `text` (valid UTF-8), at most `count_max`; the view holds until
  /// the next call.
  CharView read(std::string_view text, size_t count_max);

 private:
  std::vector<uint32_t> offsets_;
  std::vector<CharClass> classes_;
};

/// Long inputs are cut before anything else looks at them, as the reference does: slices of
/// kSliceChars characters, and in a slice no run of blanks or of others beyond kRunChars.
inline constexpr size_t kSliceChars = 400'000;
inline constexpr size_t kRunChars = 25'000;

/// Where the piece that starts at `begin` ends: before the character that would make a run of
/// blanks or of non-blanks longer than kRunChars, else at the end.
size_t piece_end(std::span<const CharClass> classes, size_t begin);

}  // namespace k3::text
