#include "io/io_thread.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <deque>
#include <fstream>
#include <random>
#include <thread>
#include <vector>

#include "io/arena.h"
#include "k3/error.h"
#include "support/fault_reader.h"
#include "support/messages.h"
#include "support/test_data.h"

namespace k3::io {
namespace {

constexpr size_t kFileSize = (4u << 20) + 1234;  // not a multiple of the block

std::byte byte_at(uint64_t offset, uint64_t file) {
  return static_cast<std::byte>((offset * 0x9E3779B97F4A7C15u + offset / 251 + file * 77) >> 56);
}

std::string describe(const ReadJob& job) {
  return "expert " + std::to_string(job.context_id);
}

class IoThreadTest : public testing::Test {
 protected:
  IoThreadTest() : arena_(Bytes{64u << 20}) { add_file(kFileSize); }

  FileId add_file(size_t size) {
    const auto path = dir_.path() / ("file" + std::to_string(file_count_));
    std::string text(size, '\0');
    for (size_t i = 0; i < size; ++i) text[i] = static_cast<char>(byte_at(i, file_count_));
    std::ofstream(path, std::ios::binary) << text;
    ++file_count_;
    return files_.add(path);
  }

  IoThread& start(std::unique_ptr<BlockReader> reader) {
    IoThread::Options options;
    options.piece_bytes = 16 * 1024;
    options.hang_time = hang_time_;
    thread_ = std::make_unique<IoThread>(std::move(reader), files_, options);
    return *thread_;
  }
  IoThread& start() { return start(make_pread_reader(8)); }
  IoThread& start_with(const test::Faults& faults) {
    control_ = std::make_shared<test::FaultControl>();
    return start(std::make_unique<test::FaultReader>(make_pread_reader(8), faults, control_));
  }

  ReadJob& make_job(uint64_t offset, uint64_t length, FileId file = FileId{0}) {
    ReadJob& job = jobs_.emplace_back();
    job.file = file;
    job.offset = offset;
    job.length = length;
    job.buffer = arena_.carve<std::byte>(ReadJob::buffer_bytes(offset, length)).data();
    job.what = describe;
    job.context_id = jobs_.size();
    return job;
  }

  void expect_payload(const ReadJob& job) {
    for (uint64_t i = 0; i < job.length; ++i) {
      ASSERT_EQ(job.payload()[i], byte_at(job.offset + i, static_cast<uint64_t>(job.file)))
          << "byte " << i << " of the job at " << job.offset;
    }
  }

  void expect_reads(IoThread& thread, ReadJob& job) {
    thread.request(job, Lane::kUrgent);
    thread.wait(job);
    EXPECT_TRUE(IoThread::done(job));
    expect_payload(job);
  }

  std::string failure(IoThread& thread, ReadJob& job, ErrorKind kind = ErrorKind::kRead) {
    try {
      thread.wait(job);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), kind);
      return error.what();
    }
    return "";
  }

  test::TempDir dir_;
  Arena arena_;
  FileTable files_;
  size_t file_count_ = 0;
  std::deque<ReadJob> jobs_;
  std::shared_ptr<test::FaultControl> control_;
  std::chrono::milliseconds hang_time_ = std::chrono::minutes(1);
  std::unique_ptr<IoThread> thread_;  // last: ends before what its reads write to
};

