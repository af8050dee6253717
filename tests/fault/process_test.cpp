// What surrounds the process: signals, streams, limits, paths, other processes.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <map>
#include <stdexcept>
#include <thread>

#include "base/unique_fd.h"
#include "fault/command_run.h"
#include "support/messages.h"
#include "support/sanitizers.h"

namespace k3::test {
namespace {

namespace fs = std::filesystem;

bool same_bytes(const fs::path& a, const fs::path& b) {
  std::ifstream first(a, std::ios::binary), second(b, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(first), {}) ==
         std::string(std::istreambuf_iterator<char>(second), {});
}

K3Command long_text(const std::string& tokens = "300") {
  return {.args = {"generate", fault_model().string(), "--trunk", fault_trunk(false).string(), "-q",
                   "--ignore-eos", "-n", tokens, "-p", "In the beginning"}};
}

TEST(Process, AnInterruptLeavesTheTextSoFarOnStdoutAndEndsWithTheCodeOfItsSignal) {
  const std::string whole = run_k3(long_text()).out;
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    SCOPED_TRACE(signal);
    K3Process process(long_text());
    process.read_out(20);
    process.send_signal(signal);
    const K3Result result = process.wait();
    expect_one_line(result, 128 + signal);
    EXPECT_TRUE(mentions(result.err, "interrupted after "));
    EXPECT_GE(result.out.size(), 20u);
    EXPECT_LT(result.out.size(), whole.size());
    EXPECT_TRUE(whole.starts_with(result.out));
  }
}

TEST(Process, AnInterruptOfWhateverSignalSavesTheSequence) {
  const TempDir dir;
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    SCOPED_TRACE(signal);
    const fs::path file = dir.path() / std::to_string(signal);
    K3Command command = long_text();
    command.args.insert(command.args.end(), {"--save", file.string()});
    K3Process process(command);
    process.read_out(20);
    process.send_signal(signal);
    const K3Result result = process.wait();
    expect_one_line(result, 128 + signal);
    EXPECT_TRUE(mentions(result.err, "the sequence up to there is in " + file.string()));
    EXPECT_TRUE(fs::exists(file));
  }
}

/// A pipe of one page that nobody reads.
struct UnreadPipe {
  UniqueFd read;
  UniqueFd write;
  UnreadPipe() {
    std::array<int, 2> ends{};
    if (::pipe2(ends.data(), O_CLOEXEC) != 0) throw std::runtime_error("pipe2");
    read.reset(ends[0]);
    write.reset(ends[1]);
    ::fcntl(ends[1], F_SETPIPE_SZ, 4096);
  }
  void wait_until_it_holds(int bytes) const {
    int held = 0;
    for (int waits = 0; held < bytes && waits < 60'000; ++waits) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      if (::ioctl(read.get(), FIONREAD, &held) != 0) throw std::runtime_error("FIONREAD");
    }
    ASSERT_GE(held, bytes);
  }
};

TEST(Process, AnInterruptWhileNobodyReadsStdoutSavesAndEndsWith130) {
  const TempDir dir;
  const UnreadPipe pipe;
  const fs::path file = dir.path() / "talk";
  K3Command command = long_text();
  command.args.insert(command.args.end(), {"--save", file.string()});
  command.out = pipe.write.get();
  K3Process process(command);
  pipe.wait_until_it_holds(1);
  std::this_thread::sleep_for(std::chrono::milliseconds(100));  // by then it waits, most likely
  process.send_signal(SIGINT);
  const K3Result result = process.wait();
  expect_one_line(result, 130);
  EXPECT_TRUE(mentions(result.err, "the sequence up to there is in " + file.string()));
  EXPECT_TRUE(fs::exists(file));
}

TEST(Process, AnInterruptOfAResultThatNobodyReadsEndsWith130AndSaysSo) {
  const UnreadPipe pipe;
  K3Command command = long_text("600");
  command.args.push_back("--json");
  command.out = pipe.write.get();
  K3Process process(command);
  pipe.wait_until_it_holds(4096);
  process.send_signal(SIGINT);
  const K3Result result = process.wait();
  expect_one_line(result, 130);
  EXPECT_TRUE(mentions(result.err, "stdout was not read"));
}

TEST(Process, AReaderThatGoesAwayEndsTheRunQuietly) {
  K3Process process(long_text());
  process.read_out(1);
  process.close_out();
  const K3Result result = process.wait();
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.err, "");
}

TEST(Process, StartedWithInterruptsIgnoredItGoesOnIgnoringThem) {
  const std::string whole = run_k3(long_text()).out;
  K3Command command = long_text();
  command.ignores_interrupts = true;
  K3Process process(command);
  process.read_out(20);
  process.send_signal(SIGINT);
  const K3Result result = process.wait();
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.out, whole);
}

/// Exit code of a line of shell.
int shell(const std::string& line) {
  return WEXITSTATUS(std::system(line.c_str()));
}

