// k3 tokenize and k3 detokenize, and the lists of ids that commands read.
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "base/json.h"
#include "commands/token_ids.h"
#include "k3/error.h"
#include "support/run_k3.h"
#include "support/test_data.h"

namespace k3::commands {
namespace {

namespace fs = std::filesystem;

const std::string kModel = test::data_dir() / "tiny-k3";
const std::string kText = "Un petit chaton tr\u00E8s mignon \u4F60\u597D [EOS]";

std::string all_ids(size_t count) {
  std::vector<uint32_t> ids(count);
  for (size_t i = 0; i < count; ++i) ids[i] = static_cast<uint32_t>(i);
  return format_ids(ids);
}

TEST(Tokenize, PrintsTheIdsOnOneLineWhereverTheTextComesFrom) {
  const auto given = test::run_k3({.args = {"tokenize", kModel, "The capital of France is"}});
  EXPECT_EQ(given.exit_code, 0);
  EXPECT_EQ(given.out, "324,339,274,454,728,365,285\n");
  EXPECT_EQ(given.err, "");
  const auto piped =
      test::run_k3({.args = {"tokenize", kModel, "-"}, .input = "The capital of France is"});
  EXPECT_EQ(piped.out, given.out);
  const auto silent =
      test::run_k3({.args = {"tokenize", kModel}, .input = "The capital of France is"});
  EXPECT_EQ(silent.out, given.out);
}

TEST(Tokenize, TakesTextAsItIsAndPutsNothingBeforeIt) {
  const std::pair<std::string, std::string> cases[] = {
      {"", ""}, {"{}", "123,125"}, {"\"a\"", "34,97,34"}, {"[EOS]", "91,69,79,83,93"}};
  for (const auto& [text, ids] : cases) {
    const auto run = test::run_k3({.args = {"tokenize", kModel, text}, .input = "not this"});
    EXPECT_EQ(run.out, ids + "\n") << text;
  }
  EXPECT_EQ(test::run_k3({.args = {"tokenize", kModel, "--", "-x"}}).out, "45,120\n");
}

TEST(Tokenize, SpecialLiteralsAreSpecialOnRequestOnly) {
  EXPECT_EQ(test::run_k3({.args = {"tokenize", kModel, "[EOS]", "--special"}}).out, "1025\n");
}

TEST(Tokenize, TheLocaleDoesNotMatter) {
  std::vector<std::string> outputs;
  for (const std::string locale : {"C", "C.UTF-8", "tr_TR.UTF-8", "ja_JP.eucJP"}) {
    const auto run =
        test::run_k3({.args = {"tokenize", kModel, kText}, .env = {{"LC_ALL", locale}}});
    EXPECT_EQ(run.exit_code, 0);
    outputs.push_back(run.out);
  }
  for (const std::string& output : outputs) EXPECT_EQ(output, outputs[0]);
}

TEST(Tokenize, InvalidUtf8IsReplacedWithOneWarning) {
  const auto run = test::run_k3({.args = {"tokenize", kModel, "-"},
                                 .input = "a\xE6\xAD"
                                          "b\xFF\xFF"});
  EXPECT_EQ(run.exit_code, 0);
  EXPECT_EQ(run.out, "97,239,191,189,98,239,191,189,239,191,189\n");
  EXPECT_EQ(std::count(run.err.begin(), run.err.end(), '\n'), 1) << run.err;
  EXPECT_NE(run.err.find("3 ill-formed"), std::string::npos) << run.err;
  const auto quiet = test::run_k3({.args = {"tokenize", kModel, "-", "-q"}, .input = "a\xE6\xAD"});
  EXPECT_EQ(quiet.err, "");
}

TEST(Tokenize, JsonIsOneObject) {
  const auto run = test::run_k3({.args = {"tokenize", kModel, "--json", "Hi"}});
  EXPECT_EQ(parse_json(run.out, "output"), Json({{"ids", {72, 105}}}));
}

TEST(Tokenize, ACheckpointWithoutATokenizerIsExitThree) {
  const auto run = test::run_k3({.args = {"tokenize", test::data_dir() / "random-a", "x"}});
  EXPECT_EQ(run.exit_code, 3);
  EXPECT_EQ(run.out, "");
  EXPECT_NE(run.err.find("no tiktoken.model"), std::string::npos) << run.err;
}

TEST(Tokenize, AModelPathOfAnyCharactersWorks) {
  const test::TempDir directory;
  const fs::path model = directory.path() / "a b" / "\u6A21\u578B";
  fs::create_directories(model);
  for (const char* name : {"tiktoken.model", "tokenizer_config.json"}) {
    fs::create_symlink(fs::path(kModel) / name, model / name);
  }
  const std::string expected = test::run_k3({.args = {"tokenize", kModel, kText}}).out;
  for (const std::string& path : {model.string(), model.string() + "//"}) {
    EXPECT_EQ(test::run_k3({.args = {"tokenize", path, kText}}).out, expected);
  }
}

TEST(Detokenize, GivesTheTextBackByteForByte) {
  const std::string ids = test::run_k3({.args = {"tokenize", kModel, kText + "\n"}}).out;
  const auto given = test::run_k3({.args = {"detokenize", kModel, ids.substr(0, ids.size() - 1)}});
  EXPECT_EQ(given.exit_code, 0);
  EXPECT_EQ(given.out, kText + "\n");
  EXPECT_EQ(test::run_k3({.args = {"detokenize", kModel, "-"}, .input = ids}).out, given.out);
  const auto json = test::run_k3({.args = {"detokenize", kModel, "--json", "72,105"}});
  EXPECT_EQ(parse_json(json.out, "output"), Json({{"text", "Hi"}}));
}

TEST(Detokenize, EveryIdIsKnownAndTheNextOneIsExitTwo) {
  EXPECT_EQ(test::run_k3({.args = {"detokenize", kModel, all_ids(1280)}}).exit_code, 0);
  for (const std::string ids : {"1280", "-1", "5,-1", "4294967296", "1,,2", "1,", "x", "1 2"}) {
    const auto run = test::run_k3({.args = {"detokenize", kModel, ids}});
    EXPECT_EQ(run.exit_code, 2) << ids;
    EXPECT_EQ(run.out, "");
    EXPECT_EQ(std::count(run.err.begin(), run.err.end(), '\n'), 1) << run.err;
  }
}

TEST(Detokenize, EveryIdOfTheReleasedVocabularyIsKnown) {
  const fs::path model = test::shared_dir() / "data";
  if (!fs::exists(model / "tiktoken.model")) GTEST_SKIP() << "no released tokenizer at " << model;
  EXPECT_EQ(test::run_k3({.args = {"detokenize", model, "-"}, .input = all_ids(163'840)}).exit_code,
            0);
  EXPECT_EQ(test::run_k3({.args = {"detokenize", model, "163840"}}).exit_code, 2);
}

TEST(ParseIds, BlanksAroundIdsAreAllowedAndNothingIsAnEmptyList) {
  using Ids = std::vector<uint32_t>;
  EXPECT_EQ(parse_ids("1,2,3"), (Ids{1, 2, 3}));
  EXPECT_EQ(parse_ids(" 1, 2 ,\n3\n"), (Ids{1, 2, 3}));
  EXPECT_EQ(parse_ids(" \n"), Ids{});
  EXPECT_EQ(parse_ids("4294967295"), Ids{UINT32_MAX});
  EXPECT_THROW(parse_ids(","), Error);
  EXPECT_THROW(parse_ids("+1"), Error);
}

}  // namespace
}  // namespace k3::commands
