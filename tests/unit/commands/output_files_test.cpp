// What --save and --dump-logits do to files that are there already.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "support/engine_runs.h"
#include "support/run_k3.h"

namespace {

namespace fs = std::filesystem;
using namespace k3;        // NOLINT
using namespace k3::test;  // NOLINT

class OutputFiles : public testing::Test {
 protected:
  static void SetUpTestSuite() { packed = new PackedModel("random-a"); }
  static void TearDownTestSuite() { delete packed; }

  static std::string read(const fs::path& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  static K3Result generate(const char* option, const fs::path& file) {
    return run_k3({.args = {"generate", packed->path().string(), "--ids", "1,2,3", "-n", "2", "-q",
                            option, file.string()}});
  }
  static void expect_kept(const char* option, const fs::path& target, const fs::path& kept) {
    const std::string before = read(kept);
    const K3Result result = generate(option, target);
    EXPECT_EQ(result.exit_code, 2) << option << " " << target;
    EXPECT_EQ(result.out, "");
    EXPECT_NE(result.err.find(kept.filename().string()), std::string::npos) << result.err;
    EXPECT_TRUE(read(kept) == before) << kept;
  }

  static inline PackedModel* packed = nullptr;
  TempDir dir;
};

TEST_F(OutputFiles, FilesOfTheModelAreNeverReplaced) {
  for (const char* option : {"--save", "--dump-logits"}) {
    for (const auto& entry : fs::directory_iterator(packed->path())) {
      expect_kept(option, entry.path(), entry.path());
    }
  }
}

TEST_F(OutputFiles, ASequenceReplacesNoFileOfAnotherKind) {
  const fs::path letter = dir.path() / "letter.txt", logits = dir.path() / "logits";
  std::ofstream(letter) << "Dear reader, these are words, and not what a run leaves.\n";
  ASSERT_EQ(generate("--dump-logits", logits).exit_code, 0);
  for (const fs::path& kept : {letter, logits}) expect_kept("--save", kept, kept);
}

TEST_F(OutputFiles, AnUnfinishedFileOfAnotherKindBesideTheTargetIsKept) {
  const fs::path unfinished = dir.path() / "trunk.k3.partial";
  fs::copy(packed->path() / "trunk.k3", unfinished);
  expect_kept("--save", dir.path() / "trunk.k3", unfinished);
}

TEST_F(OutputFiles, EarlierOnesOfTheSameKindAndEmptyOnesAreReplaced) {
  for (const char* option : {"--save", "--dump-logits"}) {
    const fs::path file = dir.path() / option;
    std::ofstream(file) << "";
    ASSERT_EQ(generate(option, file).exit_code, 0);
    const std::string first = read(file);
    fs::copy(file, file.string() + ".partial");  // as a killed run leaves
    const K3Result again = generate(option, file);
    EXPECT_EQ(again.exit_code, 0) << again.err;
    EXPECT_FALSE(first.empty());
    EXPECT_TRUE(read(file) == first);
  }
}

}  // namespace