TEST(Process, StandardStreamsThatAreClosedGetNoOtherFilesAndNoOtherFileGetsTheResult) {
  const TempDir dir;
  const std::string trunk = (dir.path() / "t.k3").string();
  const std::string pack =
      std::string(K3_BINARY) + " pack '" + fault_model().string() + "' -o '" + trunk + "' --force";
  const std::string generate = std::string(K3_BINARY) + " generate '" + fault_model().string() +
                               "' --trunk '" + trunk + "' -p The -n 3";
  for (const char* closed : {" >&-", " 2>&-", " <&-", " <&- >&-", " <&- >&- 2>&-"}) {
    SCOPED_TRACE(closed);
    const std::string quiet = std::string(closed).find(">&-") == std::string::npos ? " 2>&1" : "";
    EXPECT_EQ(shell(pack + " > /dev/null" + quiet + closed), 0);
    EXPECT_TRUE(same_bytes(trunk, fault_trunk(false)));
    EXPECT_EQ(shell(generate + " > /dev/null" + quiet + closed), 0);
  }
}

TEST(Process, AFullDiskBehindStderrCostsWhatWouldBeSaidThereAlone) {
  const std::string generate = std::string(K3_BINARY) + " generate '" + fault_model().string() +
                               "' --trunk '" + fault_trunk(false).string() + "' -p The -n 3";
  EXPECT_EQ(shell(generate + " > /dev/null 2> /dev/full"), 0);
}

TEST(Process, FewDescriptorsAndLittleLockedMemoryChangeNothing) {
  for (const char* io : {"uring", "pread"}) {
    K3Command command = generate_command(fault_model());
    command.env = {{"K3_IO", io}};
    command.limits = {{RLIMIT_NOFILE, 64}, {RLIMIT_MEMLOCK, 65536}};
    EXPECT_EQ(receipt_of(run_k3(command)), undisturbed_receipt()) << io;
  }
}

TEST(Process, ALimitOfAddressSpaceIsMetOrRefusedInOneLine) {
  if (kSanitized) GTEST_SKIP() << "sanitizers need address space of their own";
  size_t refused = 0;
  for (rlim_t limit = 24'000'000; limit < 400'000'000; limit += limit / 3) {
    K3Command command = generate_command(fault_model(), {"--budget", "30M"});
    command.limits = {{RLIMIT_AS, limit}};
    const K3Result result = run_k3(command);
    if (result.exit_code == 127) continue;  // the loader itself found no room
    if (result.exit_code == 0) {
      EXPECT_EQ(receipt_of(result), undisturbed_receipt());
    } else {
      expect_one_line(result, 5);
      ++refused;
    }
  }
  EXPECT_GT(refused, 0u);
}

TEST_F(ModelCopy, ALimitOfTheStackIsMetOrRefusedInOneLine) {
  if (kSanitized) GTEST_SKIP() << "sanitizers need a stack of their own";
  const std::string trunk = fault_trunk(false).string(), model = model_.string();
  size_t refused = 0;
  for (rlim_t limit = 16 << 10; limit <= 2 << 20; limit *= 2) {
    SCOPED_TRACE(limit);
    K3Command command = generate_command(model_);
    command.limits = {{RLIMIT_STACK, limit}};
    const K3Result result = run_k3(command);
    if (result.exit_code == 0) {
      EXPECT_EQ(receipt_of(result), undisturbed_receipt());
    } else {
      expect_one_line(result, 5);
      EXPECT_TRUE(mentions(result.err, "ulimit -s")) << result.err;
      ++refused;
    }
    for (const std::vector<std::string>& args : std::vector<std::vector<std::string>>{
             {"score", model, "--trunk", trunk, "--ids", "1,2", "-q"},
             {"pack", model, "-o", (dir_.path() / "t.k3").string(), "--force", "-q"},
             {"tokenize", model, "-"},
             {"verify", model, "--trunk", trunk, "-q"}}) {
      const K3Result other = run_k3({.args = args, .limits = command.limits});
      EXPECT_EQ(other.exit_code, result.exit_code) << args[0] << ": signal " << other.signal;
    }
  }
  EXPECT_GT(refused, 0u);
  EXPECT_LT(refused, 8u);
}

TEST(Process, TwoRunsOnOneTrunkFileAreBothRight) {
  K3Process first(generate_command(fault_model()));
  K3Process second(generate_command(fault_model()));
  EXPECT_EQ(receipt_of(first.wait()), undisturbed_receipt());
  EXPECT_EQ(receipt_of(second.wait()), undisturbed_receipt());
}

TEST_F(ModelCopy, PathsOfAnyFormLeadToTheSameBits) {
  const fs::path odd = dir_.path() / "a b" / "模型";
  fs::create_directories(odd.parent_path());
  fs::rename(model_, odd);
  for (const std::string& path : {odd.string(), odd.string() + "//", std::string("a b/模型/")}) {
    K3Command command = generate_command(path);
    command.directory = dir_.path();
    command.env = {{"LC_ALL", "C"}};
    EXPECT_EQ(receipt_of(run_k3(command)), undisturbed_receipt()) << path;
  }
}

