// Where results go: a reader that has gone, a full disk, a pipe that does not block. Nothing that
// was asked for is lost because something else cannot be written.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <array>
#include <fstream>
#include <thread>

#include "fault/command_run.h"
#include "support/messages.h"

namespace k3::test {
namespace {

namespace fs = std::filesystem;

K3Command text_run(std::vector<std::string> more) {
  K3Command command{.args = {"generate", fault_model().string(), "--trunk",
                             fault_trunk(false).string(), "-q", "--ignore-eos", "-p",
                             "In the beginning"}};
  command.args.insert(command.args.end(), more.begin(), more.end());
  return command;
}

TEST(Streams, WhenTheReaderGoesAwayTheSequenceIsStillSaved) {
  const TempDir dir;
  const std::string file = (dir.path() / "talk.k3seq").string();
  K3Process process(text_run({"-n", "300", "--save", file}));
  process.read_out(1);
  process.close_out();
  const K3Result result = process.wait();
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.err, "");
  const K3Result next =
      run_k3({.args = {"generate", fault_model().string(), "--trunk", fault_trunk(false).string(),
                       "-q", "--ignore-eos", "-n", "5", "--load", file}});
  EXPECT_EQ(next.exit_code, 0) << next.err;
  EXPECT_FALSE(next.out.empty());
}

TEST(Streams, AFullDiskBehindStdoutTakesNoSavedSequenceAlong) {
  for (const bool json : {false, true}) {
    const TempDir dir;
    const fs::path file = dir.path() / "talk.k3seq";
    const UniqueFd full(::open("/dev/full", O_WRONLY | O_CLOEXEC));
    K3Command command = text_run({"-n", "5", "--save", file.string()});
    if (json) command.args.push_back("--json");
    command.out = full.get();
    EXPECT_EQ(run_k3(command).exit_code, 1) << json;
    EXPECT_TRUE(fs::exists(file)) << json;
  }
}

TEST(Streams, AStdoutOpenForReadingAloneIsAnErrorAndOneThatWasClosedIsNone) {
  const UniqueFd readable(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  for (const std::vector<std::string>& args :
       std::vector<std::vector<std::string>>{{"version"}, {"--help"}, text_run({"-n", "2"}).args}) {
    K3Command command{.args = args};
    command.out = readable.get();
    const K3Result lost = run_k3(command);
    expect_one_line(lost, 1);
    EXPECT_TRUE(mentions(lost.err, "writing the result to stdout failed")) << lost.err;
    std::string line = "exec \"$0\" \"$@\" >&-";
    command = {.args = {"-c", line, K3_BINARY}, .program = "/bin/sh"};
    command.args.insert(command.args.end(), args.begin(), args.end());
    const K3Result quiet = run_k3(command);
    EXPECT_EQ(quiet.exit_code, 0);
    EXPECT_EQ(quiet.err, "");
  }
}

TEST(Streams, AFileThatCannotBeSavedTakesNoJsonAlong) {
  const TempDir dir;
  K3Command command = text_run({"-n", "5", "--json", "--save", (dir.path() / "s").string()});
  // Room for the logits of a run, not for its states.
  command.limits = {{RLIMIT_FSIZE, 100'000}};
  const K3Result result = run_k3(command);
  EXPECT_NE(result.exit_code, 0);
  EXPECT_EQ(Json::parse(result.out).at("ids").size(), 5u);
}

class Verdicts : public ModelCopy {};

TEST_F(Verdicts, ThatNobodyReadsAreStillInTheExitCode) {
  fs::remove(model_ / "model-00001-of-000014.safetensors");
  for (const char* command : {"verify", "doctor"}) {
    std::array<int, 2> ends{};
    ASSERT_EQ(::pipe2(ends.data(), O_CLOEXEC), 0);
    ::close(ends[0]);
    const UniqueFd nobody(ends[1]);
    K3Command run{.args = {command, model_.string()}};
    run.out = nobody.get();
    EXPECT_EQ(run_k3(run).exit_code, 3) << command;
  }
}

TEST(Streams, APipeThatDoesNotBlockGetsEverything) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe2(ends.data(), O_CLOEXEC), 0);
  const UniqueFd read_end(ends[0]);
  UniqueFd write_end(ends[1]);
  ASSERT_GE(::fcntl(write_end.get(), F_SETPIPE_SZ, 4096), 4096);
  ASSERT_EQ(::fcntl(write_end.get(), F_SETFL, O_NONBLOCK), 0);
  std::string ids = "1";
  for (int i = 0; i < 8000; ++i) ids += ",1";  // far more text than the pipe holds
  K3Command command{.args = {"detokenize", fault_model().string(), ids}};
  const std::string whole = run_k3(command).out;
  command.out = write_end.get();
  K3Process process(command);
  write_end.reset();
  std::this_thread::sleep_for(std::chrono::milliseconds(200));  // the pipe is full by now
  std::string got;
  std::array<char, 4096> buffer;
  for (ssize_t n; (n = ::read(read_end.get(), buffer.data(), buffer.size())) > 0;) {
    got.append(buffer.data(), static_cast<size_t>(n));
  }
  EXPECT_EQ(process.wait().exit_code, 0);
  EXPECT_EQ(got, whole);
  EXPECT_GT(got.size(), 4096u);
}

TEST(Streams, AfterAFailureTheJsonObjectHoldsWhatThereIsAndSaysWhy) {
  K3Command command = text_run({"-n", "40", "--budget", small_budget(), "--json"});
  command.program = K3_FAULTY_BINARY;
  command.env = {{"K3_TEST_FAULTS", "fail_read=1500"}};
  const K3Result result = run_k3(command);
  expect_one_line(result, 4);
  const Json json = Json::parse(result.out);
  EXPECT_GT(json.at("ids").size(), 0u);
  EXPECT_FALSE(json.at("text").get<std::string>().empty());
  EXPECT_TRUE(json.at("finish_reason").is_null());
  EXPECT_TRUE(mentions(json.at("error").get<std::string>(), "Input/output error"));
}

}  // namespace
}  // namespace k3::test