TEST_F(IoThreadTest, ReadsRangesOfAnyAlignmentAndLength) {
  IoThread& thread = start();
  for (const uint64_t offset : {0u, 1u, 8u, 4095u, 4096u, 16'383u, 100'000u}) {
    for (const uint64_t length : {1u, 7u, 4096u, 4097u, 16'384u, 16'385u, 200'001u}) {
      expect_reads(thread, make_job(offset, length));
    }
  }
}

TEST_F(IoThreadTest, WidensToBlocksAndCutsIntoPieces) {
  IoThread& thread = start();
  expect_reads(thread, make_job(4095, 16'386));  // blocks 0 to 5: 24,576 bytes, pieces of 16,384
  EXPECT_EQ(thread.stats().reads, 2u);
  EXPECT_EQ(thread.stats().disk_bytes, 24'576u);
  EXPECT_EQ(thread.stats().direct_fallbacks, 0u);
}

TEST_F(IoThreadTest, AnEmptyJobIsDoneAtOnce) {
  IoThread& thread = start();
  expect_reads(thread, make_job(5, 0));
  EXPECT_EQ(thread.stats().reads, 0u);
}

TEST_F(IoThreadTest, TheLastShortBlockOfAFileIsEnough) {
  IoThread& thread = start();
  expect_reads(thread, make_job(kFileSize - 1, 1));
  expect_reads(thread, make_job(kFileSize - 50'000, 50'000));
}

TEST_F(IoThreadTest, AFileThatEndsBeforeThePayloadIsAnErrorThatSaysWhere) {
  IoThread& thread = start();
  for (const uint64_t offset : {kFileSize - 1, kFileSize, kFileSize + 100'000}) {
    ReadJob& job = make_job(offset, 2);
    thread.request(job, Lane::kUrgent);
    const std::string message = failure(thread, job);
    EXPECT_NE(message.find(files_.path(job.file).string()), std::string::npos) << message;
    EXPECT_NE(message.find("at " + std::to_string(offset) + " (2 bytes"), std::string::npos);
    EXPECT_NE(message.find("at " + std::to_string(kFileSize) + ";"), std::string::npos) << message;
    EXPECT_EQ(job.error, ENODATA);
  }
}

TEST_F(IoThreadTest, AFileCutWhileItIsOpenIsAnErrorAndNotAHang) {
  IoThread& thread = start();
  expect_reads(thread, make_job(0, 10));
  for (const off_t size : {off_t{100'000}, off_t{8192}}) {  // in a block, and between two
    ASSERT_EQ(::truncate(files_.path(FileId{0}).c_str(), size), 0);
    ReadJob& job = make_job(uint64_t(size) - 10, 4096);
    thread.request(job, Lane::kUrgent);
    EXPECT_TRUE(test::mentions(failure(thread, job), fmt::format(" at {}; the file ends", size)));
    EXPECT_EQ(thread.stats().direct_fallbacks, 0u);
  }
}

TEST_F(IoThreadTest, AMissingFileFailsItsJobsAlone) {
  const FileId missing = files_.add(dir_.path() / "missing");
  IoThread& thread = start();
  ReadJob& bad = make_job(100'000, 50'000, missing);
  ReadJob& good = make_job(100'000, 50'000);
  thread.request(bad, Lane::kUrgent);
  thread.request(good, Lane::kUrgent);
  thread.wait(good);
  expect_payload(good);
  const std::string message = failure(thread, bad);
  EXPECT_NE(message.find("missing at 100000 (50000 bytes, expert 1): No such file"),
            std::string::npos)
      << message;
}

TEST_F(IoThreadTest, UrgentJobsOvertakeBackgroundJobs) {
  test::Faults faults;
  faults.hang_read = 1;
  faults.fail_read = 1 + 64 + 1;  // the first after all of the urgent job
  control_ = std::make_shared<test::FaultControl>();
  IoThread& thread =
      start(std::make_unique<test::FaultReader>(make_pread_reader(1), faults, control_));
  ReadJob& first = make_job(0, 1);  // hangs and so keeps the only read that may be in flight
  thread.request(first, Lane::kBackground);
  while (!control_->hanging) std::this_thread::yield();
  ReadJob& background = make_job(0, 1u << 20);
  ReadJob& urgent = make_job(1u << 20, 1u << 20);
  thread.request(background, Lane::kBackground);
  thread.request(urgent, Lane::kUrgent);
  control_->release = true;
  thread.wait(urgent);
  expect_payload(urgent);
  EXPECT_NE(failure(thread, background), "");
  EXPECT_EQ(background.error_offset, 0u);
}

TEST_F(IoThreadTest, FailedJobsCanBeRequestedAgain) {
  test::Faults faults;
  faults.fail_read = 3;
  IoThread& thread = start_with(faults);
  ReadJob& job = make_job(7, 100'000);
  thread.request(job, Lane::kUrgent);
  EXPECT_NE(failure(thread, job), "");
  expect_reads(thread, job);
}

TEST_F(IoThreadTest, AFailureOfAnyReadEndsItsJobWithThatErrorAndNoOther) {
  for (uint64_t nth = 1;; ++nth) {
    test::Faults faults;
    faults.fail_read = nth;
    IoThread& thread = start_with(faults);
    jobs_.clear();
    Arena fresh(Bytes{8u << 20});
    size_t failed = 0;
    for (const uint64_t offset : {5u, 300'000u, 1'000'000u}) {
      ReadJob& job = jobs_.emplace_back();
      job.offset = offset;
      job.length = 70'000;
      job.buffer = fresh.carve<std::byte>(ReadJob::buffer_bytes(offset, 70'000)).data();
      thread.request(job, offset == 5 ? Lane::kBackground : Lane::kUrgent);
    }
    for (ReadJob& job : jobs_) {
      const std::string message = failure(thread, job);
      if (message.empty()) {
        expect_payload(job);
      } else {
        EXPECT_NE(message.find("Input/output error"), std::string::npos) << message;
        ++failed;
      }
    }
    ASSERT_EQ(failed, control_->spoiled);
    thread_.reset();
    if (failed == 0) {
      EXPECT_EQ(nth, 16u);  // 5 reads a job
      return;
    }
  }
}

TEST_F(IoThreadTest, TheFirstOfSeveralFailuresIsReported) {
  test::Faults faults;
  faults.fail_read = 2;
  IoThread& thread = start_with(faults);
  expect_reads(thread, make_job(0, 10));
  ASSERT_EQ(::truncate(files_.path(FileId{0}).c_str(), 0), 0);  // all other pieces: ENODATA, later
  ReadJob& job = make_job(0, 100'000);
  thread.request(job, Lane::kUrgent);
  EXPECT_NE(failure(thread, job), "");
  EXPECT_EQ(job.error, EIO);
  EXPECT_EQ(job.error_offset, 0u);
}

TEST_F(IoThreadTest, InterruptedSystemCallsAreRepeated) {
  test::Faults faults;
  faults.fail_read = 2;
  for (const int error : {EINTR, EAGAIN}) {
    faults.fail_errno = error;
    expect_reads(start_with(faults), make_job(3, 60'000));
    EXPECT_EQ(control_->spoiled, 1u);
  }
}

TEST_F(IoThreadTest, ShortReadsAreContinuedDownToABlockOrAByte) {
  test::Faults faults;
  faults.short_bytes = 4096;
  expect_reads(start_with(faults), make_job(5000, 50'000));
  EXPECT_EQ(thread_->stats().reads, 13u);  // one a block
  EXPECT_EQ(thread_->stats().direct_fallbacks, 0u);
  thread_.reset();
  files_.use_buffered(FileId{0});
  faults.short_bytes = 1;
  expect_reads(start_with(faults), make_job(9000, 2000));
  EXPECT_EQ(thread_->stats().disk_bytes, 11'000 - block_floor(9000));
  EXPECT_EQ(thread_->stats().reads, thread_->stats().disk_bytes);
}

TEST_F(IoThreadTest, DirectReadsOfLessThanABlockGoOnThroughThePageCacheWithOneWarning) {
  test::Faults faults;
  for (const uint32_t bytes : {1u, 511u, 512u, 4095u}) {
    SCOPED_TRACE(bytes);
    faults.short_bytes = bytes;
    thread_.reset();
    const FileId file = add_file(kFileSize);
    IoThread& thread = start_with(faults);
    testing::internal::CaptureStderr();
    expect_reads(thread, make_job(5000, 50'000, file));
    expect_reads(thread, make_job(kFileSize - 3000, 3000, file));
    const std::string log = testing::internal::GetCapturedStderr();
    if (thread.stats().direct_fallbacks == 0) GTEST_SKIP() << "direct reads are refused here";
    EXPECT_TRUE(test::mentions(log, "direct reads bring less than a block"));
    EXPECT_EQ(std::count(log.begin(), log.end(), '\n'), 1);
    EXPECT_LE(thread.stats().direct_fallbacks, 4u);  // one of each piece at most
    EXPECT_FALSE(thread.stats().all_direct);
  }
}

TEST_F(IoThreadTest, AShortDirectReadThatEndsInsideABlockIsContinuedAtTheBlock) {
  test::Faults faults;
  faults.short_bytes = 4096 + 512;
  expect_reads(start_with(faults), make_job(5000, 50'000));  // the reader checks the alignment
  EXPECT_EQ(thread_->stats().reads, 13u);
}

TEST_F(IoThreadTest, AnEarlyEndInsideOfTheFileIsAnError) {
  test::Faults faults;
  faults.end_of_file_read = 2;
  IoThread& thread = start_with(faults);
  ReadJob& job = make_job(0, 60'000);
  thread.request(job, Lane::kUrgent);
  EXPECT_NE(failure(thread, job), "");
  EXPECT_EQ(job.error, ENODATA);
}

TEST_F(IoThreadTest, RefusedDirectReadsAreRepeatedThroughThePageCacheWithOneWarning) {
  test::Faults faults;
  faults.einval_every = 1;
  const FileId other = add_file(kFileSize);
  IoThread& thread = start_with(faults);
  testing::internal::CaptureStderr();
  expect_reads(thread, make_job(777, 400'000));
  expect_reads(thread, make_job(1'000'001, 400'000));
  expect_reads(thread, make_job(777, 400'000, other));
  const std::string log = testing::internal::GetCapturedStderr();
  if (control_->spoiled == 0) GTEST_SKIP() << "the file system refuses O_DIRECT by itself";
  EXPECT_NE(log.find(files_.path(FileId{0}).string()), std::string::npos) << log;
  EXPECT_EQ(std::count(log.begin(), log.end(), '\n'), 1);
  EXPECT_EQ(thread.stats().direct_fallbacks, control_->spoiled);
  EXPECT_FALSE(thread.stats().all_direct);
}

TEST_F(IoThreadTest, AnInvalidBufferedReadIsAnErrorAndNotRepeated) {
  files_.use_buffered(FileId{0});
  test::Faults faults;
  faults.fail_read = 1;
  faults.fail_errno = EINVAL;
  IoThread& thread = start_with(faults);
  ReadJob& job = make_job(0, 10);
  thread.request(job, Lane::kUrgent);
  EXPECT_NE(failure(thread, job).find("Invalid argument"), std::string::npos);
  EXPECT_EQ(thread.stats().direct_fallbacks, 0u);
}

TEST_F(IoThreadTest, CompletionsInAnyOrderGiveTheSameBytes) {
  test::Faults faults;
  faults.reorder = true;
  faults.short_bytes = 8192;
  for (faults.seed = 1; faults.seed <= 5; ++faults.seed) {
    IoThread& thread = start_with(faults);
    std::vector<ReadJob*> jobs;
    for (uint64_t i = 0; i < 10; ++i) jobs.push_back(&make_job(i * 50'000 + i, 90'000));
    for (ReadJob* job : jobs) thread.request(*job, Lane::kBackground);
    for (ReadJob* job : jobs) {
      thread.wait(*job);
      expect_payload(*job);
    }
  }
}

TEST_F(IoThreadTest, ACorruptByteIsPassedOnForTheChecksumToFind) {
  test::Faults faults;
  faults.corrupt_read = 1;
  IoThread& thread = start_with(faults);
  ReadJob& job = make_job(0, 100);
  thread.request(job, Lane::kUrgent);
  thread.wait(job);
  EXPECT_EQ(job.payload()[0], byte_at(0, 0) ^ std::byte{0x10});
}

TEST_F(IoThreadTest, InterruptEndsBlockedAndLaterWaitsButNotThoseOfDoneJobs) {
  test::Faults faults;
  faults.hang_read = 2;
  IoThread& thread = start_with(faults);
  ReadJob& done = make_job(0, 10);
  expect_reads(thread, done);
  ReadJob& hanging = make_job(10'000, 10);
  thread.request(hanging, Lane::kUrgent);
  std::thread interrupter([&] { thread.interrupt(); });
  EXPECT_NE(failure(thread, hanging, ErrorKind::kInterrupted), "");
  interrupter.join();
  EXPECT_NE(failure(thread, hanging, ErrorKind::kInterrupted), "");
  thread.wait(done);
  control_->release = true;  // the destructor waits for what is in flight
}

TEST_F(IoThreadTest, AWaitForAReadThatHangsEndsWithTheFailureOfAnother) {
  test::Faults faults;
  faults.hang_read = 1;
  faults.fail_read = 2;
  hang_time_ = std::chrono::milliseconds(20);
  IoThread& thread = start_with(faults);
  ReadJob& hanging = make_job(10'000, 10);
  ReadJob& failing = make_job(0, 10);
  thread.request(hanging, Lane::kUrgent);
  thread.request(failing, Lane::kUrgent);
  EXPECT_TRUE(test::mentions(failure(thread, hanging), "at 0 (10 bytes"));
  EXPECT_TRUE(test::mentions(failure(thread, failing), "at 0 (10 bytes"));
  control_->release = true;
}

TEST_F(IoThreadTest, AFailureThatSomebodyWasToldOfEndsNoLaterWait) {
  test::Faults faults;
  faults.fail_read = 1;
  faults.hang_read = 2;
  hang_time_ = std::chrono::milliseconds(20);
  IoThread& thread = start_with(faults);
  ReadJob& failing = make_job(0, 10);
  thread.request(failing, Lane::kUrgent);
  EXPECT_TRUE(test::mentions(failure(thread, failing), "at 0 (10 bytes"));
  ReadJob& slow = make_job(10'000, 10);
  thread.request(slow, Lane::kUrgent);
  std::thread releaser([&control = *control_] {
    while (!control.hanging) std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::milliseconds(100));  // several times the hang time
    control.release = true;
  });
  EXPECT_TRUE(test::mentions(failure(thread, slow), "at 10000 (10 bytes"));  // its own, in the end
  releaser.join();
}

TEST_F(IoThreadTest, TheDestructorWaitsForReadsInFlightAndDropsTheRest) {
  test::Faults faults;
  faults.hang_read = 1;
  control_ = std::make_shared<test::FaultControl>();
  IoThread& thread =
      start(std::make_unique<test::FaultReader>(make_pread_reader(1), faults, control_));
  thread.request(make_job(0, 10), Lane::kUrgent);
  thread.request(make_job(0, 10), Lane::kUrgent);  // not begun: one read in flight at once
  while (!control_->hanging) std::this_thread::yield();
  std::thread releaser([&control = *control_, wakes = control_->wakes.load()] {
    while (control.wakes == wakes) std::this_thread::yield();  // the destructor has begun
    control.release = true;
  });
  thread_.reset();
  releaser.join();
  EXPECT_EQ(control_->completed, 1u);
  EXPECT_EQ(control_->reads, 1u);
}

TEST_F(IoThreadTest, MoreFilesThanDescriptorsCanBeReadAtOnce) {
  std::vector<FileId> ids;
  for (size_t i = 0; i < 3 * FileTable::kOpenMax; ++i) ids.push_back(add_file(20'000));
  std::string why;
  auto reader = make_uring_reader(64, &why);
  if (reader == nullptr) GTEST_SKIP() << why;
  IoThread& thread = start(std::move(reader));
  std::vector<ReadJob*> jobs;
  for (const FileId id : ids) jobs.push_back(&make_job(100, 19'000, id));
  for (ReadJob* job : jobs) thread.request(*job, Lane::kUrgent);
  for (ReadJob* job : jobs) {
    thread.wait(*job);
    expect_payload(*job);
  }
  EXPECT_LE(thread.stats().max_reads_in_flight, 64u);
}

TEST_F(IoThreadTest, CountsReadsInFlightAndBusyAndWaitingTime) {
  IoThread& thread = start();
  EXPECT_EQ(thread.stats().max_reads_in_flight, 0u);
  expect_reads(thread, make_job(0, 1u << 20));
  const IoStats stats = thread.stats();
  EXPECT_EQ(stats.max_reads_in_flight, 8u);
  EXPECT_EQ(stats.reads, 64u);
  EXPECT_EQ(stats.disk_bytes, 1u << 20);
  EXPECT_GT(stats.busy_seconds, 0);
  EXPECT_GE(thread.wait_seconds(), 0);
  EXPECT_EQ(thread.reader_name(), "pread");
}

class RandomJobs : public IoThreadTest, public testing::WithParamInterface<const char*> {};

TEST_P(RandomJobs, TenThousandRandomJobsBringTheirBytes) {
  std::string why;
  auto reader =
      GetParam() == std::string("uring") ? make_uring_reader(32, &why) : make_pread_reader(32);
  if (reader == nullptr) GTEST_SKIP() << why;
  const FileId other = add_file(kFileSize);
  IoThread& thread = start(std::move(reader));
  std::mt19937 random(11);
  constexpr size_t kAtOnce = 50;
  constexpr uint64_t kLengthMax = 60'000;
  for (size_t i = 0; i < kAtOnce; ++i) make_job(0, kLengthMax + kBlockSize);
  for (size_t round = 0; round < 10'000 / kAtOnce; ++round) {
    for (ReadJob& job : jobs_) {
      job.file = random() % 2 == 0 ? FileId{0} : other;
      job.length = random() % 4 == 0 ? random() % kLengthMax : random() % 5000;
      job.offset = random() % (kFileSize - job.length);
      thread.request(job, random() % 2 == 0 ? Lane::kUrgent : Lane::kBackground);
    }
    for (ReadJob& job : jobs_) {
      thread.wait(job);
      expect_payload(job);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, RandomJobs, testing::Values("uring", "pread"),
                         [](const auto& test) { return std::string(test.param); });

}  // namespace
}  // namespace k3::io
