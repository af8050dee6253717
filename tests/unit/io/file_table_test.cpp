#include "io/file_table.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <fstream>

#include "support/test_data.h"

namespace k3::io {
namespace {

class FileTableTest : public testing::Test {
 protected:
  FileTableTest() {
    for (size_t i = 0; i < kFiles; ++i) {
      const auto path = dir_.path() / std::to_string(i);
      std::ofstream(path) << i;
      ids_.push_back(table_.add(path));
    }
  }

  /// Acquires file `i` and reads its number through the descriptor.
  int acquire_and_read(size_t i) {
    int error = 0;
    const DirectFile* file = table_.acquire(ids_[i], &error);
    EXPECT_NE(file, nullptr) << error;
    alignas(kBlockSize) char text[kBlockSize] = {};
    EXPECT_GT(::pread(file->fd(), text, sizeof text, 0), 0);
    return std::stoi(text);
  }

  static size_t open_descriptors() {
    size_t count = 0;
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
      count += entry.path().empty() ? 0 : 1;
    }
    return count;
  }

  static constexpr size_t kFiles = 96;
  test::TempDir dir_;
  FileTable table_;
  std::vector<FileId> ids_;
};

TEST_F(FileTableTest, ManyFilesNeedFewDescriptors) {
  const size_t before = open_descriptors();
  for (size_t round = 0; round < 2; ++round) {
    for (size_t i = 0; i < kFiles; ++i) {
      EXPECT_EQ(acquire_and_read(i), int(i));
      table_.release(ids_[i]);
    }
  }
  EXPECT_LE(open_descriptors(), before + FileTable::kOpenMax);
}

TEST_F(FileTableTest, FilesWithReadsInFlightStayOpen) {
  int error = 0;
  const int held = table_.acquire(ids_[0], &error)->fd();
  table_.acquire(ids_[0], &error);
  table_.release(ids_[0]);  // one of two
  for (size_t i = 1; i < kFiles; ++i) {
    acquire_and_read(i);
    table_.release(ids_[i]);
  }
  EXPECT_EQ(table_.acquire(ids_[0], &error)->fd(), held);
  EXPECT_NE(::fcntl(held, F_GETFD), -1);
}

TEST_F(FileTableTest, TheLeastRecentlyUsedFileIsClosedFirst) {
  std::vector<int> fds;
  int error = 0;
  for (size_t i = 0; i < FileTable::kOpenMax; ++i) {
    fds.push_back(table_.acquire(ids_[i], &error)->fd());
    table_.release(ids_[i]);
  }
  table_.acquire(ids_[0], &error);  // now file 1 is the oldest
  table_.release(ids_[0]);
  EXPECT_EQ(table_.acquire(ids_[50], &error)->fd(), fds[1]);  // the number that became free
}

TEST_F(FileTableTest, TooManyFilesInUseAreRefused) {
  for (size_t i = 0; i < FileTable::kOpenMax; ++i) acquire_and_read(i);
  int error = 0;
  EXPECT_EQ(table_.acquire(ids_[50], &error), nullptr);
  EXPECT_EQ(error, EMFILE);
  table_.release(ids_[7]);
  EXPECT_NE(table_.acquire(ids_[50], &error), nullptr);
}

TEST_F(FileTableTest, AMissingFileGivesItsErrno) {
  const FileId missing = table_.add(dir_.path() / "missing");
  int error = 0;
  EXPECT_EQ(table_.acquire(missing, &error), nullptr);
  EXPECT_EQ(error, ENOENT);
  EXPECT_EQ(table_.path(missing), dir_.path() / "missing");
}

TEST_F(FileTableTest, ABufferedFileStaysBufferedWhenOpenedAgain) {
  int error = 0;
  const int fd = table_.acquire(ids_[0], &error)->fd();
  table_.use_buffered(ids_[0]);
  EXPECT_EQ(::fcntl(fd, F_GETFL) & O_DIRECT, 0);
  table_.release(ids_[0]);
  for (size_t i = 1; i < kFiles; ++i) {
    acquire_and_read(i);
    table_.release(ids_[i]);
  }
  EXPECT_TRUE(table_.buffered(ids_[0]));
  EXPECT_FALSE(table_.acquire(ids_[0], &error)->direct());
}

}  // namespace
}  // namespace k3::io
