#include "commands/app.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <string>

namespace {

struct RunResult {
  int exit_code;
  std::string output;
};

/// Runs `k3 ARGUMENTS` through a shell; `arguments` may hold redirections.
RunResult run_k3(const std::string& arguments) {
  const std::string command = std::string(K3_BINARY) + " " + arguments;
  std::FILE* pipe = ::popen(command.c_str(), "r");
  RunResult result{-1, ""};
  std::array<char, 4096> buffer;
  while (const size_t got = std::fread(buffer.data(), 1, buffer.size(), pipe)) {
    result.output.append(buffer.data(), got);
  }
  const int status = ::pclose(pipe);
  if (WIFEXITED(status)) result.exit_code = WEXITSTATUS(status);
  return result;
}

size_t count_lines(const std::string& text) {
  return static_cast<size_t>(std::count(text.begin(), text.end(), '\n'));
}

TEST(App, WithoutArgumentsPrintsTheHelpOnStdout) {
  const RunResult help = run_k3("--help 2>/dev/null");
  const RunResult bare = run_k3("2>/dev/null");
  EXPECT_EQ(bare.exit_code, 0);
  EXPECT_EQ(help.exit_code, 0);
  EXPECT_EQ(bare.output, help.output);
  EXPECT_NE(help.output.find("Exit codes: 0 done"), std::string::npos);
}

TEST(App, HelpFitsOneScreen) {
  EXPECT_LE(count_lines(run_k3("--help").output), 40u);
}

TEST(App, HelpOfACommandEndsWithExamples) {
  const RunResult help = run_k3("version --help 2>/dev/null");
  EXPECT_EQ(help.exit_code, 0);
  EXPECT_NE(help.output.find("Usage: k3 version"), std::string::npos) << help.output;
  EXPECT_NE(help.output.find("Examples:\n  k3 version"), std::string::npos) << help.output;
}

TEST(App, UnknownCommandIsOneLineOnStderrAndExitTwo) {
  const RunResult run = run_k3("fly 2>&1 >/dev/null");
  EXPECT_EQ(run.exit_code, 2);
  EXPECT_EQ(count_lines(run.output), 1u);
  EXPECT_NE(run.output.find("fly"), std::string::npos) << run.output;
  EXPECT_NE(run.output.find("k3 --help"), std::string::npos) << run.output;
}

TEST(App, UnknownOptionOfACommandNamesOptionAndCommand) {
  const RunResult run = run_k3("version --fast 2>&1 >/dev/null");
  EXPECT_EQ(run.exit_code, 2);
  EXPECT_EQ(count_lines(run.output), 1u);
  EXPECT_NE(run.output.find("--fast"), std::string::npos) << run.output;
  EXPECT_NE(run.output.find("k3 version --help"), std::string::npos) << run.output;
}

TEST(App, VersionIsAFlagAndACommand) {
  const std::string line = run_k3("--version").output;
  EXPECT_EQ(count_lines(line), 1u);
  EXPECT_EQ(line.substr(0, 3), "k3 ");
  EXPECT_EQ(run_k3("version").output.substr(0, line.size()), line);
}

TEST(App, AReaderThatHasGoneEndsTheProgramQuietly) {
  std::array<int, 2> out;
  std::array<int, 2> err;
  ASSERT_EQ(::pipe(out.data()), 0);
  ASSERT_EQ(::pipe(err.data()), 0);
  ::close(out[0]);  // before the program writes
  const pid_t child = ::fork();
  if (child == 0) {
    ::dup2(out[1], STDOUT_FILENO);
    ::dup2(err[1], STDERR_FILENO);
    ::execl(K3_BINARY, K3_BINARY, "--help", nullptr);
    ::_exit(99);
  }
  ::close(out[1]);
  ::close(err[1]);
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
  char byte;
  EXPECT_EQ(::read(err[0], &byte, 1), 0) << "something was said on stderr";
  ::close(err[0]);
}

TEST(App, AFullDiskBehindStdoutIsExitOneWithOneLine) {
  const RunResult run = run_k3("--help 2>&1 >/dev/full");
  EXPECT_EQ(run.exit_code, 1);
  EXPECT_EQ(count_lines(run.output), 1u);
  EXPECT_NE(run.output.find("No space left"), std::string::npos) << run.output;
}

}  // namespace
