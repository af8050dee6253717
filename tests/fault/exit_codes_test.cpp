// One example of each exit code: those that docs/reliability.md gives.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <cstdlib>
#include <fstream>

#include "fault/command_run.h"
#include "support/messages.h"
#include "weights/trunk_file.h"

namespace k3::test {
namespace {

namespace fs = std::filesystem;

K3Result generate(std::vector<std::string> more) {
  K3Command command{
      .args = {"generate", fault_model().string(), "--trunk", fault_trunk(false).string(), "-q"}};
  command.args.insert(command.args.end(), more.begin(), more.end());
  return run_k3(command);
}

void expect_code(const K3Result& result, int code, const std::string& message) {
  expect_one_line(result, code);
  EXPECT_TRUE(mentions(result.err, message)) << result.err;
}

TEST(ExitCodes, ZeroIsDone) {
  const K3Result result = generate({"-p", "In the beginning", "-n", "5"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.err, "");
}

TEST(ExitCodes, OneIsAnOutputThatCannotBeWritten) {
  const UniqueFd full(::open("/dev/full", O_WRONLY | O_CLOEXEC));
  K3Command command{.args = {"version"}};
  command.out = full.get();
  expect_code(run_k3(command), 1, "writing the result to stdout failed: No space left on device");
}

TEST(ExitCodes, TwoIsAnOptionThatMakesNoSense) {
  expect_code(generate({"--ids", "1,2", "-c", "200000"}), 2,
              "a context of 200000 is more than the 4096 positions of the model");
}

TEST_F(ModelCopy, ExitCodeThreeIsACheckpointThatIsNotComplete) {
  const std::string name = "model-00003-of-000014.safetensors";
  fs::remove(model_ / name);
  expect_code(run_k3({.args = {"pack", model_.string()}}), 3,
              name + ": No such file or directory; download this shard again");
}

TEST_F(ModelCopy, ExitCodeFourIsAReadThatFailedOrBroughtOtherBytes) {
  const fs::path trunk = dir_.path() / "t.k3";
  fs::copy_file(fault_trunk(false), trunk);
  const auto chunk = weights::TrunkFile::open(trunk).chunks()[40];
  std::fstream file(trunk, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(static_cast<std::streamoff>(chunk.offset));
  file.put('\x55').put('\xaa');
  file.close();
  expect_code(
      run_k3({.args = {"generate", model_.string(), "--trunk", trunk.string(), "--ids", "1"}}), 4,
      "t.k3: the bytes at " + std::to_string(chunk.offset));
}

TEST(ExitCodes, FiveIsABudgetThatCannotBeMet) {
  expect_code(generate({"--ids", "1", "--budget", "1M"}), 5,
              "a budget of 1.00 MB cannot hold this run: ");
}

TEST(ExitCodes, OneHundredAndThirtyIsAnInterruptedRun) {
  K3Process process(
      {.args = {"generate", fault_model().string(), "--trunk", fault_trunk(false).string(), "-q",
                "--ignore-eos", "-n", "1000", "-p", "In the beginning"}});
  process.read_out(20);
  process.send_signal(SIGINT);
  expect_code(process.wait(), 130, "interrupted after ");
}

}  // namespace
}  // namespace k3::test
