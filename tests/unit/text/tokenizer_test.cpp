#include "text/tokenizer.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <numeric>
#include <string>
#include <vector>

#include "base/json.h"
#include "k3/error.h"
#include "support/test_data.h"

namespace k3::text {
namespace {

namespace fs = std::filesystem;

Tokenizer tiny_tokenizer() {
  return *Tokenizer::load(test::data_dir() / "tiny-k3");
}

std::optional<Tokenizer> real_tokenizer() {
  return Tokenizer::load(test::shared_dir() / "data");
}

#define REQUIRE_REAL_VOCABULARY(tokenizer) \
  if (!tokenizer) GTEST_SKIP() << "the released tokenizer is not at " << test::shared_dir() / "data"

/// Compares every line of a file of goldens; returns how many there were.
size_t compare_goldens(const Tokenizer& tokenizer, const std::string& name) {
  std::ifstream in(test::data_dir() / "tokenizer" / name);
  size_t count = 0;
  for (std::string line; std::getline(in, line); ++count) {
    const Json golden = parse_json(line, name);
    const std::string text = golden.at("text");
    const std::vector<uint32_t> ids = golden.at("ids");
    const std::vector<uint32_t> ids_special = golden.value("ids_special", ids);
    EXPECT_EQ(tokenizer.encode(text, Specials::kAsText), ids) << text;
    EXPECT_EQ(tokenizer.encode(text, Specials::kRecognised), ids_special) << text;
    EXPECT_EQ(tokenizer.decode(ids), text);
    EXPECT_EQ(tokenizer.decode(ids_special), text);
  }
  return count;
}

TEST(Tokenizer, EncodesEveryGoldenOfTheTinyVocabularyAndDecodesItBack) {
  EXPECT_EQ(compare_goldens(tiny_tokenizer(), "tiny-k3.jsonl"), 174u);
}

TEST(Tokenizer, EncodesEveryGoldenOfTheReleasedVocabularyAndDecodesItBack) {
  const auto tokenizer = real_tokenizer();
  REQUIRE_REAL_VOCABULARY(tokenizer);
  EXPECT_EQ(compare_goldens(*tokenizer, "real-vocabulary.jsonl"), 114u);
}

TEST(Tokenizer, TheReleasedVocabularyHasItsSizeSpecialsAndSmallMemory) {
  const auto tokenizer = real_tokenizer();
  REQUIRE_REAL_VOCABULARY(tokenizer);
  EXPECT_EQ(tokenizer->vocabulary_size(), 163'840u);
  EXPECT_EQ(tokenizer->special_id("<|end_of_msg|>"), 163'586u);
  EXPECT_EQ(tokenizer->special_id("<|open|>"), 163'587u);
  EXPECT_EQ(tokenizer->special_id("<|reserved_token_163592|>"), 163'592u);
  EXPECT_EQ(tokenizer->special_id("<|im_end|>"), std::nullopt);
  EXPECT_EQ(tokenizer->token_bytes(163'839), "[PAD]");
  EXPECT_GT(tokenizer->memory(),
            Bytes{1'105'983 + 163'584 * 4});  // the bytes, and an index of them
  EXPECT_LT(tokenizer->memory(), Bytes{6'000'000});
}

TEST(Tokenizer, EveryIdOfTheReleasedVocabularyDecodesAndEncodesBackWhereItIsWholeText) {
  const auto tokenizer = real_tokenizer();
  REQUIRE_REAL_VOCABULARY(tokenizer);
  std::vector<uint32_t> all(tokenizer->vocabulary_size());
  std::iota(all.begin(), all.end(), 0);
  size_t bytes = 0;
  for (const uint32_t id : all) bytes += tokenizer->token_bytes(id).size();
  EXPECT_GT(tokenizer->decode(all).size(), bytes);  // some tokens are parts of characters
  for (uint32_t id = 163'584; id < 163'840; ++id) {
    ASSERT_EQ(tokenizer->encode(tokenizer->token_bytes(id), Specials::kRecognised),
              std::vector<uint32_t>{id});
  }
}

TEST(Tokenizer, IdsOutsideTheVocabularyAreUsageErrorsThatNameTheLimit) {
  const Tokenizer tokenizer = tiny_tokenizer();
  ASSERT_EQ(tokenizer.vocabulary_size(), 1280u);
  EXPECT_EQ(tokenizer.token_bytes(1279), "[PAD]");
  for (const uint32_t id : {1280u, UINT32_MAX}) {
    EXPECT_FALSE(tokenizer.is_special(id));
    try {
      tokenizer.decode({{id}});
      FAIL() << id;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kUsage);
      EXPECT_NE(std::string(error.what()).find("expected 0 to 1279"), std::string::npos);
    }
  }
}

TEST(Tokenizer, SpecialIdsAreTheBlockAfterTheRanks) {
  const Tokenizer tokenizer = tiny_tokenizer();
  EXPECT_FALSE(tokenizer.is_special(1023));
  EXPECT_TRUE(tokenizer.is_special(1024));
  EXPECT_TRUE(tokenizer.is_special(1027));  // <|open|>, which the file marks as not special
  EXPECT_EQ(tokenizer.special_id("[BOS]"), 1024u);
  EXPECT_EQ(tokenizer.special_id("[BOS"), std::nullopt);
  EXPECT_EQ(tokenizer.special_id("[BOS] "), std::nullopt);
  EXPECT_EQ(tokenizer.special_id(""), std::nullopt);
}

TEST(Tokenizer, TextAroundARecognisedLiteralIsEncodedAlone) {
  const Tokenizer tokenizer = tiny_tokenizer();
  const auto encode = [&](std::string_view text) {
    return tokenizer.encode(text, Specials::kRecognised);
  };
  // Two blanks at the end of a text are one match, before a word they are two.
  std::vector<uint32_t> expected = encode("a  ");
  expected.push_back(*tokenizer.special_id("[EOS]"));
  for (const uint32_t id : encode("\u00E9 b")) expected.push_back(id);
  EXPECT_EQ(encode("a  [EOS]\u00E9 b"), expected);
  EXPECT_EQ(encode("[EOS]"), std::vector<uint32_t>{1025});
  EXPECT_EQ(encode("[EOS][EOS]"), (std::vector<uint32_t>{1025, 1025}));
  EXPECT_EQ(encode("[EO[EOS]").back(), 1025u);
}

TEST(Tokenizer, IllFormedInputIsEncodedAsReplacementCharactersAndCounted) {
  const Tokenizer tokenizer = tiny_tokenizer();
  size_t replaced = 0;
  EXPECT_EQ(tokenizer.encode("a\xE6\xAD", Specials::kAsText, &replaced),
            tokenizer.encode("a\uFFFD", Specials::kAsText));
  EXPECT_EQ(replaced, 1u);
  tokenizer.encode("a\uFFFD", Specials::kAsText, &replaced);
  EXPECT_EQ(replaced, 0u);
}

TEST(Tokenizer, DecodingReplacesWhatIsNotUtf8) {
  const Tokenizer tokenizer = tiny_tokenizer();
  EXPECT_EQ(tokenizer.decode({{0xE4, 0xBD, 0xA0}}), "\u4F60");
  EXPECT_EQ(tokenizer.decode({{0xE4, 0xBD, 'a', 0xFF}}), "\uFFFDa\uFFFD");
}

TEST(TokenizerFiles, ADirectoryWithoutAVocabularyHasNoTokenizer) {
  const test::TempDir directory;
  EXPECT_FALSE(Tokenizer::load(directory.path()));
  EXPECT_FALSE(Tokenizer::load(directory.path() / "nowhere"));
}

std::string load_error(const fs::path& directory) {
  try {
    Tokenizer::load(directory);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kCheckpoint);
    return error.what();
  }
  return "no error";
}

void copy_tiny(const char* name, const fs::path& directory) {
  fs::copy_file(test::data_dir() / "tiny-k3" / name, directory / name);
}

TEST(TokenizerFiles, ALiteralBeyondAsciiIsCutOutWholeAndNoMore) {
  const test::TempDir directory;
  copy_tiny("tiktoken.model", directory.path());
  std::ofstream(directory.path() / "tokenizer_config.json")
      << "{\"added_tokens_decoder\":{\"1024\":{\"content\":\"<\u4F60\u597D>\"}}}";
  const auto tokenizer = Tokenizer::load(directory.path());
  ASSERT_TRUE(tokenizer);
  EXPECT_EQ(tokenizer->encode("a<\u4F60\u597D>bcd", Specials::kRecognised),
            (std::vector<uint32_t>{'a', 1024, 'b', 'c', 'd'}));
}

TEST(TokenizerFiles, AVocabularyWithoutItsConfigurationIsRefusedByName) {
  const test::TempDir directory;
  copy_tiny("tiktoken.model", directory.path());
  const fs::path config = directory.path() / "tokenizer_config.json";
  EXPECT_EQ(load_error(directory.path()).find("cannot read " + config.string()), 0u);
  fs::create_directory(config);
  EXPECT_EQ(load_error(directory.path()).find("cannot read " + config.string()), 0u);
}

TEST(TokenizerFiles, AnEmptyADanglingAndAHugeVocabularyAreRefused) {
  const test::TempDir directory;
  copy_tiny("tokenizer_config.json", directory.path());
  const fs::path path = directory.path() / "tiktoken.model";
  std::ofstream(path).close();
  EXPECT_NE(load_error(directory.path()).find("found 0 bytes"), std::string::npos);
  fs::resize_file(path, uint64_t{1} << 40);
  EXPECT_NE(load_error(directory.path()).find("found 1099511627776 bytes"), std::string::npos);
  fs::remove(path);
  fs::create_symlink(directory.path() / "gone", path);
  EXPECT_EQ(load_error(directory.path()).find("cannot read " + path.string()), 0u);
}

TEST(TokenizerFiles, AVocabularyCutAtALineEndIsRefusedThroughTheSpecialIds) {
  const test::TempDir directory;
  copy_tiny("tokenizer_config.json", directory.path());
  std::ifstream in(test::data_dir() / "tiny-k3" / "tiktoken.model");
  std::ofstream out(directory.path() / "tiktoken.model");
  std::string line;
  for (int i = 0; i < 1023 && std::getline(in, line); ++i) out << line << "\n";
  out.close();
  EXPECT_NE(load_error(directory.path()).find("expected 1023 to 1278"), std::string::npos)
      << load_error(directory.path());
}

}  // namespace
}  // namespace k3::text
