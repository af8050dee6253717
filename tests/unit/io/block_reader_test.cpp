#include "io/block_reader.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <fstream>
#include <set>
#include <thread>
#include <vector>

#include "io/direct_file.h"
#include "k3/error.h"
#include "support/test_data.h"

namespace k3::io {
namespace {

using namespace std::chrono_literals;

std::unique_ptr<BlockReader> make_named(const std::string& name, size_t depth) {
  std::string why;
  return name == "uring" ? make_uring_reader(depth, &why) : make_pread_reader(depth);
}

/// Buffers aligned for direct reads.
struct alignas(kBlockSize) Block {
  std::byte bytes[kBlockSize];
};

class BlockReaderTest : public testing::TestWithParam<const char*> {
 protected:
  static constexpr size_t kBlocks = 64;

  void SetUp() override {
    reader_ = make_named(GetParam(), 8);
    if (reader_ == nullptr) GTEST_SKIP() << GetParam() << " is refused here";
    path_ = dir_.path() / "file";
    std::ofstream stream(path_, std::ios::binary);
    for (size_t block = 0; block < kBlocks; ++block) {
      stream << std::string(kBlockSize, static_cast<char>(block));
    }
    stream << "tail";
  }

  std::vector<ReadCompletion> wait_for(size_t count) {
    std::vector<ReadCompletion> all;
    while (all.size() < count) {
      ReadCompletion some[3];
      const size_t got = reader_->wait(some, 10s);
      all.insert(all.end(), some, some + got);
    }
    return all;
  }

