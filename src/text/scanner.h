// Cuts text into the matches of the pre-tokenisation pattern, leftmost alternative first:
//
//   1  [\p{Han}]+
//   2  [^\r\n\p{L}\p{N}]? U* L+ (?i:'s|'t|'re|'ve|'m|'ll|'d)?
//   3  [^\r\n\p{L}\p{N}]? U+ L* (?i:'s|'t|'re|'ve|'m|'ll|'d)?
//   4  \p{N}{1,3}
//   5  \x20?[^\s\p{L}\p{N}]+[\r\n]*
//   6  \s*[\r\n]+
//   7  \s+(?!\S)
//   8  \s+
//
// with U and L the classes kUpper and kLower. By hand rather than by a regular expression library:
// libraries differ in \s, in \p{Han} and in set subtraction, and backtracking over long runs is
// quadratic; here each character is looked at a bounded number of times.
#pragma once

#include <cstddef>
#include <cstdint>

#include "text/characters.h"

namespace k3::text {

class Scanner {
 public:
  explicit Scanner(CharView text) : text_(text) {}

  bool done() const { return position_ == text_.size(); }
  /// The end (as a character) of the match that starts where the last one ended; not when done().
  size_t next();

  /// Characters looked at so far: at most a fixed multiple of the text's length.
  uint64_t characters_inspected() const { return inspected_; }

 private:
  size_t match(size_t at);
  size_t word(size_t at);
  size_t capitalised(size_t start);
  size_t punctuation(size_t at);
  size_t whitespace(size_t at);
  size_t after_contraction(size_t at) const;
  char letter_of_contraction(size_t at) const;

  bool is(size_t at, CharClass any) const { return (text_.classes[at] & any) != 0; }
  size_t run_end(size_t start, CharClass any, size_t length_max = SIZE_MAX);
  size_t run_end_without(size_t start, CharClass any);
  /// The end of the last character in [start, end) that is in one of the classes, or kNoMatch.
  size_t end_of_last(size_t start, size_t end, CharClass any);

  CharView text_;
  size_t position_ = 0;
  uint64_t inspected_ = 0;
};

}  // namespace k3::text