/// Every entry of a directory with its bytes' size and the time of its last change.
std::map<std::string, std::pair<uintmax_t, fs::file_time_type>> listing(const fs::path& directory) {
  std::map<std::string, std::pair<uintmax_t, fs::file_time_type>> entries;
  for (const auto& entry : fs::recursive_directory_iterator(directory)) {
    const uintmax_t bytes = entry.is_directory() ? 0 : entry.file_size();
    entries[entry.path().string()] = {bytes, entry.last_write_time()};
  }
  return entries;
}

TEST_F(ModelCopy, NothingIsWrittenBesideTheModelButTheTrunkFileWhenAskedFor) {
  const auto before = listing(model_);
  const fs::file_time_type touched = fs::last_write_time(model_);
  const std::string elsewhere = (dir_.path() / "t.k3").string(), model = model_.string();
  for (const std::vector<std::string>& args : std::vector<std::vector<std::string>>{
           {"pack", model, "-o", elsewhere},
           {"verify", model},
           {"tokenize", model, "text"},
           {"generate", model, "--trunk", elsewhere, "-p", "The", "-n", "2"},
           {"score", model, "--trunk", elsewhere, fault_model() / "README.md"},
           {"generate", model, "-p", "The"}}) {
    run_k3({.args = args});
    EXPECT_EQ(listing(model_), before) << args[0];
    EXPECT_EQ(fs::last_write_time(model_), touched) << args[0];
  }
}

TEST_F(ModelCopy, NoOptionWritesOverTheModelOrItsTrunkFile) {
  const fs::path trunk = dir_.path() / "t.k3", blob = dir_.path() / "blob";
  fs::copy_file(fault_trunk(false), trunk);
  const fs::path shard = model_ / "model-00003-of-000014.safetensors";
  fs::rename(shard, blob);
  fs::create_symlink(blob, shard);
  const auto before = listing(dir_.path());
  for (const char* option : {"--save", "--dump-logits", "--prompt-cache"}) {
    for (const fs::path& place : {trunk, blob, shard, model_ / "new", model_, model_ / "../t.k3"}) {
      SCOPED_TRACE(option + (" " + place.string()));
      K3Command command = generate_command(model_, {option, place.string()});
      command.args[command.args.size() - 3] = trunk.string();
      expect_one_line(run_k3(command), 2);
      EXPECT_EQ(listing(dir_.path()), before);
    }
  }
}

TEST_F(ModelCopy, AnotherUserReadsAModelThatNobodyMayWrite) {
  if (::geteuid() != 0) GTEST_SKIP() << "becoming another user needs root";
  const std::string user = "setpriv --reuid 65534 --regid 65534 --clear-groups ";
  if (std::system((user + K3_BINARY + " version > /dev/null 2>&1").c_str()) != 0) {
    GTEST_SKIP() << "another user cannot run the program where it lies";
  }
  ASSERT_EQ(std::system(("chmod -R a=rX '" + model_.string() + "'").c_str()), 0);
  fs::permissions(dir_.path(), fs::perms::all);
  const std::string trunk = (dir_.path() / "t.k3").string(), out = (dir_.path() / "out").string();
  const std::string pack = user + K3_BINARY + " pack '" + model_.string() + "'";
  EXPECT_EQ(WEXITSTATUS(std::system((pack + " 2> '" + out + "'").c_str())), 2);
  std::ifstream refusal(out);
  EXPECT_TRUE(mentions(std::string(std::istreambuf_iterator<char>(refusal), {}), "-o"));
  ASSERT_EQ(std::system((pack + " -o '" + trunk + "' > /dev/null").c_str()), 0);
  K3Command command = generate_command(model_);
  command.args.back() = trunk;
  std::string line = user + K3_BINARY;
  for (const std::string& arg : command.args) line += " '" + arg + "'";
  ASSERT_EQ(std::system((line + " > '" + out + "'").c_str()), 0);
  std::ifstream file(out);
  EXPECT_EQ(Json::parse(file).at("receipt"), undisturbed_receipt());
}

TEST_F(ModelCopy, WithoutProcABudgetIsAllThatIsNeeded) {
  if (kSanitized) GTEST_SKIP() << "sanitizers need /proc of their own";
  if (::geteuid() != 0) GTEST_SKIP() << "hiding /proc needs a mount namespace, which needs root";
  if (std::system("unshare -m umount -l /proc 2>/dev/null") != 0) {
    GTEST_SKIP() << "no mount namespace can be made here";
  }
  const std::string out = (dir_.path() / "out").string();
  std::string line = K3_BINARY;
  for (const std::string& arg :
       generate_command(fault_model(), {"--budget", budget_text(200'000'000)}).args) {
    line += " '" + arg + "'";
  }
  const std::string script = "umount -l /proc; " + line + " > '" + out + "'";
  ASSERT_EQ(std::system(("unshare -m sh -c \"" + script + "\"").c_str()), 0);
  std::ifstream file(out);
  EXPECT_EQ(Json::parse(file).at("receipt"), undisturbed_receipt());
}

}  // namespace
}  // namespace k3::test
