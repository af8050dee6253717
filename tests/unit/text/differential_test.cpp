// The tokenizer against a second one, written as plainly as it can be and as differently from
// src/text as it can be: the pattern is run by a backtracking matcher over ICU's own sets, merging
// looks at all pairs at every step.
#include <gtest/gtest.h>
#include <unicode/uniset.h>
#include <unicode/unistr.h>

#include <map>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "text/bpe.h"
#include "text/scanner.h"
#include "text/utf8_stream.h"

namespace k3::text {
namespace {

using Random = std::mt19937;

std::string to_utf8(const std::u32string& text) {
  std::string out;
  icu::UnicodeString::fromUTF32(reinterpret_cast<const UChar32*>(text.data()),
                                static_cast<int32_t>(text.size()))
      .toUTF8String(out);
  return out;
}

icu::UnicodeSet unicode_set(const char* pattern) {
  UErrorCode status = U_ZERO_ERROR;
  icu::UnicodeSet set(icu::UnicodeString::fromUTF8(pattern), status);
  if (U_FAILURE(status)) throw std::runtime_error(pattern);
  return set;
}

constexpr const char* kUpperSet = "[[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]-[\\p{sc=Han}]]";
constexpr const char* kLowerSet = "[[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]-[\\p{sc=Han}]]";
constexpr size_t kMany = SIZE_MAX;

/// The pattern, by backtracking: exponential in the worst case, for short texts.
class NaivePattern {
 public:
  std::vector<std::string> split(const std::u32string& text) const {
    std::vector<std::string> out;
    for (size_t at = 0; at < text.size();) {
      std::optional<size_t> end;
      for (size_t i = 0; i < alternatives_.size() && !end; ++i) {
        end = match(alternatives_[i], 0, text, at);
      }
      if (!end) throw std::runtime_error("no alternative matches");
      out.push_back(to_utf8(text.substr(at, *end - at)));
      at = *end;
    }
    return out;
  }

 private:
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
                              const std::u32string& text, size_t at) const {
    if (index == alternative.elements.size()) return match_tail(alternative.tail, text, at);
    const Element& element = alternative.elements[index];
    size_t count = 0;
    while (count < element.high && at + count < text.size() &&
           element.set.contains(static_cast<UChar32>(text[at + count]))) {
      ++count;
    }
    for (; count + 1 > element.low; --count) {
      if (const auto end = match(alternative, index + 1, text, at + count)) return end;
      if (count == 0) break;
    }
    return std::nullopt;
  }

