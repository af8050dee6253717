// Packing that is killed, interrupted, cut short by a full disk, damaged in between or done twice
// at once: the old file or a complete new one, and the bytes of an undisturbed run.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <optional>
#include <random>
#include <thread>

#include "fault/command_run.h"
#include "fault/mount.h"
#include "support/messages.h"

namespace k3::test {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

class Packing : public testing::Test {
 protected:
  static K3Command pack_into(const fs::path& trunk, std::vector<std::string> more = {}) {
    K3Command command{.args = {"pack", fault_model().string(), "-o", trunk.string(), "-q"}};
    command.args.insert(command.args.end(), more.begin(), more.end());
    return command;
  }
  K3Command pack(std::vector<std::string> more = {}) const {
    return pack_into(trunk_, std::move(more));
  }
  static const std::string& undisturbed() {
    static const std::string bytes = bytes_of(fault_trunk(false));
    return bytes;
  }
  /// Complete and right, or not there at all.
  void expect_whole_or_none() const {
    EXPECT_TRUE(!fs::exists(trunk_) || bytes_of(trunk_) == undisturbed());
  }
  void expect_whole() const {
    ASSERT_TRUE(fs::exists(trunk_));
    EXPECT_TRUE(bytes_of(trunk_) == undisturbed());
    EXPECT_FALSE(fs::exists(partial_));
  }
  /// Ends a run with this signal at some moment of it; nothing when the run had ended before.
  std::optional<K3Result> end_somewhere(int signal) {
    K3Process process(pack());
    std::this_thread::sleep_for(duration_ * std::uniform_real_distribution<>(0, 1)(random_));
    process.send_signal(signal);
    K3Result result = process.wait();
    if (result.exit_code == 0) return std::nullopt;
    return result;
  }
  void SetUp() override {
    const Clock::time_point start = Clock::now();
    ASSERT_EQ(run_k3(pack()).exit_code, 0);
    duration_ = Clock::now() - start;
    fs::remove(trunk_);
  }