  test::TempDir dir_;
  std::filesystem::path path_;
  std::unique_ptr<BlockReader> reader_;
};

TEST_P(BlockReaderTest, EveryReadCompletesOnceWithItsTagAndBytes) {
  const DirectFile file = DirectFile::open(path_);
  std::vector<Block> blocks(reader_->depth());
  for (size_t round = 0; round < kBlocks / blocks.size(); ++round) {
    std::vector<ReadRequest> requests;
    for (size_t i = 0; i < blocks.size(); ++i) {
      const uint64_t block = round * blocks.size() + i;
      requests.push_back({file.fd(), block * kBlockSize, blocks[i].bytes, kBlockSize, block});
    }
    reader_->submit(requests);
    std::set<uint64_t> tags;
    for (const ReadCompletion& completion : wait_for(blocks.size())) {
      EXPECT_EQ(completion.result, int64_t{kBlockSize});
      EXPECT_TRUE(tags.insert(completion.tag).second);
      EXPECT_EQ(blocks[completion.tag % blocks.size()].bytes[kBlockSize - 1],
                static_cast<std::byte>(completion.tag));
    }
    EXPECT_EQ(*tags.begin(), round * blocks.size());
  }
}

TEST_P(BlockReaderTest, TheEndOfTheFileGivesAShortReadAndThenNothing) {
  const DirectFile file = DirectFile::open(path_);
  std::vector<Block> blocks(1);
  const ReadRequest at_end{file.fd(), kBlocks * kBlockSize, blocks[0].bytes, kBlockSize, 1};
  reader_->submit({&at_end, 1});
  EXPECT_EQ(wait_for(1)[0].result, 4);
  const ReadRequest beyond{file.fd(), (kBlocks + 1) * kBlockSize, blocks[0].bytes, kBlockSize, 2};
  reader_->submit({&beyond, 1});
  EXPECT_EQ(wait_for(1)[0].result, 0);
}

TEST_P(BlockReaderTest, AFailureIsAnErrnoInTheCompletion) {
  Block block;
  const ReadRequest request{-1, 0, block.bytes, kBlockSize, 7};
  reader_->submit({&request, 1});
  const ReadCompletion completion = wait_for(1)[0];
  EXPECT_EQ(completion.tag, 7u);
  EXPECT_EQ(completion.result, -EBADF);
}

TEST_P(BlockReaderTest, WaitReturnsNothingAfterItsTimeout) {
  ReadCompletion out[1];
  EXPECT_EQ(reader_->wait(out, 1ms), 0u);
  EXPECT_EQ(reader_->wait(out, 0ms), 0u);
}

TEST_P(BlockReaderTest, WakeEndsAWaitEveryTime) {
  ReadCompletion out[1];
  for (int i = 0; i < 100; ++i) {
    // Before the wait or during it: both must end it, or this test takes its hours.
    std::thread waker([this] { reader_->wake(); });
    EXPECT_EQ(reader_->wait(out, 1h), 0u);
    waker.join();
    while (i % 10 == 0 && reader_->wait(out, 0ms) != 0) {
    }
  }
}

TEST_P(BlockReaderTest, AWakeEndsOneWaitAlone) {
  const DirectFile file = DirectFile::open(path_);
  Block block;
  ReadCompletion out[1];
  reader_->wake();
  EXPECT_EQ(reader_->wait(out, 1h), 0u);
  const ReadRequest request{file.fd(), 0, block.bytes, kBlockSize, 7};
  reader_->submit({&request, 1});
  EXPECT_EQ(reader_->wait(out, 1h), 1u);
}

TEST_P(BlockReaderTest, ManyWakesAndReadsTogetherLoseNoCompletion) {
  const DirectFile file = DirectFile::open(path_);
  std::atomic<bool> stop{false};
  std::thread waker([&] {
    while (!stop) {
      reader_->wake();
      std::this_thread::yield();
    }
  });
  std::vector<Block> blocks(reader_->depth());
  for (int round = 0; round < 200; ++round) {
    std::vector<ReadRequest> requests;
    for (size_t i = 0; i < blocks.size(); ++i) {
      requests.push_back({file.fd(), i * kBlockSize, blocks[i].bytes, kBlockSize, i});
    }
    reader_->submit(requests);
    EXPECT_EQ(wait_for(blocks.size()).size(), blocks.size());
  }
  stop = true;
  waker.join();
}

INSTANTIATE_TEST_SUITE_P(All, BlockReaderTest, testing::Values("uring", "pread"),
                         [](const auto& test) { return std::string(test.param); });

class MakeReader : public testing::Test {
 protected:
  void TearDown() override { ::unsetenv("K3_IO"); }
  std::string reason_;
};

TEST_F(MakeReader, TheEnvironmentForcesABackEnd) {
  ::setenv("K3_IO", "pread", 1);
  EXPECT_EQ(make_reader(4, &reason_)->name(), "pread");
  EXPECT_EQ(reason_, "");
  ::setenv("K3_IO", "aio", 1);
  EXPECT_THROW(make_reader(4, &reason_), Error);
}

TEST_F(MakeReader, PrefersUringAndSaysWhyWhenItIsRefused) {
  const auto reader = make_reader(4, &reason_);
  EXPECT_EQ(reader->name() == "uring", reason_.empty());
  EXPECT_EQ(reader->depth(), 4u);
}

/// Runs `body` in a child process; its result is the exit code.
template <typename Body>
int in_child(Body body) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(body());
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

void limit(int resource, rlim_t value) {
  const rlimit both{value, value};
  if (::setrlimit(resource, &both) != 0) ::_exit(99);
}

TEST_F(MakeReader, WorksUnderSmallLimitsOfLockedMemoryAndOpenFiles) {
  EXPECT_EQ(in_child([&] {
              limit(RLIMIT_MEMLOCK, 64 << 10);
              limit(RLIMIT_NOFILE, 64);
              return make_reader(64, &reason_)->depth() >= 16 ? 0 : 1;
            }),
            0);
}

TEST_F(MakeReader, FallsBackToPreadWithAReasonWhereNoDescriptorIsLeft) {
  EXPECT_EQ(in_child([&] {
              limit(RLIMIT_NOFILE, 3);
              const auto reader = make_reader(4, &reason_);
              return reader->name() == "pread" && !reason_.empty() ? 0 : 1;
            }),
            0);
}

}  // namespace
}  // namespace k3::io
