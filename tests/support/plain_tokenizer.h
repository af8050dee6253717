// A second tokenizer, written as plainly as it can be and as differently from src/text as it can
// be: the pattern is run by a backtracking matcher over ICU's own sets, merging looks at all pairs
// at every step.
#pragma once

#include <unicode/uniset.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer.h"

namespace k3::test {

std::string to_utf8(const std::u32string& text);
icu::UnicodeSet unicode_set(const char* pattern);

inline constexpr const char* kUpperSet = "[[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]-[\\p{sc=Han}]]";
inline constexpr const char* kLowerSet = "[[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]-[\\p{sc=Han}]]";

/// The pattern, by backtracking: quadratic, for short texts.
class PlainPattern {
 public:
  std::vector<std::string> split(const std::u32string& text) const;

 private:
  static constexpr size_t kMany = SIZE_MAX;
  enum class Tail { kNone, kContraction, kNotBeforeNonSpace };
  struct Element {  // a set, at least `low` and at most `high` times, greedily
    icu::UnicodeSet set;
    size_t low;
    size_t high;
  };
  struct Alternative {
    std::vector<Element> elements;
    Tail tail = Tail::kNone;
  };

  std::optional<size_t> match(const Alternative& alternative, size_t index,
                              const std::u32string& text, size_t at) const;
  std::optional<size_t> match_tail(Tail tail, const std::u32string& text, size_t at) const;

  icu::UnicodeSet han_ = unicode_set("[\\p{sc=Han}]");
  icu::UnicodeSet lead_ = unicode_set("[^\\r\\n\\p{L}\\p{N}]");
  icu::UnicodeSet upper_ = unicode_set(kUpperSet);
  icu::UnicodeSet lower_ = unicode_set(kLowerSet);
  icu::UnicodeSet number_ = unicode_set("[\\p{N}]");
  icu::UnicodeSet blank_ = unicode_set("[\\u0020]");
  icu::UnicodeSet symbol_ = unicode_set("[^\\p{White_Space}\\p{L}\\p{N}]");
  icu::UnicodeSet newline_ = unicode_set("[\\r\\n]");
  icu::UnicodeSet space_ = unicode_set("[\\p{White_Space}]");
  std::vector<Alternative> alternatives_ = {
      {{{han_, 1, kMany}}},
      {{{lead_, 0, 1}, {upper_, 0, kMany}, {lower_, 1, kMany}}, Tail::kContraction},
      {{{lead_, 0, 1}, {upper_, 1, kMany}, {lower_, 0, kMany}}, Tail::kContraction},
      {{{number_, 1, 3}}},
      {{{blank_, 0, 1}, {symbol_, 1, kMany}, {newline_, 0, kMany}}},
      {{{space_, 0, kMany}, {newline_, 1, kMany}}},
      {{{space_, 1, kMany}}, Tail::kNotBeforeNonSpace},
      {{{space_, 1, kMany}}},
  };
};

/// The ids of one match of the pattern: its own, else those of the lowest pairs merged first.
std::vector<uint32_t> merge_plainly(const std::map<std::string, uint32_t>& ranks,
                                    const std::string& bytes);

/// What a tokenizer should give, from its tokens alone. For short texts: it takes cubic time.
class PlainTokenizer {
 public:
  explicit PlainTokenizer(const text::Tokenizer& tokenizer);
  std::vector<uint32_t> encode(std::string_view text, text::Specials specials) const;

 private:
  void encode_ordinary(const std::string& text, std::vector<uint32_t>& ids) const;

  PlainPattern pattern_;
  std::map<std::string, uint32_t> ranks_;
  std::map<std::string, uint32_t> specials_;
};

}  // namespace k3::test
