// The tokenizer against a second one, the plain one of tests/support.
#include <gtest/gtest.h>
#include <unicode/unistr.h>

#include <map>
#include <random>
#include <string>
#include <vector>

#include "support/plain_tokenizer.h"
#include "text/bpe.h"
#include "text/scanner.h"
#include "text/utf8_stream.h"

namespace k3::text {
namespace {

using Random = std::mt19937;
using test::merge_plainly;
using test::PlainPattern;
using test::to_utf8;
using test::unicode_set;

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
  const PlainPattern pattern;
  Random random(1);
  for (int i = 0; i < 40'000; ++i) {
    const std::u32string text = random_text(random);
    ASSERT_EQ(scan(to_utf8(text)), pattern.split(text)) << "case " << i << ": " << to_utf8(text);
  }
}

TEST(Differential, EveryCharacterAloneAndInContextIsCutAsThePatternDoes) {
  const PlainPattern pattern;
  for (char32_t code = 0; code <= 0x10FFFF; code += code < 0x3400 ? 1 : 61) {
    if (code >= 0xD800 && code <= 0xDFFF) continue;
    const std::u32string c(1, code);
    const std::u32string text = c + U"a" + c + U"A" + c + U"1" + c + c + U"'s " + c + U"\n" + c;
    ASSERT_EQ(scan(to_utf8(text)), pattern.split(text)) << "U+" << std::hex << uint32_t{code};
  }
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
      ASSERT_EQ(encode(bytes), merge_plainly(ranks, bytes)) << "round " << round << ": " << bytes;
    }
    for (const auto& [token, rank] : ranks) {  // whole, even where merging cannot reach it
      ASSERT_EQ(encode(token), std::vector<uint32_t>{rank}) << "round " << round << ": " << token;
    }
  }
}

TEST(Differential, ClassesAreThoseOfTheirDefinitionForEveryCharacter) {
  const std::vector<std::pair<CharClass, icu::UnicodeSet>> definitions = {
      {kHan, unicode_set("[\\p{sc=Han}]")},
      {kUpper, unicode_set(test::kUpperSet)},
      {kLower, unicode_set(test::kLowerSet)},
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
