// Reads that never end, as the commands meet them: the program with a reader that injects faults.
// Without an end of the program these tests would end by its being killed, timed out.
#include <gtest/gtest.h>
#include <signal.h>

#include "fault/command_run.h"
#include "support/messages.h"

namespace k3::test {
namespace {

K3Command faulty(std::vector<std::string> args, const std::string& faults) {
  K3Command command{.args = std::move(args)};
  command.program = K3_FAULTY_BINARY;
  command.env = {{"K3_TEST_FAULTS", faults}};
  command.patience = std::chrono::seconds(60);
  return command;
}

std::vector<std::string> generate_args(std::vector<std::string> more = {}) {
  std::vector<std::string> args = {
      "generate", fault_model().string(), "--trunk",  fault_trunk(false).string(),
      "-q",       "--ignore-eos",         "-n",       "40",
      "-p",       "In the beginning",     "--budget", small_budget()};
  args.insert(args.end(), more.begin(), more.end());
  return args;
}

const std::string& whole_text() {
  static const std::string text = run_k3({.args = generate_args()}).out;
  return text;
}

// Reads of the prompt, of the first tokens and of the last ones.
constexpr uint64_t kHangs[] = {1, 30, 1500, 3000};

TEST(HangingReads, AnInterruptLeavesTheTextSoFarOnStdoutAndEndsWith130) {
  for (const uint64_t n : kHangs) {
    SCOPED_TRACE(n);
    const K3Result result =
        run_k3(faulty(generate_args(), "hang_read=" + std::to_string(n) + ",interrupts=1"));
    expect_one_line(result, 130);
    EXPECT_TRUE(mentions(result.err, "interrupted after "));
    EXPECT_TRUE(whole_text().starts_with(result.out));
    EXPECT_EQ(result.out.empty(), n <= 30) << result.out;
  }
}

TEST(HangingReads, AnInterruptSavesTheSequenceFromWhichTheRunGoesOn) {
  const TempDir dir;
  const std::string file = (dir.path() / "talk.k3seq").string();
  const K3Result result =
      run_k3(faulty(generate_args({"--save", file}), "hang_read=1500,interrupts=1"));
  expect_one_line(result, 130);
  EXPECT_TRUE(mentions(result.err, "the sequence up to there is in " + file)) << result.err;
  std::vector<std::string> args = {"generate", fault_model().string(),
                                   "--trunk",  fault_trunk(false).string(),
                                   "-q",       "--ignore-eos",
                                   "-n",       "5",
                                   "--load",   file};
  const K3Result next = run_k3({.args = args});
  EXPECT_EQ(next.exit_code, 0) << next.err;
  EXPECT_TRUE(whole_text().starts_with(result.out + next.out)) << result.out << "|" << next.out;
}

TEST(HangingReads, AnInterruptThatComesTwiceAtOnceLosesNothing) {
  const TempDir dir;
  const std::string file = (dir.path() / "talk.k3seq").string();
  const K3Result result =
      run_k3(faulty(generate_args({"--save", file}), "hang_read=1500,interrupts=2"));
  expect_one_line(result, 130);
  EXPECT_TRUE(mentions(result.err, "the sequence up to there is in " + file)) << result.err;
}

// The other read must be under way whatever the hanging one keeps from being asked for: so are the
// first chunks of a run, and a read before the hanging one.
TEST(HangingReads, AFailureOfAnotherReadEndsTheRunAllTheSame) {
  for (const std::string faults :
       {"hang_read=1,fail_read=2", "hang_read=2,fail_read=3", "hang_read=1502,fail_read=1501"}) {
    SCOPED_TRACE(faults);
    const K3Result result = run_k3(faulty(generate_args(), faults));
    expect_one_line(result, 4);
    EXPECT_TRUE(mentions(result.err, "Input/output error")) << result.err;
    EXPECT_TRUE(whole_text().starts_with(result.out));
    EXPECT_EQ(result.out.empty(), !faults.ends_with("1501")) << result.out;  // or of the prompt
  }
}

TEST(HangingReads, AnInterruptEndsScoreToo) {
  const K3Result result =
      run_k3(faulty({"score", fault_model().string(), "--trunk", fault_trunk(false).string(), "-q",
                     "--budget", small_budget(), fault_model() / "README.md"},
                    "hang_read=40,interrupts=1"));
  expect_one_line(result, 130);
  EXPECT_EQ(result.out, "");
}

}  // namespace
}  // namespace k3::test
