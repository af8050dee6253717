// Models and trunk files on file systems that have no drive, and as the links of a download cache.
#include <fcntl.h>
#include <gtest/gtest.h>

#include "base/unique_fd.h"
#include "fault/command_run.h"
#include "fault/mount.h"
#include "support/messages.h"

namespace k3::test {
namespace {

namespace fs = std::filesystem;

/// Model and trunk file both there: the bits of any other place. Returns what `doctor` says.
K3Result expect_the_same_bits_on(const fs::path& disk) {
  const std::string m = (disk / "model").string(), t = (disk / "t.k3").string();
  fs::copy(fault_model(), m, fs::copy_options::recursive);
  const K3Result packed = run_k3({.args = {"pack", m, "-o", t, "--verify", "-q"}});
  EXPECT_EQ(packed.exit_code, 0) << packed.err;
  EXPECT_TRUE(bytes_of(t) == bytes_of(fault_trunk(false)));
  for (const char* io : {"uring", "pread"}) {
    for (const std::vector<std::string>& more :
         std::vector<std::vector<std::string>>{{}, {"--budget", small_budget()}}) {
      K3Command command = generate_command(m, more);
      *std::find(command.args.begin(), command.args.end(), fault_trunk(false).string()) = t;
      command.env = {{"K3_IO", io}};
      EXPECT_EQ(receipt_of(run_k3(command)), undisturbed_receipt()) << io;
    }
  }
  const K3Result doctor = run_k3({.args = {"doctor", m, "--trunk", t}});
  EXPECT_EQ(doctor.exit_code, 0) << doctor.err;
  return doctor;
}

bool takes_direct_reads(const fs::path& disk) {
  const std::string probe = (disk / "probe").string();
  const UniqueFd made(::open(probe.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666));
  return UniqueFd(::open(probe.c_str(), O_RDONLY | O_DIRECT | O_CLOEXEC)).valid();
}

TEST(FileSystems, InMemoryGiveTheSameBits) {
  const TempDir dir;
  const Mount disk(dir.path() / "disk", "tmpfs", "size=40m");
  if (!disk.mounted()) GTEST_SKIP() << "mounting a file system is not allowed here";
  EXPECT_TRUE(mentions(expect_the_same_bits_on(disk.path()).out, "tmpfs"));
}

TEST(FileSystems, ThatRefuseDirectReadsGiveTheSameBitsAndAreNamedByDoctorAndRun) {
  const TempDir dir;
  const Mount disk(dir.path() / "disk", "ramfs", "");
  if (!disk.mounted()) GTEST_SKIP() << "mounting a file system is not allowed here";
  if (takes_direct_reads(disk.path())) GTEST_SKIP() << "ramfs takes direct reads on this kernel";
  const K3Result doctor = expect_the_same_bits_on(disk.path());
  EXPECT_TRUE(mentions(doctor.out, "no O_DIRECT here: through the page cache"));
  const K3Result run = run_k3({.args = {"generate", (disk.path() / "model").string(), "--trunk",
                                        (disk.path() / "t.k3").string(), "--ids", "1", "-n", "1"}});
  EXPECT_EQ(run.exit_code, 0);
  EXPECT_TRUE(mentions(run.err, "through the page cache"));
}

/// As the caches of downloads lay a model out: links to files that are named by their hash.
void make_snapshot_of_links(const fs::path& cache) {
  fs::create_directories(cache / "blobs");
  fs::create_directories(cache / "snapshots" / "main");
  size_t number = 0;
  for (const auto& entry : fs::directory_iterator(fault_model())) {
    const fs::path blob = fs::path("blobs") / std::to_string(++number);
    fs::copy_file(entry.path(), cache / blob);
    fs::create_symlink(fs::path("..") / ".." / blob,
                       cache / "snapshots" / "main" / entry.path().filename());
  }
}

TEST(FileSystems, ASnapshotOfLinksIsWhatItLinksToAndItsTrunkFitsWhereverItIsMoved) {
  const TempDir dir;
  make_snapshot_of_links(dir.path() / "cache");
  const std::string t = (dir.path() / "t.k3").string();
  const std::string before = (dir.path() / "cache" / "snapshots" / "main").string();
  ASSERT_EQ(run_k3({.args = {"pack", before, "-o", t, "-q"}}).exit_code, 0);
  EXPECT_TRUE(bytes_of(t) == bytes_of(fault_trunk(false)));
  fs::rename(dir.path() / "cache", dir.path() / "moved");
  const std::string m = (dir.path() / "moved" / "snapshots" / "main").string();
  K3Command command = generate_command(m);
  command.args.back() = t;
  EXPECT_EQ(receipt_of(run_k3(command)), undisturbed_receipt());
  const auto shard_bytes = [](const std::string& model) {
    const K3Result result = run_k3({.args = {"doctor", model, "--json"}});
    return parse_json(result.out, "stdout").at("model").at("bytes").get<uint64_t>();
  };
  EXPECT_EQ(shard_bytes(m), shard_bytes(fault_model().string()));
}

}  // namespace
}  // namespace k3::test
