#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>

#include "base/json.h"
#include "support/checkpoint_maker.h"
#include "support/run_k3.h"
#include "support/test_data.h"

namespace {

namespace fs = std::filesystem;
using namespace k3;        // NOLINT
using namespace k3::test;  // NOLINT

class PackCommand : public testing::Test {
 protected:
  PackCommand() : model(dir.path() / "model"), trunk(model / "trunk.k3") {
    make_checkpoint(model, {.config = tiny_config()});
  }

  K3Result pack(std::vector<std::string> more = {}) const {
    more.insert(more.begin(), {"pack", model.string()});
    return run_k3({.args = std::move(more)});
  }

  TempDir dir;
  fs::path model;
  fs::path trunk;
};

size_t count_lines(const std::string& text) {
  return static_cast<size_t>(std::count(text.begin(), text.end(), '\n'));
}

void expect_failure(const K3Result& result, int code, const std::string& text) {
  EXPECT_EQ(result.exit_code, code) << result.err;
  EXPECT_EQ(count_lines(result.err), 1u) << result.err;
  EXPECT_EQ(result.err.substr(0, 4), "k3: ");
  EXPECT_NE(result.err.find(text), std::string::npos) << result.err;
  EXPECT_EQ(result.out, "");
}

std::string read_bytes(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void flip_byte(const fs::path& path, std::streamoff offset) {
  std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
  file.seekg(offset);
  const auto old = static_cast<char>(file.get());
  file.seekp(offset);
  file.put(static_cast<char>(old ^ 1));
}

TEST_F(PackCommand, WritesTheTrunkBesideTheCheckpointAndSaysSoOnStdout) {
  const K3Result result = pack();
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.err, "");
  EXPECT_EQ(count_lines(result.out), 1u);
  EXPECT_NE(result.out.find("written"), std::string::npos) << result.out;
  EXPECT_TRUE(fs::exists(trunk));
}

TEST_F(PackCommand, TouchesNothingElseInTheModelDirectory) {
  std::string before;
  for (const auto& entry : fs::directory_iterator(model)) {
    before += entry.path().filename().string() + read_bytes(entry.path());
  }
  EXPECT_EQ(pack({"--expert-checksums", "--verify"}).exit_code, 0);
  fs::remove(trunk);
  std::string after;
  for (const auto& entry : fs::directory_iterator(model)) {
    after += entry.path().filename().string() + read_bytes(entry.path());
  }
  EXPECT_TRUE(before == after);
}

TEST_F(PackCommand, JsonIsOneObjectWithSizes) {
  const K3Result result = pack({"--json", "--verify", "-q"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const Json object = parse_json(result.out, "stdout");
  EXPECT_EQ(object.at("trunk"), trunk.string());
  EXPECT_EQ(object.at("written"), true);
  EXPECT_EQ(object.at("verified"), true);
  EXPECT_EQ(object.at("codec"), "lossless");
  EXPECT_EQ(object.at("file_bytes"), fs::file_size(trunk));
  EXPECT_EQ(object.at("expert_checksums"), 0);
}

TEST_F(PackCommand, ACompleteFittingTrunkIsNotWrittenAgain) {
  ASSERT_EQ(pack().exit_code, 0);
  struct stat before {};
  struct stat after {};
  ::stat(trunk.c_str(), &before);
  const K3Result again = pack();
  ::stat(trunk.c_str(), &after);
  EXPECT_EQ(again.exit_code, 0);
  EXPECT_NE(again.out.find("already complete"), std::string::npos) << again.out;
  EXPECT_EQ(before.st_ino, after.st_ino);
  const K3Result forced = pack({"--force"});
  EXPECT_EQ(forced.exit_code, 0);
  EXPECT_NE(forced.out.find("written"), std::string::npos) << forced.out;
}

TEST_F(PackCommand, ATrunkThatDoesNotFitIsOnlyReplacedByForce) {
  ASSERT_EQ(pack().exit_code, 0);
  make_checkpoint(model, {.config = tiny_config(), .seed = 2});
  expect_failure(pack(), 2, "--force");
  EXPECT_EQ(pack({"--force"}).exit_code, 0);
  EXPECT_EQ(pack().exit_code, 0);
  expect_failure(pack({"--expert-checksums"}), 2, "no expert checksums");
  flip_byte(trunk, 9);
  expect_failure(pack(), 2, "version");
}

TEST_F(PackCommand, AFileOfAnotherKindIsNeverReplaced) {
  std::ofstream(dir.path() / "letter.txt") << "Dear reader, this is no trunk file.";
  const std::string target = (dir.path() / "letter.txt").string();
  expect_failure(pack({"-o", target}), 2, "not a trunk file");
  expect_failure(pack({"-o", target, "--force"}), 2, "not a trunk file");
  const std::string shard = (model / "model-00001-of-000008.safetensors").string();
  ASSERT_TRUE(fs::exists(shard));
  expect_failure(pack({"-o", shard, "--force"}), 2, "not a trunk file");
}

TEST_F(PackCommand, VerifyNamesTensorAndRowOfAChangedByte) {
  ASSERT_EQ(pack().exit_code, 0);
  flip_byte(trunk, 4096 + 1);
  const K3Result result = pack({"--verify"});
  expect_failure(result, 3, "layers.0.self_attention_res_norm.weight, row 0");
}

/// Runs `test` (true: passed) in a child with mounts of its own, which vanish with it.
/// Skips the calling test where that is not allowed.
constexpr int kNoMounts = 77;
template <typename Test>
int with_own_mounts(Test&& test) {
  const pid_t child = ::fork();
  if (child == 0) {
    if (::unshare(CLONE_NEWNS) != 0 ||
        ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) {
      ::_exit(kNoMounts);
    }
    ::_exit(test() ? 0 : 1);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WEXITSTATUS(status);
}

TEST_F(PackCommand, AReadOnlyModelDirectoryIsExitTwoNamingTheOption) {
  const fs::path view = dir.path() / "view";
  fs::create_directory(view);
  const int code = with_own_mounts([&] {
    // A read-only mount and not permissions: root may write in spite of those.
    if (::mount(model.c_str(), view.c_str(), nullptr, MS_BIND, nullptr) != 0 ||
        ::mount(nullptr, view.c_str(), nullptr, MS_BIND | MS_REMOUNT | MS_RDONLY, nullptr) != 0) {
      return false;
    }
    const K3Result refused = run_k3({.args = {"pack", view.string()}});
    const K3Result elsewhere = run_k3(
        {.args = {"pack", view.string(), "-o", (dir.path() / "elsewhere").string(), "--verify"}});
    return refused.exit_code == 2 && refused.err.find("with -o") != std::string::npos &&
           count_lines(refused.err) == 1 && elsewhere.exit_code == 0;
  });
  if (code == kNoMounts) GTEST_SKIP() << "mounts need root";
  EXPECT_EQ(code, 0);
}

TEST_F(PackCommand, TooLittleSpaceIsSaidBeforeTheFirstByte) {
  const fs::path small = dir.path() / "small";
  fs::create_directory(small);
  const int code = with_own_mounts([&] {
    if (::mount("tmpfs", small.c_str(), "tmpfs", 0, "size=128k") != 0) return false;
    const K3Result result = pack({"-o", (small / "trunk.k3").string()});
    return result.exit_code == 2 && result.err.find("are free there") != std::string::npos &&
           count_lines(result.err) == 1 && fs::is_empty(small);
  });
  if (code == kNoMounts) GTEST_SKIP() << "mounts need root";
  EXPECT_EQ(code, 0);
}

TEST_F(PackCommand, SpaceForThePackedTrunkAloneIsWarnedAboutAndEnough) {
  const std::string packable = (data_dir() / "tiny-k3").string();
  const auto raw = (dir.path() / "raw").string();
  ASSERT_EQ(run_k3({.args = {"pack", packable, "-o", raw, "--codec", "raw"}}).exit_code, 0);
  const uint64_t raw_bytes = fs::file_size(raw);
  const fs::path small = dir.path() / "small";
  fs::create_directory(small);
  const auto pack_there = [&](double share, const char* codec) {
    const std::string size =
        "size=" + std::to_string(static_cast<uint64_t>(share * static_cast<double>(raw_bytes)));
    if (::mount("tmpfs", small.c_str(), "tmpfs", 0, size.c_str()) != 0) ::_exit(1);
    const K3Result result =
        run_k3({.args = {"pack", packable, "-o", (small / "t").string(), "--codec", codec}});
    ::umount(small.c_str());
    return result;
  };
  const int code = with_own_mounts([&] {
    // What is needed is counted in whole blocks, 1.3 times the bytes of a model of small tensors.
    const K3Result enough = pack_there(1.1, "auto");
    const K3Result too_little = pack_there(0.85, "auto");
    const K3Result too_little_raw = pack_there(1.1, "raw");
    // Where packing is slow, a line of progress comes too.
    return enough.exit_code == 0 && enough.err.find("If the disk gets full") != std::string::npos &&
           too_little.exit_code == 2 && too_little_raw.exit_code == 2;
  });
  if (code == kNoMounts) GTEST_SKIP() << "mounts need root";
  EXPECT_EQ(code, 0);
}

TEST_F(PackCommand, CodecsThatDoNotExistAreUsageErrors) {
  expect_failure(pack({"--codec", "zip"}), 2, "--codec");
}

TEST_F(PackCommand, MatricesArePackedUnlessRawIsAskedFor) {
  const Json lossless = Json::parse(pack({"--json"}).out);
  EXPECT_EQ(lossless.at("codec"), "lossless");
  EXPECT_LT(lossless.at("stored_bytes"), lossless.at("raw_bytes"));
  EXPECT_LT(lossless.at("families").at("lm_head").at("stored_bytes"),
            lossless.at("families").at("lm_head").at("raw_bytes"));
  expect_failure(pack({"--codec", "raw"}), 2, "packed, not raw");
  const Json raw = Json::parse(pack({"--codec", "raw", "--force", "--verify", "--json"}).out);
  EXPECT_EQ(raw.at("codec"), "raw");
  EXPECT_EQ(pack().exit_code, 0) << "a raw trunk serves as well";
}

TEST_F(PackCommand, MissingShardsAreListedAllWithExitThree) {
  fs::remove(model / "model-00002-of-000008.safetensors");
  fs::remove(model / "model-00005-of-000008.safetensors");
  const K3Result result = pack();
  expect_failure(result, 3, "model-00002-of-000008.safetensors");
  EXPECT_NE(result.err.find("model-00005-of-000008.safetensors"), std::string::npos);
  EXPECT_FALSE(fs::exists(trunk));
}

TEST_F(PackCommand, PathsWithSpacesAndOtherLettersWork) {
  const fs::path odd = dir.path() / "a b" / "模型";
  fs::create_directories(odd.parent_path());
  fs::rename(model, odd);
  EXPECT_EQ(run_k3({.args = {"pack", odd.string() + "//"}}).exit_code, 0);
  EXPECT_TRUE(fs::exists(odd / "trunk.k3"));
  const K3Result relative =
      run_k3({.args = {"pack", "模型", "-o", "other.k3"}, .directory = odd.parent_path()});
  EXPECT_EQ(relative.exit_code, 0) << relative.err;
  EXPECT_TRUE(fs::exists(odd.parent_path() / "other.k3"));
}

TEST_F(PackCommand, WorksWithFewOpenFiles) {
  EXPECT_EQ(run_k3({.args = {"pack", model.string()}, .limits = {{RLIMIT_NOFILE, 16}}}).exit_code,
            0);
}

TEST_F(PackCommand, KilledAndRunAgainGivesTheSameFile) {
  ASSERT_EQ(pack().exit_code, 0);
  const std::string whole = read_bytes(trunk);
  fs::remove(trunk);
  for (int delay_ms : {1, 5, 10, 15, 20, 30}) {
    K3Process process({.args = {"pack", model.string()}});
    ::usleep(static_cast<useconds_t>(delay_ms) * 1000);
    process.send_signal(SIGKILL);
    process.wait();
    EXPECT_TRUE(!fs::exists(trunk) || read_bytes(trunk) == whole);
  }
  ASSERT_EQ(pack().exit_code, 0);
  EXPECT_TRUE(read_bytes(trunk) == whole);
}

}  // namespace
