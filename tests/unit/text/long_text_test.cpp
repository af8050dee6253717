// Long inputs: where they are cut, and that the work grows with their length and no faster, by
// counting what is looked at.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "support/test_data.h"
#include "text/bpe.h"
#include "text/scanner.h"
#include "text/tokenizer.h"

namespace k3::text {
namespace {

std::string repeated(std::string_view unit, size_t count) {
  std::string out;
  out.reserve(unit.size() * count);
  for (size_t i = 0; i < count; ++i) out += unit;
  return out;
}

std::vector<size_t> piece_ends(const std::string& text) {
  Characters characters;
  const CharView view = characters.read(text, SIZE_MAX);
  std::vector<size_t> ends;
  for (size_t at = 0; at < view.size();) ends.push_back(at = piece_end(view.classes, at));
  return ends;
}

TEST(PieceEnd, RunsOfMoreThan25000CharactersAreCut) {
  using Ends = std::vector<size_t>;
  EXPECT_EQ(piece_ends(repeated("a", 24'999)), Ends{24'999});
  EXPECT_EQ(piece_ends(repeated("a", 25'000)), Ends{25'000});
  EXPECT_EQ(piece_ends(repeated("a", 25'001)), (Ends{25'000, 25'001}));
  EXPECT_EQ(piece_ends(repeated(" ", 25'000)), Ends{25'000});
  EXPECT_EQ(piece_ends(repeated(" ", 25'001)), (Ends{25'000, 25'001}));
  EXPECT_EQ(piece_ends(repeated("\u4F60", 50'001)), (Ends{25'000, 50'000, 50'001}));
}

TEST(PieceEnd, TheOtherKindOfCharacterStartsANewCount) {
  using Ends = std::vector<size_t>;
  const std::string letters = repeated("a", 20'000);
  const std::string blanks = repeated(" ", 20'000);
  EXPECT_EQ(piece_ends(letters + blanks + letters), Ends{60'000});
  EXPECT_EQ(piece_ends(letters + " " + repeated("b", 25'001)), (Ends{45'001, 45'002}));
  // U+001C is a blank for Python and no white space for the pattern.
  EXPECT_EQ(piece_ends(letters + "\x1C" + letters), Ends{40'001});
  EXPECT_EQ(piece_ends(repeated(" \x1C\u00A0\u3000", 6'251)), (Ends{25'000, 25'004}));
  EXPECT_EQ(piece_ends(letters + "\u200B" + letters), (Ends{25'000, 40'001}));
}

Tokenizer tiny_tokenizer() {
  return *Tokenizer::load(test::data_dir() / "tiny-k3");
}

std::vector<uint32_t> joined(std::vector<uint32_t> first, const std::vector<uint32_t>& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

/// The ids of text that is cut after its first `cut` bytes: those of both parts.
void expect_cut(const Tokenizer& tokenizer, const std::string& text, size_t cut) {
  EXPECT_EQ(tokenizer.encode(text, Specials::kAsText),
            joined(tokenizer.encode(text.substr(0, cut), Specials::kAsText),
                   tokenizer.encode(text.substr(cut), Specials::kAsText)));
}

TEST(LongText, NoTokenReachesOverTheCutOfALongRun) {
  const Tokenizer tokenizer = tiny_tokenizer();
  const std::vector<uint32_t> er = tokenizer.encode("er", Specials::kAsText);
  ASSERT_EQ(er.size(), 1u);
  const std::string before = repeated("q", 24'999);
  expect_cut(tokenizer, before + "er", 25'000);
  EXPECT_EQ(tokenizer.encode(before + "er", Specials::kAsText).back(), uint32_t{'r'});
  EXPECT_EQ(tokenizer.encode(before.substr(1) + "er", Specials::kAsText).back(), er[0]);
}

TEST(LongText, OfMoreThanEnoughIdsOnlyTheFirstAreMade) {
  const Tokenizer tokenizer = tiny_tokenizer();
  const std::string text(1'000'000, '\0');
  const std::vector<uint32_t> all = tokenizer.encode(text, Specials::kAsText);
  const auto up_to = [&](size_t enough) {
    return tokenizer.encode(text, Specials::kAsText, nullptr, enough);
  };
  const std::vector<uint32_t> first = up_to(1000);
  EXPECT_GT(first.size(), 1000u);
  EXPECT_LT(first.size(), all.size() / 2);
  EXPECT_TRUE(std::equal(first.begin(), first.end(), all.begin()));
  EXPECT_EQ(up_to(all.size()), all);
}

TEST(LongText, SlicesOf400000CharactersAreEncodedAlone) {
  const Tokenizer tokenizer = tiny_tokenizer();
  const uint32_t er = tokenizer.encode("er", Specials::kAsText)[0];
  // Characters, not bytes: each unit has five of them in six bytes.
  const std::string before = repeated(" caf\u00E9", 79'999) + " caf";
  expect_cut(tokenizer, before + "er", before.size() + 1);
  EXPECT_EQ(tokenizer.encode(before + "er", Specials::kAsText).back(), uint32_t{'r'});
  EXPECT_EQ(tokenizer.encode(before.substr(1) + "er", Specials::kAsText).back(), er);
}

TEST(LongText, ASpecialLiteralAcrossACutIsText) {
  const Tokenizer tokenizer = tiny_tokenizer();
  const uint32_t eos = *tokenizer.special_id("[EOS]");
  const auto count_eos = [&](size_t before) {
    const auto ids = tokenizer.encode(repeated("q", before) + "[EOS]", Specials::kRecognised);
    return std::count(ids.begin(), ids.end(), eos);
  };
  EXPECT_EQ(count_eos(24'995), 1);
  EXPECT_EQ(count_eos(24'996), 0);
  EXPECT_EQ(count_eos(24'999), 0);
  EXPECT_EQ(count_eos(25'000), 1);
}

TEST(LongText, MillionsOfEqualCharactersComeBackAsTheyWere) {
  const Tokenizer tokenizer = tiny_tokenizer();
  for (const std::string unit : {"a", " ", "\n", "'", "<|", "1", "\u4F60", "A\u0301", " \n"}) {
    const std::string text = repeated(unit, 1'000'000);
    EXPECT_EQ(tokenizer.decode(tokenizer.encode(text, Specials::kRecognised)), text) << unit;
  }
}

TEST(Scanner, LooksAtEachCharacterABoundedNumberOfTimes) {
  constexpr size_t kUnits = 20'000;
  const std::string ends[] = {"", "x", "\n", " ", "1", "A"};
  for (const std::string unit :
       {"a",       "A",       "\u00AA", "\u0301", "aA",    "Aa",  "\u00AAA", "A\u00AA",
        "!\u0301", "\u0301A", "!",      " ",      "\n",    " \n", "\n ",     "!\n",
        " !",      "'",       "'s",     "a'",     "A'l",   "1",   "\u6F22",  "\u6F22A",
        "\u00A0",  "\u0301 ", "\u01C5", "  a",    "\r\n\t"}) {
    for (const std::string& end : ends) {
      Characters characters;
      const std::string text = repeated(unit, kUnits) + end;
      const CharView view = characters.read(text, SIZE_MAX);
      Scanner scanner(view);
      while (!scanner.done()) scanner.next();
      // The worst of these is 5.3; a scanner that starts over in each run would look at thousands.
      EXPECT_LE(scanner.characters_inspected(), 6 * view.size()) << unit << "..." << end;
    }
  }
}

TEST(BpeMerger, LooksUpAtMostThreePairsForEachByteOfAMillion) {
  Vocabulary vocabulary(260, 1024);
  for (uint32_t byte = 0; byte < 256; ++byte) {
    const char token = static_cast<char>(byte);
    ASSERT_FALSE(vocabulary.set(byte, {&token, 1}));
  }
  vocabulary.set(256, "aa");
  vocabulary.set(257, "aaaa");
  vocabulary.set(258, "ab");
  vocabulary.set(259, "abab");
  constexpr size_t kBytes = 1'000'000;
  for (const std::string& text : {repeated("a", kBytes), repeated("ab", kBytes / 2)}) {
    BpeMerger merger(vocabulary);
    std::vector<uint32_t> ids;
    merger.encode(text, ids);
    EXPECT_EQ(ids, std::vector<uint32_t>(kBytes / 4, text[1] == 'a' ? 257 : 259));
    EXPECT_LE(merger.pairs_inspected(), 3 * kBytes);
  }
}

}  // namespace
}  // namespace k3::text
