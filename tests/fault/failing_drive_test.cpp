// A drive that fails one read of a whole command, whichever it is: what opening, planning, packing,
// loading and the run itself read.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <fstream>
#include <functional>
#include <iterator>
#include <regex>

#include "fault/command_run.h"
#include "support/checkpoint_maker.h"
#include "support/messages.h"

namespace k3::test {
namespace {

namespace fs = std::filesystem;

constexpr const char* kTokenizerFiles[] = {"tiktoken.model", "tokenizer_config.json"};

std::string bytes_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// A model of few bytes that knows the tokens of tiny-k3, and its trunk file.
class FailingDrive : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    dir_ = std::make_unique<TempDir>();
    Json config = three_layer_config();
    const Json tiny = Json::parse(bytes_of(fault_model() / "config.json"));
    config["text_config"]["vocab_size"] = tiny["text_config"]["vocab_size"];
    make_checkpoint(model(), {.config = config});
    for (const char* name : kTokenizerFiles) fs::copy(fault_model() / name, model() / name);
    ASSERT_EQ(run_k3({.args = pack_args(trunk())}).exit_code, 0);
  }
  static void TearDownTestSuite() { dir_.reset(); }

  static fs::path model() { return dir_->path() / "model"; }
  static fs::path trunk() { return dir_->path() / "t.k3"; }
  static std::vector<std::string> pack_args(const fs::path& target,
                                            const std::vector<std::string>& more = {}) {
    std::vector<std::string> args = {"pack", model().string(),     "-o",
                                     target, "--expert-checksums", "-q"};
    args.insert(args.end(), more.begin(), more.end());
    return args;
  }
  static std::vector<std::string> run_args(const std::string& command,
                                           const std::vector<std::string>& more) {
    std::vector<std::string> args = {command, model().string(), "--trunk", trunk().string()};
    args.insert(args.end(), more.begin(), more.end());
    return args;
  }

  /// Runs the command with read 1, 2, ... of the process failing until a run has no such read, and
  /// returns how that one ended. The others must say what was read where, with exit code 4.
  static K3Result fail_every_read(
      const std::vector<std::string>& args,
      const std::function<void(const K3Result&)>& check = [](const K3Result&) {}) {
    const fs::path note = dir_->path() / "failed";
    const std::regex form(
        R"((?:.|\n)*reading (/\S+) at \d+ \(\d+ bytes, [^)]+\): Input/output error at \d+; (?:.|\n)*)");
    for (uint64_t n = 1;; ++n) {
      SCOPED_TRACE(n);
      fs::remove(note);
      const std::string fault = fmt::format("{}:{}", n, note.string());
      const K3Result result = run_k3(
          {.args = args, .env = {{"K3_TEST_FAIL_PREAD", fault}}, .program = K3_FAULTY_BINARY});
      if (!fs::exists(note)) {
        EXPECT_GT(n, 2u);
        return result;
      }
      expect_one_line(result, 4);
      std::smatch parts;
      EXPECT_TRUE(std::regex_match(result.err, parts, form)) << result.err;
      EXPECT_TRUE(fs::exists(parts[1].str())) << result.err;
      check(result);
      if (HasFailure()) return result;
    }
  }
  /// Of a run without a fault.
  static std::string output_of(const std::vector<std::string>& args) {
    return run_k3({.args = args, .program = K3_FAULTY_BINARY}).out;
  }
  static void expect_ends_as_without_faults(const std::vector<std::string>& args) {
    const std::string whole = output_of(args);
    const K3Result last = fail_every_read(args, [&](const K3Result& result) {
      EXPECT_TRUE(whole.starts_with(result.out)) << result.out;
      EXPECT_LT(result.out.size(), whole.size());
    });
    EXPECT_EQ(last.exit_code, 0) << last.err;
    EXPECT_EQ(last.out, whole);
  }

  static inline std::unique_ptr<TempDir> dir_;
};

/// The old file as it was; or the whole new one, where it could not be read back for the report.
void expect_old_or_reported(const K3Result& result, const fs::path& target, const std::string& old,
                            const std::string& whole) {
  const std::string now = bytes_of(target);
  if (now == old) return;
  EXPECT_TRUE(now == whole);
  EXPECT_TRUE(mentions(result.err, "reading " + target.string() + " at "));
}

