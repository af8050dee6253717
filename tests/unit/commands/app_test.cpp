#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "base/json.h"
#include "commands/interrupts.h"
#include "k3/error.h"
#include "support/run_k3.h"
#include "support/sanitizers.h"
#include "support/test_data.h"

namespace {

using k3::test::data_dir;
using k3::test::K3Command;
using k3::test::K3Result;
using k3::test::kSanitized;
using k3::test::run_k3;

K3Result k3_with(std::vector<std::string> args) {
  return run_k3({.args = std::move(args)});
}

size_t count_lines(const std::string& text) {
  return static_cast<size_t>(std::count(text.begin(), text.end(), '\n'));
}

void expect_one_line(const std::string& text, const std::vector<std::string>& parts) {
  EXPECT_EQ(count_lines(text), 1u) << text;
  for (const std::string& part : parts) EXPECT_NE(text.find(part), std::string::npos) << text;
}

TEST(App, WithoutArgumentsPrintsTheHelpOnStdout) {
  const K3Result help = k3_with({"--help"});
  const K3Result bare = k3_with({});
  EXPECT_EQ(bare.exit_code, 0);
  EXPECT_EQ(help.exit_code, 0);
  EXPECT_EQ(bare.out, help.out);
  EXPECT_EQ(help.err, "");
  EXPECT_NE(help.out.find("Exit codes: 0 done"), std::string::npos);
}

TEST(App, HelpFitsOneScreen) {
  EXPECT_LE(count_lines(k3_with({"--help"}).out), 40u);
}

TEST(App, HelpOfEachCommandHasExamplesAndFitsOneScreen) {
  for (const char* command : {"version", "pack"}) {
    const K3Result help = k3_with({command, "--help"});
    EXPECT_EQ(help.exit_code, 0);
    EXPECT_NE(help.out.find(std::string("Usage: k3 ") + command), std::string::npos) << help.out;
    EXPECT_NE(help.out.find(std::string("Examples:\n  k3 ") + command), std::string::npos)
        << help.out;
    EXPECT_LE(count_lines(help.out), 40u);
  }
}

TEST(App, AnUnknownCommandIsOneLineAndExitTwo) {
  const K3Result result = k3_with({"fly"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_EQ(result.out, "");
  expect_one_line(result.err, {"k3: ", "fly", "k3 --help"});
}

TEST(App, AnUnknownOptionOfACommandNamesOptionAndCommand) {
  const K3Result result = k3_with({"version", "--fast"});
  EXPECT_EQ(result.exit_code, 2);
  expect_one_line(result.err, {"k3: ", "--fast", "k3 version --help"});
}

TEST(App, QuietAndVerboseExcludeEachOther) {
  EXPECT_EQ(k3_with({"version", "-q", "-v"}).exit_code, 2);
  EXPECT_EQ(k3_with({"version", "-q"}).exit_code, 0);
}

TEST(App, VersionIsAFlagAndACommand) {
  const std::string line = k3_with({"--version"}).out;
  expect_one_line(line, {"k3 "});
  EXPECT_EQ(k3_with({"version"}).out.substr(0, line.size()), line);
}

TEST(App, VersionSaysWhichInstructionSetAndBackEndWouldBeUsed) {
  const K3Result result =
      run_k3({.args = {"version", "--json"}, .env = {{"K3_ISA", "scalar"}, {"K3_IO", "pread"}}});
  const k3::Json facts = k3::parse_json(result.out, "stdout");
  EXPECT_EQ(facts.at("isa"), "scalar");
  EXPECT_EQ(facts.at("io"), "pread");
  EXPECT_EQ(facts.at("isas"), k3::Json({"scalar", "avx2", "avx512"}));
}

TEST(App, AForcedInstructionSetThatDoesNotExistIsExitTwo) {
  const K3Result result = run_k3({.args = {"version"}, .env = {{"K3_ISA", "mmx"}}});
  EXPECT_EQ(result.exit_code, 2);
  expect_one_line(result.err, {"k3: ", "mmx"});
}

TEST(App, MemoryThatRunsOutIsExitFiveWithOneLine) {
  if (kSanitized) GTEST_SKIP() << "sanitizers need more address space than this test allows";
  // Enough to start the program; not enough for the text and its ids.
  const K3Result result = run_k3({.args = {"tokenize", (data_dir() / "tiny-k3").string(), "-"},
                                  .input = std::string(32u << 20, 'a'),
                                  .limits = {{RLIMIT_AS, 96u << 20}}});
  EXPECT_EQ(result.exit_code, 5) << result.err;
  EXPECT_EQ(result.out, "");
  expect_one_line(result.err, {"k3: ", "memory ran out"});
}

constexpr int kInterrupts[] = {SIGINT, SIGTERM, SIGHUP};

/// Interrupts itself twice, `apart` from each other; ends with 0 if it outlives that.
[[noreturn]] void interrupt_twice(int signal, std::chrono::milliseconds apart) {
  std::signal(signal, SIG_DFL);  // these tests may run under nohup
  k3::commands::watch_interrupts();
  if (k3::commands::interrupted()) ::_exit(1);
  ::raise(signal);
  if (!k3::commands::interrupted()) ::_exit(2);
  std::this_thread::sleep_for(apart);
  ::raise(signal);
  ::_exit(0);
}

TEST(App, TheFirstInterruptIsNotedAndTheSecondEndsTheProcess) {
  for (const int signal : kInterrupts) {
    EXPECT_EXIT(interrupt_twice(signal, std::chrono::milliseconds(400)),
                testing::ExitedWithCode(128 + signal), "^k3: interrupted again: [^\n]*\n$");
  }
}

TEST(App, AnInterruptThatComesTwiceAtOnceIsOne) {
  for (const int signal : kInterrupts) {
    EXPECT_EXIT(interrupt_twice(signal, std::chrono::milliseconds(0)), testing::ExitedWithCode(0),
                "^$");
  }
}

/// Interrupts its process, if asked to, once everything of ordinary priority has been destroyed.
struct InterruptAtTheEnd {
  bool wanted = false;
  ~InterruptAtTheEnd() {
    if (wanted) ::raise(SIGINT);
  }
};
[[gnu::init_priority(101)]] InterruptAtTheEnd interrupt_at_the_end;

TEST(App, AnInterruptWhileTheProcessEndsIsTheSameLineAndCode) {
  const auto end_with_an_interrupt = [] {
    k3::commands::end_on_interrupt("interrupted; the same command continues");
    interrupt_at_the_end.wanted = true;
    std::exit(0);
  };
  EXPECT_EXIT(end_with_an_interrupt(), testing::ExitedWithCode(130),
              "^k3: interrupted; the same command continues\n$");
}

/// Runs `k3 --help` with this as its stdout; returns the exit code, or -1 for a signal. What it
/// says on stderr is added to `said`.
int help_into(int out, std::string* said) {
  std::array<int, 2> err;
  EXPECT_EQ(::pipe2(err.data(), O_CLOEXEC), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    ::dup2(out, STDOUT_FILENO);
    ::dup2(err[1], STDERR_FILENO);
    ::execl(K3_BINARY, K3_BINARY, "--help", nullptr);
    ::_exit(99);
  }
  ::close(err[1]);
  std::array<char, 4096> buffer;
  while (true) {
    const ssize_t got = ::read(err[0], buffer.data(), buffer.size());
    if (got <= 0) break;
    said->append(buffer.data(), static_cast<size_t>(got));
  }
  ::close(err[0]);
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(App, AReaderThatHasGoneEndsTheProgramQuietly) {
  std::array<int, 2> out;
  ASSERT_EQ(::pipe2(out.data(), O_CLOEXEC), 0);
  ::close(out[0]);  // before the program writes
  std::string said;
  EXPECT_EQ(help_into(out[1], &said), 0);
  EXPECT_EQ(said, "");
  ::close(out[1]);
}

TEST(App, AFullDiskBehindStdoutIsExitOneWithOneLine) {
  const int full = ::open("/dev/full", O_WRONLY | O_CLOEXEC);
  std::string said;
  EXPECT_EQ(help_into(full, &said), 1);
  expect_one_line(said, {"k3: ", "No space left"});
  ::close(full);
}

}  // namespace
