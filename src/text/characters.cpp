#include "text/characters.h"

#include <algorithm>

#include "text/utf8.h"

namespace k3::text {

CharView Characters::read(std::string_view text, size_t count_max) {
  const size_t room = std::min(text.size(), count_max);
  offsets_.clear();
  classes_.clear();
  offsets_.reserve(room + 1);
  classes_.reserve(room);
  uint32_t at = 0;
  while (at < text.size() && classes_.size() < count_max) {
    const Utf8Char character = decode_utf8(text, at);
    offsets_.push_back(at);
    classes_.push_back(classify(character.code));
    at += character.length;
  }
  offsets_.push_back(at);
  return {text.substr(0, at), offsets_, classes_};
}

size_t piece_end(std::span<const CharClass> classes, size_t begin) {
  size_t run = 0;
  for (size_t i = begin; i < classes.size(); ++i) {
    const bool same = i == begin || ((classes[i] ^ classes[i - 1]) & kBlank) == 0;
    run = same ? run + 1 : 1;
    if (run > kRunChars) return i;
  }
  return classes.size();
}

}  // namespace k3::text
