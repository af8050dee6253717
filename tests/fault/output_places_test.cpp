// Where results are asked for: places that hold something else, that another option names, or that
// end up half written.
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <functional>

#include "fault/command_run.h"
#include "support/messages.h"
#include "support/sanitizers.h"

namespace k3::test {
namespace {

namespace fs = std::filesystem;

class OutputPlaces : public testing::Test {
 protected:
  K3Command generate(std::vector<std::string> more) const {
    K3Command command{.args = {"generate", fault_model().string(), "--trunk",
                               fault_trunk(false).string(), "-q", "-n", "2", "--ignore-eos"},
                      .directory = dir_.path()};
    command.args.insert(command.args.end(), more.begin(), more.end());
    return command;
  }
  K3Command pack(const fs::path& trunk) const {
    return {.args = {"pack", fault_model().string(), "-o", trunk.string(), "-q"}};
  }
  /// What all files here hold, by name.
  std::map<std::string, std::string> contents() const {
    std::map<std::string, std::string> all;
    for (const auto& entry : fs::directory_iterator(dir_.path())) {
      all[entry.path().filename().string()] = bytes_of(entry.path());
    }
    return all;
  }

  TempDir dir_;
};

TEST_F(OutputPlaces, AFileOfAnotherOptionIsNeverWrittenOver) {
  std::ofstream(dir_.path() / "prompt") << "";  // empty: what it holds is no reason to keep it
  ASSERT_EQ(run_k3(generate({"-p", "The", "--save", "talk"})).exit_code, 0);
  fs::copy_file(dir_.path() / "talk", dir_.path() / "other.partial");
  fs::create_symlink("talk", dir_.path() / "link");
  const auto before = contents();
  for (const std::vector<std::string>& options : std::vector<std::vector<std::string>>{
           {"-f", "prompt", "--dump-logits", "prompt"},
           {"-f", "prompt", "--dump-logits", "./no/../prompt"},
           {"-f", "prompt", "--save", "prompt"},
           {"--load", "talk", "--dump-logits", "talk"},
           {"--load", "talk", "--dump-logits", "link"},
           {"--load", "other.partial", "--save", "other"},
           {"-f", "other.partial", "--save", "other"},
           {"-p", "The", "--save", "new", "--dump-logits", "new"},
           {"-p", "The", "--save", "new", "--dump-logits", (dir_.path() / "new").string()},
           {"-p", "The", "--save", "new", "--dump-logits", "new.partial"}}) {
    const K3Result result = run_k3(generate(options));
    SCOPED_TRACE(options[1] + " " + options[2] + " " + options[3]);
    expect_one_line(result, 2);
    EXPECT_TRUE(mentions(result.err, "would overwrite")) << result.err;
    EXPECT_EQ(result.out, "");
    EXPECT_TRUE(contents() == before);
  }
  // What --save is for: the conversation goes on in its file.
  EXPECT_EQ(run_k3(generate({"--load", "talk", "-p", "x", "--save", "talk"})).exit_code, 0);
}

TEST_F(OutputPlaces, ADumpReplacesAnEarlierDumpAndNoOtherFile) {
  const std::vector<std::string> dump = {"-p", "The", "--dump-logits", "place"};
  const fs::path place = dir_.path() / "place";
  ASSERT_EQ(run_k3(generate({"-p", "The", "--save", "talk"})).exit_code, 0);
  for (const fs::path& other :
       {dir_.path() / "talk", fault_trunk(false), fault_model() / "config.json",
        fault_model() / "model-00001-of-000014.safetensors"}) {
    fs::copy_file(other, place, fs::copy_options::overwrite_existing);
    const K3Result result = run_k3(generate(dump));
    expect_one_line(result, 2);
    EXPECT_TRUE(mentions(result.err, "is no dump of this model's logits")) << result.err;
    EXPECT_TRUE(bytes_of(place) == bytes_of(other)) << other;
  }
  fs::remove(place);
  ASSERT_EQ(run_k3(generate(dump)).exit_code, 0);
  const std::string first = bytes_of(place);
  ASSERT_EQ(run_k3(generate(dump)).exit_code, 0);
  EXPECT_TRUE(bytes_of(place) == first);
}

TEST_F(OutputPlaces, ADumpThatFailsKeepsWholeRows) {
  constexpr size_t kRow = 1280 * sizeof(float);
  ASSERT_EQ(run_k3(generate({"-p", "The", "--dump-logits", "whole"})).exit_code, 0);
  const std::string whole = bytes_of(dir_.path() / "whole");
  ASSERT_EQ(whole.size(), 2 * kRow);
  for (const size_t rows : {0, 1}) {
    K3Command command = generate({"-p", "The", "--dump-logits", "cut"});
    command.limits = {{RLIMIT_FSIZE, rows * kRow + kRow / 2}};
    const K3Result result = run_k3(command);
    expect_one_line(result, 1);
    EXPECT_TRUE(mentions(result.err, "keeps the " + std::to_string(rows) + " whole rows"));
    EXPECT_TRUE(bytes_of(dir_.path() / "cut") == whole.substr(0, rows * kRow));
  }
}

TEST_F(OutputPlaces, AnEmptyNameIsAUsageErrorOfEveryOptionThatNamesAFile) {
  const std::string model = fault_model().string(), trunk = fault_trunk(false).string();
  for (const std::vector<std::string>& args : std::vector<std::vector<std::string>>{
           {"generate", model, "--trunk", trunk, "-p", "The", "--save", ""},
           {"generate", model, "--trunk", trunk, "-p", "The", "--load", ""},
           {"generate", model, "--trunk", trunk, "-p", "The", "--dump-logits", ""},
           {"generate", model, "--trunk", trunk, "-p", "The", "--prompt-cache", ""},
           {"generate", model, "--trunk", trunk, "-f", ""},
           {"generate", model, "-p", "The", "--trunk", ""},
           {"generate", "", "-p", "The"},
           {"pack", model, "-o", ""},
           {"pack", ""},
           {"verify", model, "--trunk", ""},
           {"plan", model, "--trunk", ""},
           {"doctor", model, "--trunk", ""},
           {"doctor", ""},
           {"score", model, ""},
           {"tokenize", "", "The"}}) {
    SCOPED_TRACE(args[0] + " ... " + args[args.size() - 2]);
    const K3Result result = run_k3({.args = args, .directory = dir_.path()});
    expect_one_line(result, 2);
    EXPECT_TRUE(mentions(result.err, "an empty name")) << result.err;
    EXPECT_EQ(result.out, "");
  }
  EXPECT_TRUE(contents().empty());
}

TEST_F(OutputPlaces, AFileOfSomebodyElseAtThePartialNameOfAPackIsKept) {
  const fs::path trunk = dir_.path() / "t.k3", partial = dir_.path() / "t.k3.partial";
  for (const std::string& bytes :
       {std::string("a letter\n"), std::string("K3"), std::string(100'000, '\0')}) {
    std::ofstream(partial, std::ios::binary | std::ios::trunc) << bytes;
    const K3Result result = run_k3(pack(trunk));
    expect_one_line(result, 2);
    EXPECT_TRUE(mentions(result.err, partial.string())) << result.err;
    EXPECT_TRUE(bytes_of(partial) == bytes);
    EXPECT_FALSE(fs::exists(trunk));
  }
  std::ofstream(partial, std::ios::trunc) << "";
  ASSERT_EQ(run_k3(pack(trunk)).exit_code, 0);
  EXPECT_TRUE(bytes_of(trunk) == bytes_of(fault_trunk(false)));
}

TEST_F(OutputPlaces, APackThatFailsBeforeItsFirstChunkLeavesNoPartialFile) {
  const fs::path trunk = dir_.path() / "t.k3";
  for (const rlim_t limit : {0, 4096, 1'000'000}) {
    K3Command command = pack(trunk);
    command.limits = {{RLIMIT_FSIZE, limit}};
    const K3Result result = run_k3(command);
    expect_one_line(result, 1);
    EXPECT_TRUE(mentions(result.err, "File too large")) << result.err;
    EXPECT_TRUE(contents().empty()) << limit;
  }
}

TEST_F(OutputPlaces, ALimitOfThreadsIsOneLineThatFitsEveryCommandAndLeavesNoFile) {
  if (kSanitized) GTEST_SKIP() << "sanitizers may have threads of their own";
  if (::geteuid() != 0) GTEST_SKIP() << "becoming another user needs root";
  if (run_k3(as_nobody({.args = {"version"}})).exit_code != 0) {
    GTEST_SKIP() << "another user cannot run the program where it lies";
  }
  fs::permissions(dir_.path(), fs::perms::all);
  const std::string model = fault_model().string(), trunk = (dir_.path() / "own.k3").string();
  fs::copy_file(fault_trunk(false), trunk);
  const auto before = contents();
  for (const std::vector<std::string>& args : std::vector<std::vector<std::string>>{
           {"pack", model, "-o", (dir_.path() / "t.k3").string(), "-q"},
           {"verify", model, "--trunk", trunk, "-q"},
           {"generate", model, "--trunk", trunk, "-q", "-p", "The"}}) {
    SCOPED_TRACE(args[0]);
    const K3Result result = run_k3(as_nobody({.args = args, .limits = {{RLIMIT_NPROC, 1}}}));
    expect_one_line(result, 1);
    EXPECT_TRUE(mentions(result.err, "ulimit -u")) << result.err;
    EXPECT_FALSE(mentions(result.err, "(-t)"));
    EXPECT_TRUE(contents() == before);
  }
}

}  // namespace
}  // namespace k3::test
