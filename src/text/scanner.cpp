#include "text/scanner.h"

namespace k3::text {
namespace {

constexpr size_t kNoMatch = 0;  // no match ends at the start of the text

}  // namespace

size_t Scanner::next() {
  return position_ = match(position_);
}

size_t Scanner::match(size_t at) {
  if (is(at, kHan)) return run_end(at, kHan);
  if (const size_t end = word(at); end != kNoMatch) return after_contraction(end);
  if (is(at, kNumber)) return run_end(at, kNumber, 3);
  if (const size_t end = punctuation(at); end != kNoMatch) return end;
  return whitespace(at);
}

/// Alternatives 2 and 3 without the contraction. The optional first character is tried as taken
/// before it is tried as left out; a mark can be both that character and the first of the word.
size_t Scanner::word(size_t at) {
  const bool prefixed = !is(at, kNewline | kLetter | kNumber) && at + 1 < text_.size();
  if (prefixed) {
    if (const size_t end = capitalised(at + 1); end != kNoMatch) return end;
  }
  if (const size_t end = capitalised(at); end != kNoMatch) return end;
  // Alternative 3. What follows its capitals is not in kLower, or 2 would have matched.
  if (prefixed && is(at + 1, kUpper)) return run_end(at + 1, kUpper);
  return is(at, kUpper) ? run_end(at, kUpper) : kNoMatch;
}

/// U* L+ from `start`. Where nothing in L follows the run of U, U* gives characters back until L+
/// has one: the last of the run that is in both.
size_t Scanner::capitalised(size_t start) {
  const size_t upper_end = run_end(start, kUpper);
  const size_t lower_end = run_end(upper_end, kLower);
  return lower_end > upper_end ? lower_end : end_of_last(start, upper_end, kLower);
}

size_t Scanner::punctuation(size_t at) {
  const size_t start = text_.bytes(at, at + 1) == " " ? at + 1 : at;
  const size_t end = run_end_without(start, kSpace | kLetter | kNumber);
  return end == start ? kNoMatch : run_end(end, kNewline);
}

/// Alternatives 6 to 8: up to the last newline of the run; else all of it at the end of the text;
/// else all but the last character, which may belong to the word that follows.
size_t Scanner::whitespace(size_t at) {
  const size_t end = run_end(at, kSpace);
  if (const size_t newline = end_of_last(at, end, kNewline); newline != kNoMatch) return newline;
  return end == text_.size() || end - at == 1 ? end : end - 1;
}

size_t Scanner::after_contraction(size_t at) const {
  const char first = letter_of_contraction(at + 1);
  if (first == 0 || text_.bytes(at, at + 1) != "'") return at;
  if (first == 's' || first == 't' || first == 'm' || first == 'd') return at + 2;
  const char second = letter_of_contraction(at + 2);
  const bool two =
      (first == 'l' && second == 'l') || ((first == 'r' || first == 'v') && second == 'e');
  return two ? at + 3 : at;
}

/// The character in lower case if it is a letter of ASCII or folds to one that contractions use
/// (only U+017F, to s); else 0.
char Scanner::letter_of_contraction(size_t at) const {
  if (at >= text_.size()) return 0;
  const std::string_view bytes = text_.bytes(at, at + 1);
  if (bytes == "\xC5\xBF") return 's';
  const char lower = static_cast<char>(bytes[0] | 0x20);
  return lower >= 'a' && lower <= 'z' ? lower : '\0';
}

size_t Scanner::run_end(size_t start, CharClass any, size_t length_max) {
  size_t end = start;
  while (end < text_.size() && end - start < length_max && is(end, any)) ++end;
  inspected_ += end - start + 1;
  return end;
}

size_t Scanner::run_end_without(size_t start, CharClass any) {
  size_t end = start;
  while (end < text_.size() && !is(end, any)) ++end;
  inspected_ += end - start + 1;
  return end;
}

size_t Scanner::end_of_last(size_t start, size_t end, CharClass any) {
  size_t last = end;
  while (last > start && !is(last - 1, any)) --last;
  inspected_ += end - last + 1;
  return last > start ? last : kNoMatch;
}

}  // namespace k3::text
