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
#include <map>
#include <stdexcept>
#include <thread>

#include "base/unique_fd.h"
#include "engine/snapshot.h"
#include "fault/command_run.h"
#include "support/messages.h"
#include "support/sanitizers.h"

namespace k3::test {
namespace {

namespace fs = std::filesystem;

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

TEST(Process, AReaderThatGoesAwayEndsTheRunQuietlyAndSoon) {
  const TempDir dir;
  const std::string saved = (dir.path() / "talk").string();
  K3Command command = long_text("3900");
  command.args.insert(command.args.end(), {"--save", saved});
  K3Process process(command);
  process.read_out(1);
  process.close_out();
  const K3Result result = process.wait();
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.err, "");
  EXPECT_LT(engine::SnapshotReader(saved).ids().size(), 2000u);
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
    EXPECT_TRUE(bytes_of(trunk) == bytes_of(fault_trunk(false)));
    EXPECT_EQ(shell(generate + " > /dev/null" + quiet + closed), 0);
  }
}

TEST(Process, AFullDiskBehindStderrCostsWhatWouldBeSaidThereAlone) {
  const std::string generate = std::string(K3_BINARY) + " generate '" + fault_model().string() +
                               "' --trunk '" + fault_trunk(false).string() + "' -p The -n 3";
  EXPECT_EQ(shell(generate + " > /dev/null 2> /dev/full"), 0);
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

TEST(Process, AnyLocaleReadsTheSamePromptFromArgumentsFilesAndStandardInput) {
  const TempDir dir;
  const std::string text = "Un petit chaton très mignon 你好 — ’tis 🐈";
  std::ofstream(dir.path() / "提示") << text;
  const auto prompt_ids = [&](const char* locale, std::vector<std::string> prompt) {
    K3Command command{.args = {"generate", fault_model().string(), "--trunk",
                               fault_trunk(false).string(), "-q", "-n", "1", "--json"},
                      .input = text,
                      .env = {{"LC_ALL", locale}},
                      .directory = dir.path()};
    command.args.insert(command.args.end(), prompt.begin(), prompt.end());
    const Json json = Json::parse(run_k3(command).out);
    return std::pair(json.at("prompt_ids").dump(), json.at("receipt").get<std::string>());
  };
  const auto expected = prompt_ids("C.UTF-8", {"-p", text});
  EXPECT_GT(expected.first.size(), text.size());  // no character is lost, or they were few ids
  for (const char* locale : {"C", "POSIX", "C.UTF-8", "no_LOCALE", ""}) {
    EXPECT_EQ(prompt_ids(locale, {"-p", text}), expected) << locale;
    EXPECT_EQ(prompt_ids(locale, {"-f", "提示"}), expected) << locale;
    EXPECT_EQ(prompt_ids(locale, {"-f", "-"}), expected) << locale;
  }
}

/// Every entry of a directory with what it holds and the time of its last change.
std::map<std::string, std::pair<std::string, fs::file_time_type>> listing(
    const fs::path& directory) {
  std::map<std::string, std::pair<std::string, fs::file_time_type>> entries;
  for (const auto& entry : fs::recursive_directory_iterator(directory)) {
    const std::string bytes = entry.is_directory() ? "" : bytes_of(entry.path());
    entries[entry.path().string()] = {bytes, entry.last_write_time()};
  }
  return entries;
}

TEST_F(ModelCopy, NothingIsWrittenBesideTheModelButTheTrunkFileWhenAskedFor) {
  const auto before = listing(model_);
  const fs::file_time_type touched = fs::last_write_time(model_);
  const std::string m = model_.string(), t = (dir_.path() / "t.k3").string();
  const std::string save = (dir_.path() / "talk").string();
  const std::vector<std::string> generate = {"generate", m, "--trunk", t, "-n", "2"};
  const auto with = [](std::vector<std::string> args, const std::vector<std::string>& more) {
    args.insert(args.end(), more.begin(), more.end());
    return args;
  };
  for (const auto& [args, exit_code] : std::vector<std::pair<std::vector<std::string>, int>>{
           {{"doctor", m}, 0},
           {{"verify", m}, 0},
           {{"verify", m, "--hashes"}, 3},
           {{"generate", m, "-p", "The"}, 3},
           {{"plan", m}, 3},
           {{"pack", m, "-o", t, "--verify", "--expert-checksums"}, 0},
           {{"verify", m, "--trunk", t}, 0},
           {{"doctor", m, "--trunk", t}, 0},
           {{"plan", m, "--trunk", t}, 0},
           {{"tokenize", m, "text"}, 0},
           {{"detokenize", m, "1,2"}, 0},
           {{"score", m, "--trunk", t, "--ids", "1,2,3"}, 0},
           {with(generate, {"-p", "The"}), 0},
           {with(generate, {"-p", "The", "--save", save}), 0},
           {with(generate, {"--load", save, "-p", "x"}), 0},
           {with(generate, {"-p", "The", "--dump-logits", (dir_.path() / "logits").string()}), 0},
           {with(generate, {"-p", "The", "--prompt-cache", (dir_.path() / "cache").string()}), 0},
           {with(generate, {"-p", "The", "--json", "--ids", "1"}), 2},
           {{"bench", "disk", m, "--seconds", "0.001"}, 0}}) {
    SCOPED_TRACE(testing::PrintToString(args));
    const K3Result result = run_k3({.args = args, .directory = model_});
    EXPECT_EQ(result.exit_code, exit_code) << result.err;
    EXPECT_TRUE(listing(model_) == before);
    EXPECT_EQ(fs::last_write_time(model_), touched);
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
      EXPECT_TRUE(listing(dir_.path()) == before);
    }
  }
}

TEST_F(ModelCopy, AnotherUserReadsAModelThatNobodyMayWrite) {
  if (::geteuid() != 0) GTEST_SKIP() << "becoming another user needs root";
  if (run_k3(as_nobody({.args = {"version"}})).exit_code != 0) {
    GTEST_SKIP() << "another user cannot run the program where it lies";
  }
  ASSERT_EQ(std::system(("chmod -R a=rX '" + model_.string() + "'").c_str()), 0);
  fs::permissions(dir_.path(), fs::perms::all);
  const auto before = listing(model_);
  const std::string m = model_.string(), t = (dir_.path() / "t.k3").string();
  const K3Result refused = run_k3(as_nobody({.args = {"pack", m}}));
  expect_one_line(refused, 2);
  EXPECT_TRUE(mentions(refused.err, "-o"));
  for (const std::vector<std::string>& args :
       std::vector<std::vector<std::string>>{{"doctor", m},
                                             {"pack", m, "-o", t},
                                             {"verify", m, "--trunk", t},
                                             {"doctor", m, "--trunk", t},
                                             {"plan", m, "--trunk", t}}) {
    const K3Result result = run_k3(as_nobody({.args = args}));
    EXPECT_EQ(result.exit_code, 0) << args[0] << ": " << result.err;
    EXPECT_EQ(result.out.find("-o /another/drive") != std::string::npos, args.size() == 2);
  }
  K3Command command = generate_command(model_);
  command.args.back() = t;
  EXPECT_EQ(receipt_of(run_k3(as_nobody(command))), undisturbed_receipt());
  EXPECT_TRUE(listing(model_) == before);
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
