#include "io/direct_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>
#include <vector>

#include "k3/error.h"
#include "support/messages.h"
#include "support/test_data.h"

namespace k3::io {
namespace {

class DirectFileTest : public testing::Test {
 protected:
  std::filesystem::path make(const std::string& name, const std::string& text) {
    std::ofstream(dir_.path() / name) << text;
    return dir_.path() / name;
  }

  /// The message of the checkpoint error that `action` throws.
  template <typename Action>
  std::string refusal(Action action) {
    try {
      action();
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kCheckpoint);
      return error.what();
    }
    ADD_FAILURE() << "nothing was thrown";
    return "";
  }

  test::TempDir dir_;
};

bool reads_directly(int fd) {
  return (::fcntl(fd, F_GETFL) & O_DIRECT) != 0;
}

TEST(Blocks, AreRoundedDownAndUp) {
  EXPECT_EQ(block_floor(0), 0u);
  EXPECT_EQ(block_floor(4095), 0u);
  EXPECT_EQ(block_floor(4096), 4096u);
  EXPECT_EQ(block_ceil(0), 0u);
  EXPECT_EQ(block_ceil(1), 4096u);
  EXPECT_EQ(block_ceil(4096), 4096u);
}

TEST_F(DirectFileTest, OpensFilesAndLinksWithTheirSize) {
  const auto path = make("file", std::string(5000, 'x'));
  std::filesystem::create_symlink(path, dir_.path() / "link");
  const DirectFile file = DirectFile::open(dir_.path() / "link");
  EXPECT_EQ(file.size(), 5000u);
  EXPECT_EQ(file.direct(), reads_directly(file.fd()));
  const DirectFile buffered = DirectFile::open_buffered(path);
  EXPECT_FALSE(buffered.direct());
  EXPECT_FALSE(reads_directly(buffered.fd()));
}

TEST_F(DirectFileTest, UseBufferedKeepsTheDescriptor) {
  DirectFile file = DirectFile::open(make("file", std::string(5000, 'x')));
  const int fd = file.fd();
  file.use_buffered();
  EXPECT_EQ(file.fd(), fd);
  EXPECT_FALSE(file.direct());
  EXPECT_FALSE(reads_directly(fd));
  std::byte byte{};
  EXPECT_EQ(::pread(fd, &byte, 1, 4999), 1);  // not aligned: refused if it were direct
}

TEST_F(DirectFileTest, RefusesWhatIsMissingOrNotARegularFile) {
  const auto missing = dir_.path() / "missing";
  EXPECT_NE(refusal([&] { DirectFile::open(missing); }).find(missing.string()), std::string::npos);
  EXPECT_NE(refusal([&] { DirectFile::open(dir_.path()); }).find("directory"), std::string::npos);
  const auto pipe = dir_.path() / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_NE(refusal([&] { DirectFile::open(pipe); }).find("regular"), std::string::npos);
  EXPECT_NE(refusal([&] { DirectFile::open_buffered("/dev/null"); }).find("regular"),
            std::string::npos);
}

TEST_F(DirectFileTest, ReadExactlyReadsAnyRange) {
  const auto path = make("file", "0123456789");
  const DirectFile file = DirectFile::open_buffered(path);
  std::vector<std::byte> out(4);
  read_exactly(file.fd(), 3, out, path, "digits");
  EXPECT_EQ(out, (std::vector{std::byte{'3'}, std::byte{'4'}, std::byte{'5'}, std::byte{'6'}}));
  read_exactly(file.fd(), 10, {}, path, "nothing");
}

TEST_F(DirectFileTest, ReadExactlyNamesPathOffsetAndLengthOnFailure) {
  const auto path = make("file", "0123456789");
  const DirectFile file = DirectFile::open_buffered(path);
  std::vector<std::byte> out(4);
  try {
    read_exactly(file.fd(), 7, out, path, "digits");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kRead);
    EXPECT_TRUE(test::mentions(error.what(), path.string() + " at 7 (4 bytes, digits): "));
    EXPECT_TRUE(test::mentions(error.what(), " at 10; the file ends before that"));
  }
  EXPECT_THROW(read_exactly(-1, 0, out, path, "digits"), Error);
}

TEST_F(DirectFileTest, ReadTextFileReadsUpToItsLimit) {
  const std::string text("a\0b\n", 4);
  const auto path = make("file", text);
  EXPECT_EQ(read_text_file(path, Bytes{4}), text);
  EXPECT_EQ(read_text_file(make("empty", ""), Bytes{0}), "");
  EXPECT_NE(refusal([&] { read_text_file(path, Bytes{3}); }).find("3 B"), std::string::npos);
  refusal([&] { read_text_file(dir_.path() / "missing", Bytes{100}); });
  refusal([&] { read_text_file(dir_.path(), Bytes{1u << 20}); });
}

}  // namespace
}  // namespace k3::io
