// The thread that talks to the drive. Computing threads never submit a read: they hand a ReadJob to
// this thread (a push to a queue) and later wait for it.
//
// A job is one byte range of one file. It is widened to block boundaries, cut into pieces of at
// most piece_bytes, and done when every piece has arrived. Urgent jobs (experts, embedding rows) go
// first; background jobs (trunk read-ahead) fill the rest of the queue depth; within a lane jobs
// are read in the order of request. Short reads are continued; a direct read refused with EINVAL,
// or short of a block again and again, goes on through the page cache (dropped afterwards) and is
// counted; any other failure ends the job and is thrown, as Error(kRead) with path, offset, length
// and job.what, from wait().
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include "io/block_reader.h"
#include "io/file_table.h"

namespace k3::io {

enum class Lane : uint8_t { kUrgent, kBackground };

/// Owned by the caller, at one address from request() until the job has ended (that a wait() was
/// interrupted is not enough); one that failed, as long as others are waited for.
struct ReadJob {
  // Set by the caller.
  FileId file{};
  uint64_t offset = 0;  // payload range, any alignment
  uint64_t length = 0;
  std::byte* buffer = nullptr;  // kBlockSize-aligned, at least buffer_bytes(offset, length)
  std::string (*what)(const ReadJob&) = nullptr;  // for messages: "layer 3, expert 17"; may be null
  const void* context = nullptr;                  // for what()
  uint64_t context_id = 0;                        // for what()

  /// Where the payload starts in the buffer.
  std::byte* payload() const { return buffer + offset % kBlockSize; }
  static uint64_t buffer_bytes(uint64_t offset, uint64_t length) {
    return block_ceil(offset + length) - block_floor(offset);
  }

  // Set by the thread; read through IoThread.
  std::atomic<uint32_t> pieces_left{0};
  int error = 0;  // errno of the first failure, or 0; ENODATA at an early end of file
  uint64_t error_offset = 0;
};

struct IoStats {
  uint64_t disk_bytes = 0;  // read with widening
  uint64_t reads = 0;
  uint64_t max_reads_in_flight = 0;
  uint64_t direct_fallbacks = 0;  // direct reads that were repeated through the page cache
  double busy_seconds = 0;        // with at least one read in flight
  bool all_direct = true;         // no file was read through the page cache
};

class IoThread {
 public:
  struct Options {
    uint32_t piece_bytes = 1u << 20;
    size_t queue_jobs = 4096;  // jobs that may be requested and unfinished at once
    // After a failed job, a wait in which no read ends for so long takes the others to hang.
    std::chrono::milliseconds hang_time{2000};
  };

  /// Takes the reader; `files` outlives this object and is touched by this thread alone from now
  /// on.
  IoThread(std::unique_ptr<BlockReader> reader, FileTable& files, Options options);
  /// Waits for the reads in flight, drops the rest.
  ~IoThread();

  void request(ReadJob& job, Lane lane);
  /// True when the job has ended, well or not.
  static bool done(const ReadJob& job);
  /// Blocks until the job has ended; throws Error(kRead) if it failed, Error(kInterrupted) when
  /// interrupt() was called meanwhile. When another job has failed and no read comes back any more,
  /// throws the failure of that one: a drive that fails often hangs too.
  void wait(ReadJob& job);
  /// Blocks until the job has ended, well or not, and even after interrupt(): then nothing writes
  /// to its memory any more.
  void settle(ReadJob& job);
  /// Makes every present and future wait() that would block throw Error(kInterrupted). Safe from a
  /// signal-watching thread; not from a signal handler.
  void interrupt();

  /// The file of a job, for messages.
  const std::filesystem::path& path(const ReadJob& job) const;
  /// Seconds that callers spent blocked in wait().
  double wait_seconds() const;
  IoStats stats() const;
  std::string_view reader_name() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace k3::io