  std::optional<size_t> match_tail(Tail tail, const std::u32string& text, size_t at) const {
    if (tail == Tail::kNotBeforeNonSpace && at < text.size() &&
        !space_.contains(static_cast<UChar32>(text[at]))) {
      return std::nullopt;
    }
    if (tail != Tail::kContraction) return at;
    for (const char* contraction : {"'s", "'t", "'re", "'ve", "'m", "'ll", "'d"}) {
      const icu::UnicodeString wanted(contraction);
      icu::UnicodeString found = icu::UnicodeString::fromUTF8(
          to_utf8(text.substr(at, static_cast<size_t>(wanted.length()))));
      if (found.foldCase() == wanted) return at + static_cast<size_t>(wanted.length());
    }
    return at;
  }

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

std::vector<std::string> scan(const std::string& text) {
  Characters characters;
  const CharView view = characters.read(text, SIZE_MAX);
  std::vector<std::string> out;
  size_t begin = 0;
  for (Scanner scanner(view); !scanner.done();) {
    const size_t end = scanner.next();
    out.emplace_back(view.bytes(begin, end));
    begin = end;
  }
  return out;
}

/// Characters of every kind that the pattern tells apart, and of kinds that are easily confused.
const std::u32string kAlphabet =
    U"aAzZ sStTrReEvVmMlLdD\u017F\u212A"       // letters of contractions, long s, Kelvin sign
    U"\u01C5\u02B0\u00AA\u05D0\u0E01"          // Lt, Lm, Lo
    U"\u0301\u0903\u20DD\U00016FF0"            // Mn, Mc, Me, a mark of the script Han
    U"\u6F22\u5B57\u3005\u3007\u2E80\u30FB"    // Han as Lo, Lm, Nl, So; a middle dot that is Common
    U"09\u0663\u00BD\u2167\U0001D7D8"          // Nd, No, Nl
    U"''''..!$+\u2019\u3002\u201C"             // punctuation and symbols
    U"  \t\n\r\u000B\u0085\u00A0\u3000\u2028"  // white space
    U"\u001C\u180E\u200B\u200D\uFEFF"          // not white space
    U"\U0001F642\U0001F469\U000E0100\u0378\uE000\uFFFD";

std::u32string random_text(Random& random) {
  const size_t length = std::uniform_int_distribution<size_t>(0, 14)(random);
  // Few different characters make the runs and near misses that many would not.
  const size_t kinds = std::uniform_int_distribution<size_t>(1, 8)(random);
  std::u32string chosen;
  for (size_t i = 0; i < kinds; ++i) {
    chosen += kAlphabet[std::uniform_int_distribution<size_t>(0, kAlphabet.size() - 1)(random)];
  }
  std::u32string text;
  for (size_t i = 0; i < length; ++i) {
    text += chosen[std::uniform_int_distribution<size_t>(0, kinds - 1)(random)];
  }
  return text;
}

TEST(Differential, TheScannerCutsAsTheBacktrackingPatternDoes) {
  const NaivePattern pattern;
  Random random(1);
  for (int i = 0; i < 40'000; ++i) {
    const std::u32string text = random_text(random);
    ASSERT_EQ(scan(to_utf8(text)), pattern.split(text)) << "case " << i << ": " << to_utf8(text);
  }
}

TEST(Differential, EveryCharacterAloneAndInContextIsCutAsThePatternDoes) {
  const NaivePattern pattern;
  for (char32_t code = 0; code <= 0x10FFFF; code += code < 0x3400 ? 1 : 61) {
    if (code >= 0xD800 && code <= 0xDFFF) continue;
    const std::u32string c(1, code);
    const std::u32string text = c + U"a" + c + U"A" + c + U"1" + c + c + U"'s " + c + U"\n" + c;
    ASSERT_EQ(scan(to_utf8(text)), pattern.split(text)) << "U+" << std::hex << uint32_t{code};
  }
}

std::vector<uint32_t> merge_naively(const std::map<std::string, uint32_t>& ranks,
                                    const std::string& bytes) {
  if (const auto whole = ranks.find(bytes); whole != ranks.end()) return {whole->second};
  std::vector<std::string> parts;
  for (const char byte : bytes) parts.emplace_back(1, byte);
  for (;;) {
    size_t best = parts.size();
    uint32_t best_rank = UINT32_MAX;
    for (size_t i = 0; i + 1 < parts.size(); ++i) {
      const auto found = ranks.find(parts[i] + parts[i + 1]);
      if (found == ranks.end() || found->second >= best_rank) continue;
      best = i;
      best_rank = found->second;
    }
    if (best == parts.size()) break;
    parts[best] += parts[best + 1];
    parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(best) + 1);
  }
  std::vector<uint32_t> ids;
  for (const std::string& part : parts) ids.push_back(ranks.at(part));
  return ids;
}

/// All single bytes, at random ranks, and concatenations of random tokens, some of them unreachable
/// by merging.
std::map<std::string, uint32_t> random_vocabulary(Random& random, size_t merged) {
  std::vector<std::string> tokens;
  for (int byte = 0; byte < 256; ++byte) tokens.emplace_back(1, static_cast<char>(byte));
  std::vector<std::string> common = {"a", "b", "c"};
  std::map<std::string, uint32_t> seen;
  while (tokens.size() < 256 + merged) {
    std::uniform_int_distribution<size_t> pick(0, common.size() - 1);
    const std::string token = common[pick(random)] + common[pick(random)];
    if (token.size() > 12 || !seen.emplace(token, 0).second) continue;
    tokens.push_back(token);
    common.push_back(token);
  }
  std::shuffle(tokens.begin(), tokens.end(), random);
  std::map<std::string, uint32_t> ranks;
  for (const std::string& token : tokens) ranks.emplace(token, ranks.size());
  return ranks;
}

std::string random_bytes(Random& random) {
  const int length = std::uniform_int_distribution<int>(1, 40)(random);
  const int kinds = std::uniform_int_distribution<int>(0, 3)(random);
  std::string bytes;
  for (int i = 0; i < length; ++i) {
    bytes += static_cast<char>('a' + std::uniform_int_distribution<int>(0, kinds)(random));
  }
  return bytes;
}

TEST(Differential, MergingGivesTheIdsOfRepeatedSearchForTheLowestRank) {
  Random random(2);
  for (int round = 0; round < 40; ++round) {
    const auto ranks = random_vocabulary(random, 60);
    Vocabulary vocabulary(static_cast<uint32_t>(ranks.size()), 4096);
    for (const auto& [token, rank] : ranks) ASSERT_FALSE(vocabulary.set(rank, token));
    BpeMerger merger(vocabulary);
    const auto encode = [&merger](const std::string& bytes) {
      std::vector<uint32_t> ids;
      merger.encode(bytes, ids);
      return ids;
    };
    for (int i = 0; i < 100; ++i) {
      const std::string bytes = random_bytes(random);
      ASSERT_EQ(encode(bytes), merge_naively(ranks, bytes)) << "round " << round << ": " << bytes;
    }
    for (const auto& [token, rank] : ranks) {  // whole, even where merging cannot reach it
      ASSERT_EQ(encode(token), std::vector<uint32_t>{rank}) << "round " << round << ": " << token;
    }
  }
}

TEST(Differential, ClassesAreThoseOfTheirDefinitionForEveryCharacter) {
  const std::vector<std::pair<CharClass, icu::UnicodeSet>> definitions = {
      {kHan, unicode_set("[\\p{sc=Han}]")},
      {kUpper, unicode_set(kUpperSet)},
      {kLower, unicode_set(kLowerSet)},
      {kLetter, unicode_set("[\\p{L}]")},
      {kNumber, unicode_set("[\\p{N}]")},
      {kSpace, unicode_set("[\\p{White_Space}]")},
      {kNewline, unicode_set("[\\r\\n]")},
      {kBlank, unicode_set("[\\p{White_Space}\\u001C-\\u001F]")},
  };
  for (char32_t code = 0; code <= 0x10FFFF; ++code) {
    int expected = 0;
    for (const auto& [bit, set] : definitions) {
      if (set.contains(static_cast<UChar32>(code))) expected |= bit;
    }
    ASSERT_EQ(int{classify(code)}, expected) << "U+" << std::hex << uint32_t{code};
  }
}

TEST(Differential, RepairedUtf8IsWhatIcuMakesOfTheSameBytes) {
  constexpr std::string_view kBytes =
      "a\x7F\x80\x8F\x90\x9F\xA0\xBF\xC0\xC1\xC2\xDF\xE0\xE1\xED\xEF\xF0\xF1\xF4\xF5\xFF";
  Random random(3);
  std::uniform_int_distribution<size_t> pick(0, kBytes.size() - 1);
  for (int i = 0; i < 100'000; ++i) {
    std::string bytes;
    for (int j = 0; j < 6; ++j) bytes += kBytes[pick(random)];
    std::string expected;
    icu::UnicodeString::fromUTF8(bytes).toUTF8String(expected);
    ASSERT_EQ(to_valid_utf8(bytes), expected) << "case " << i;
  }
}

}  // namespace
}  // namespace k3::text