TEST_F(FailingDrive, PackingLeavesNoTrunkFileAndGoesOnAfterwardsToTheSameOne) {
  const fs::path target = dir_->path() / "new.k3";
  const auto expect_whole = [&](const K3Result& result) {
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_TRUE(bytes_of(target) == bytes_of(trunk()));
    fs::remove(target);
  };
  expect_whole(fail_every_read(pack_args(target), [&](const K3Result& failed) {
    expect_old_or_reported(failed, target, "", bytes_of(trunk()));
    expect_whole(run_k3({.args = pack_args(target)}));
  }));
}

TEST_F(FailingDrive, ReplacingATrunkFileLeavesTheOldOne) {
  const fs::path target = dir_->path() / "old.k3";
  ASSERT_EQ(run_k3({.args = pack_args(target, {"--codec", "raw"})}).exit_code, 0);
  const std::string old = bytes_of(target);
  ASSERT_FALSE(old == bytes_of(trunk()));
  const K3Result last =
      fail_every_read(pack_args(target, {"--force"}), [&](const K3Result& failed) {
        expect_old_or_reported(failed, target, old, bytes_of(trunk()));
        fs::remove(dir_->path() / "old.k3.partial");
      });
  EXPECT_EQ(last.exit_code, 0) << last.err;
  EXPECT_TRUE(bytes_of(target) == bytes_of(trunk()));
}

TEST_F(FailingDrive, PackingWhatIsPackedLeavesIt) {
  const std::string packed = bytes_of(trunk());
  const K3Result last = fail_every_read(
      pack_args(trunk()), [&](const K3Result&) { EXPECT_TRUE(bytes_of(trunk()) == packed); });
  EXPECT_EQ(last.exit_code, 0) << last.err;
}

TEST_F(FailingDrive, PackVerifyEndsLikewise) {
  const fs::path target = dir_->path() / "verified.k3";
  const K3Result last = fail_every_read(pack_args(target, {"--verify"}), [&](const K3Result&) {
    EXPECT_TRUE(!fs::exists(target) || bytes_of(target) == bytes_of(trunk()));
    fs::remove(target);
    fs::remove(dir_->path() / "verified.k3.partial");
  });
  EXPECT_EQ(last.exit_code, 0) << last.err;
}

TEST_F(FailingDrive, PlanEndsWithExitCodeFour) {
  const K3Result last =
      fail_every_read(run_args("plan", {"--budget", "1G", "--disk-gbps", "1", "-c", "64"}),
                      [](const K3Result& result) { EXPECT_EQ(result.out, ""); });
  EXPECT_EQ(last.exit_code, 0) << last.err;
}

TEST_F(FailingDrive, TokenizeEndsWithExitCodeFour) {
  expect_ends_as_without_faults({"tokenize", model().string(), "In the beginning"});
}

TEST_F(FailingDrive, GenerateEndsWithExitCodeFourAfterTheTextBefore) {
  expect_ends_as_without_faults(
      run_args("generate", {"-p", "In the", "-n", "3", "--ignore-eos", "-q"}));
}

TEST_F(FailingDrive, GenerateFromASavedSequenceEndsLikewise) {
  const std::string saved = (dir_->path() / "saved.k3seq").string();
  ASSERT_EQ(run_k3({.args = run_args("generate", {"-p", "In the", "-n", "2", "--ignore-eos", "-q",
                                                  "--save", saved})})
                .exit_code,
            0);
  expect_ends_as_without_faults(
      run_args("generate", {"--load", saved, "-n", "2", "--ignore-eos", "-q"}));
}

TEST_F(FailingDrive, ScoreEndsWithExitCodeFourAndNoScore) {
  const std::string text = (dir_->path() / "text").string();
  std::ofstream(text) << "In the beginning";
  const auto args = run_args("score", {text, "-q"});
  const K3Result last =
      fail_every_read(args, [](const K3Result& result) { EXPECT_EQ(result.out, ""); });
  EXPECT_EQ(last.out, output_of(args));
}

}  // namespace
}  // namespace k3::test