  TempDir dir_;
  fs::path trunk_ = dir_.path() / "t.k3", partial_ = dir_.path() / "t.k3.partial";
  std::chrono::duration<double> duration_{};
  std::mt19937 random_{20};
};

TEST_F(Packing, KilledAtRandomMomentsEndsWithTheSameFile) {
  for (int kills = 0; kills < 30;) {
    if (end_somewhere(SIGKILL)) {
      ++kills;
      expect_whole_or_none();
    } else {
      expect_whole();
      fs::remove(trunk_);
    }
  }
  fs::remove(trunk_);
  ASSERT_EQ(run_k3(pack()).exit_code, 0);
  expect_whole();
}

TEST_F(Packing, KilledWhileItReplacesAFileLeavesTheOldOneOrTheNewOne) {
  ASSERT_EQ(run_k3(pack({"--codec", "raw"})).exit_code, 0);
  const std::string old = bytes_of(trunk_);
  for (int kills = 0; kills < 5; ++kills) {
    K3Process process(pack({"--force"}));
    std::this_thread::sleep_for(duration_ * std::uniform_real_distribution<>(0, 1)(random_));
    process.send_signal(SIGKILL);
    process.wait();
    const std::string now = bytes_of(trunk_);
    EXPECT_TRUE(now == old || now == undisturbed());
  }
  ASSERT_EQ(run_k3(pack({"--force"})).exit_code, 0);
  expect_whole();
}

TEST_F(Packing, InterruptedSaysThatTheSameCommandContinuesAndItDoes) {
  int interrupted = 0;
  for (int i = 0; i < 10 || (interrupted == 0 && i < 200); ++i) {  // on a busy machine most end
    const std::optional<K3Result> result = end_somewhere(SIGINT);
    expect_whole_or_none();
    fs::remove(trunk_);
    if (!result || result->signal == SIGINT) continue;  // ended before, or before main began
    expect_one_line(*result, 130);
    interrupted += mentions(result->err, "the same command continues") ? 1 : 0;
  }
  EXPECT_GT(interrupted, 0);
  ASSERT_EQ(run_k3(pack()).exit_code, 0);
  expect_whole();
}

TEST_F(Packing, APartialFileDamagedAnywhereEndsWithTheSameFile) {
  for (int i = 0; i < 8; ++i) {
    while (!fs::exists(partial_)) {
      fs::remove(trunk_);
      end_somewhere(SIGKILL);
    }
    fs::remove(trunk_);
    const uint64_t size = fs::file_size(partial_);
    std::fstream file(partial_, std::ios::in | std::ios::out | std::ios::binary);
    for (int byte = 0; byte < 20 && size > 0; ++byte) {
      file.seekp(static_cast<std::streamoff>(random_() % size));
      file.put(static_cast<char>(random_()));
    }
    file.close();
    if (i % 4 == 3) fs::resize_file(partial_, size / 2);
    const K3Result result = run_k3(pack());
    ASSERT_EQ(result.exit_code, 0) << result.err;
    expect_whole();
    fs::remove(trunk_);
  }
}

TEST_F(Packing, TwoAtOnceAreOneFileAndOneRefusalOrTheSameFile) {
  for (int i = 0; i < 3; ++i) {
    fs::remove(trunk_);
    K3Process first(pack()), second(pack());
    const K3Result results[] = {first.wait(), second.wait()};
    int done = 0;
    for (const K3Result& result : results) {
      if (result.exit_code == 0) {
        ++done;
      } else {
        expect_one_line(result, 2);
        EXPECT_TRUE(mentions(result.err, "another process is writing it"));
      }
    }
    EXPECT_GE(done, 1);
    expect_whole();
  }
}

TEST_F(Packing, AFullDiskIsFoundBeforeTheFirstByte) {
  const Mount disk(dir_.path() / "disk", "tmpfs", "size=1m");
  if (!disk.mounted()) GTEST_SKIP() << "mounting a small file system is not allowed here";
  const K3Result result = run_k3(pack_into(disk.path() / "t.k3"));
  expect_one_line(result, 2);
  EXPECT_TRUE(mentions(result.err, "free")) << result.err;
  EXPECT_TRUE(fs::is_empty(disk.path()));
}

/// Takes all the space that is left.
void fill_up(const fs::path& file) {
  std::ofstream out(file, std::ios::binary);
  const std::string block(4096, 'x');
  while (out.write(block.data(), static_cast<std::streamsize>(block.size())) && out.flush()) {
  }
}

TEST_F(Packing, ADiskThatFillsUpWhileWritingIsOneErrorAndTheNextRunContinues) {
  const Mount disk(dir_.path() / "disk", "tmpfs", "size=7m");
  if (!disk.mounted()) GTEST_SKIP() << "mounting a small file system is not allowed here";
  const fs::path trunk = disk.path() / "t.k3", filler = disk.path() / "filler";
  int hit = 0;
  for (int i = 0; i < 30 && hit == 0; ++i) {
    K3Process process(pack_into(trunk));
    std::this_thread::sleep_for(duration_ * std::uniform_real_distribution<>(0.2, 0.8)(random_));
    fill_up(filler);
    const K3Result result = process.wait();
    fs::remove(filler);
    if (result.exit_code == 0) {
      fs::remove(trunk);
    } else if (result.exit_code == 2) {  // full before the first byte
      expect_one_line(result, 2);
    } else {
      ++hit;
      expect_one_line(result, 1);
      EXPECT_TRUE(mentions(result.err, "No space left")) << result.err;
      EXPECT_TRUE(mentions(result.err, "what is written is kept")) << result.err;
      EXPECT_FALSE(fs::exists(trunk));
    }
  }
  ASSERT_EQ(run_k3(pack_into(trunk)).exit_code, 0);
  EXPECT_TRUE(bytes_of(trunk) == undisturbed());
  if (hit == 0) GTEST_SKIP() << "the disk never filled up in time";
}

TEST_F(Packing, PlacesThatCannotBeWrittenAreExitTwoNamingTheOption) {
  for (const char* place : {"/proc/t.k3", "/nonexistent/t.k3", "/", "/dev/null"}) {
    const K3Result result = run_k3(pack_into(place));
    expect_one_line(result, 2);
    EXPECT_TRUE(mentions(result.err, "-o")) << result.err;
  }
}

}  // namespace
}  // namespace k3::test
