#include "io/partial_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <random>
#include <vector>

#include "io/block_buffer.h"
#include "k3/error.h"
#include "support/test_data.h"

namespace {
int write_back_error = 0;  // that sync_file_range ends with, as of a drive that failed
}  // namespace

/// In the place of the C library's, for the whole test program.
extern "C" int sync_file_range(int fd, off_t offset, off_t bytes, unsigned flags) {
  errno = write_back_error;
  if (write_back_error != 0) return -1;
  return static_cast<int>(::syscall(SYS_sync_file_range, fd, offset, bytes, flags));
}

namespace k3::io {
namespace {

namespace fs = std::filesystem;
using Data = std::vector<std::byte>;

Data pattern(size_t size) {
  Data data(size);
  for (size_t i = 0; i < size; ++i) data[i] = static_cast<std::byte>(i % 251 + 1);
  return data;
}

Data read_all(const fs::path& path) {
  std::ifstream stream(path, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(stream), {}};
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

class PartialFileTest : public testing::Test {
 protected:
  template <typename Action>
  std::string refusal(ErrorKind kind, Action action) {
    try {
      action();
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), kind) << error.what();
      return error.what();
    }
    ADD_FAILURE() << "nothing was thrown";
    return "";
  }
  std::string open_refusal(const fs::path& target) {
    return refusal(ErrorKind::kUsage, [&] { PartialFile(target, PartialFile::Mode::kContinue); });
  }

  test::TempDir dir_;
  fs::path target_ = dir_.path() / "trunk.k3";
  fs::path partial_ = dir_.path() / "trunk.k3.partial";
};

TEST_F(PartialFileTest, TheTargetAppearsWithCommitAlone) {
  std::ofstream(target_) << "old";
  PartialFile file(target_, PartialFile::Mode::kFresh);
  file.write(0, pattern(5000));
  EXPECT_EQ(fs::file_size(target_), 3u);
  EXPECT_EQ(fs::file_size(partial_), 5000u);
  file.commit();
  EXPECT_EQ(read_all(target_), pattern(5000));
  EXPECT_FALSE(fs::exists(partial_));
}

TEST_F(PartialFileTest, AnUnfinishedFileCanBeContinuedOrBegunAgain) {
  { PartialFile(target_, PartialFile::Mode::kContinue).write(0, pattern(100)); }
  EXPECT_FALSE(fs::exists(target_));
  {
    PartialFile file(target_, PartialFile::Mode::kContinue);
    EXPECT_EQ(file.size(), 100u);
    file.write(100, pattern(50));
    EXPECT_EQ(file.size(), 150u);
    file.truncate(120);
    EXPECT_EQ(file.size(), 120u);
  }
  EXPECT_EQ(PartialFile(target_, PartialFile::Mode::kFresh).size(), 0u);
}

TEST_F(PartialFileTest, DiscardRemovesThePartialFile) {
  PartialFile file(target_, PartialFile::Mode::kContinue);
  file.write(0, pattern(10));
  file.discard();
  EXPECT_TRUE(fs::is_empty(dir_.path()));
}

TEST_F(PartialFileTest, ASecondWriterIsRefusedUntilTheFirstIsGone) {
  {
    PartialFile first(target_, PartialFile::Mode::kContinue);
    first.write(0, pattern(10));
    EXPECT_NE(open_refusal(target_).find("another process"), std::string::npos);
    EXPECT_EQ(first.size(), 10u);
  }
  EXPECT_EQ(PartialFile(target_, PartialFile::Mode::kContinue).size(), 10u);
}

TEST_F(PartialFileTest, ZeroBlocksBeyondTheEndStayHolesAndReadAsZeros) {
  Data data(1u << 20);
  data[0] = data[700'000] = std::byte{1};
  PartialFile file(target_, PartialFile::Mode::kFresh);
  file.write(0, data);
  file.write(data.size(), Data(3u << 20));
  EXPECT_EQ(file.size(), 4u << 20);
  struct stat status {};
  ASSERT_EQ(::fstat(file.fd(), &status), 0);
  EXPECT_LE(status.st_blocks * 512, 64 * 1024);
  file.commit();
  data.resize(4u << 20);
  EXPECT_EQ(read_all(target_), data);
}

TEST_F(PartialFileTest, ZerosOverExistingDataAreWritten) {
  PartialFile file(target_, PartialFile::Mode::kFresh);
  file.write(0, pattern(16'384));
  file.write(4096, Data(4096));
  file.write(12'288, Data(12'288));  // half over data, half beyond the end
  file.commit();
  Data expected = pattern(16'384);
  expected.resize(24'576);
  std::fill_n(expected.begin() + 4096, 4096, std::byte{});
  std::fill_n(expected.begin() + 12'288, 4096, std::byte{});
  EXPECT_EQ(read_all(target_), expected);
}

TEST_F(PartialFileTest, AnyOrderOfWritesGivesTheSameBytesAsMemory) {
  std::mt19937 random(7);
  PartialFile file(target_, PartialFile::Mode::kFresh);
  Data expected;
  for (int i = 0; i < 300; ++i) {
    const size_t offset = random() % 60'000;
    Data data(random() % 20'000 + 1);
    for (size_t block = 0; block < data.size(); block += 1000) {
      if (random() % 3 == 0)
        data[block + random() % std::min<size_t>(1000, data.size() - block)] = std::byte{9};
    }
    expected.resize(std::max(expected.size(), offset + data.size()));
    std::copy(data.begin(), data.end(), expected.begin() + long(offset));
    file.write(offset, data);
  }
  EXPECT_EQ(file.size(), expected.size());
  file.commit();
  EXPECT_EQ(read_all(target_), expected);
}

TEST_F(PartialFileTest, BlocksPastTheCacheLieBesideOrdinaryWrites) {
  const Data ordinary = pattern(2 * kBlockSize);
  BlockBuffer blocks(3 * kBlockSize);
  for (size_t i = 0; i < blocks.size(); ++i) blocks[i] = static_cast<std::byte>(i * 7 % 253);
  Data expected(8 * kBlockSize);
  PartialFile file(target_, PartialFile::Mode::kFresh);
  const auto put = [&](uint64_t offset, std::span<const std::byte> bytes, bool past_cache) {
    std::copy(bytes.begin(), bytes.end(), expected.begin() + static_cast<ptrdiff_t>(offset));
    past_cache ? file.write_blocks(offset, bytes) : file.write(offset, bytes);
  };
  put(6 * kBlockSize, ordinary, false);
  put(kBlockSize, blocks, true);
  put(5, std::span(ordinary).first(100), false);
  put(3 * kBlockSize + 9, std::span(ordinary).first(100), false);
  put(6 * kBlockSize, std::span(blocks).first(kBlockSize), true);
  file.commit();
  EXPECT_TRUE(read_all(target_) == expected);
}

TEST_F(PartialFileTest, PlacesThatCannotBeWrittenAreUsageErrorsThatNameTheOption) {
  EXPECT_NE(open_refusal(dir_.path() / "missing" / "trunk.k3").find("-o"), std::string::npos);
  EXPECT_NE(open_refusal("/proc/trunk.k3").find("-o"), std::string::npos);
  EXPECT_NE(open_refusal("/dev/null").find("not a regular file"), std::string::npos);
  fs::create_directory(target_);
  EXPECT_NE(open_refusal(target_).find("not a regular file"), std::string::npos);
}

TEST_F(PartialFileTest, APartialThatIsNoRegularFileIsRefused) {
  ASSERT_EQ(::mkfifo(partial_.c_str(), 0600), 0);
  EXPECT_NE(open_refusal(target_).find("not a regular file"), std::string::npos);
}

TEST_F(PartialFileTest, APartialThatIsALinkIsRefusedAndWhatItNamesKeepsItsBytes) {
  const auto shard = dir_.path() / "shard";
  std::ofstream(shard) << "precious";
  for (const bool symbolic : {true, false}) {
    if (symbolic) std::filesystem::create_symlink(shard, partial_);
    if (!symbolic) std::filesystem::create_hard_link(shard, partial_);
    EXPECT_NE(open_refusal(target_).find("a link to another file"), std::string::npos) << symbolic;
    EXPECT_EQ(std::filesystem::file_size(shard), 8u) << symbolic;
    std::filesystem::remove(partial_);
  }
}

TEST_F(PartialFileTest, AFailedWriteNamesPathAndOffset) {
  PartialFile file(target_, PartialFile::Mode::kFresh);
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit small{8192, before.rlim_max};
  ASSERT_NE(::signal(SIGXFSZ, SIG_IGN), SIG_ERR);
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  const std::string message =
      refusal(ErrorKind::kInternal, [&] { file.write(4096, pattern(8192)); });
  ::setrlimit(RLIMIT_FSIZE, &before);
  ::signal(SIGXFSZ, SIG_DFL);
  EXPECT_NE(message.find(partial_.string() + " at 8192 (4096 bytes)"), std::string::npos)
      << message;
  EXPECT_EQ(file.size(), 8192u);  // what fitted is there for the next run
}

TEST_F(PartialFileTest, AFullDiskIsReportedWithTheSpaceNeeded) {
  if (::access("/dev/full", W_OK) != 0) GTEST_SKIP() << "there is no /dev/full here";
  PartialFile file(target_, PartialFile::Mode::kFresh);
  const int full = ::open("/dev/full", O_WRONLY | O_CLOEXEC);
  ASSERT_EQ(::dup2(full, file.fd()), file.fd());
  ::close(full);
  const std::string message =
      refusal(ErrorKind::kInternal, [&] { file.write(0, pattern(2'000'000)); });
  EXPECT_NE(message.find("2.00 MB more"), std::string::npos) << message;
  EXPECT_NE(message.find("are free"), std::string::npos) << message;
}

TEST_F(PartialFileTest, AFailedWriteBackIsToldByPathAndNotLostBeforeTheCommit) {
  PartialFile file(target_, PartialFile::Mode::kFresh);
  file.write(0, pattern(8192));
  for (const int error : {EIO, ENOSPC, EDQUOT}) {
    write_back_error = error;
    for (const auto call : {&PartialFile::start_write_back, &PartialFile::finish_write_back}) {
      const std::string message = refusal(ErrorKind::kInternal, [&] { (file.*call)(0, 8192); });
      EXPECT_NE(message.find("writing out " + partial_.string()), std::string::npos) << message;
    }
  }
  write_back_error = 0;
}

TEST_F(PartialFileTest, AFileSystemWithoutWriteBackOfRangesWillDo) {
  PartialFile file(target_, PartialFile::Mode::kFresh);
  file.write(0, pattern(8192));
  for (const int error : {0, ENOSYS, EINVAL, ESPIPE}) {
    write_back_error = error;
    file.start_write_back(0, 8192);
    file.finish_write_back(0, 8192);
  }
  write_back_error = 0;
  file.commit();
  EXPECT_EQ(read_all(target_), pattern(8192));
}

TEST_F(PartialFileTest, FreeSpaceIsThatOfTheDirectory) {
  EXPECT_GT(free_space(target_).value, 0u);
  EXPECT_GT(free_space("name-in-the-current-directory").value, 0u);
  EXPECT_THROW(free_space(dir_.path() / "missing" / "file"), Error);
}

}  // namespace
}  // namespace k3::io
