// The seam between the engine and the drive: submit reads, wait for completions. Implementations:
// io_uring, a pool of pread threads and, in tests, one that injects faults.
//
// One thread submits and waits; wake() may come from any thread. A reader does exactly what it is
// asked: one read a request, short results and errors are returned, never retried. Retries,
// splitting and fallbacks are IoThread's.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "k3/units.h"

namespace k3::io {

struct ReadRequest {
  int fd = -1;
  uint64_t offset = 0;
  std::byte* buffer = nullptr;  // for a direct fd: all three aligned to the file's alignment
  uint32_t length = 0;
  uint64_t tag = 0;  // returned in the completion; not UINT64_MAX
};

struct ReadCompletion {
  uint64_t tag = 0;
  int64_t result = 0;  // bytes read (0 at the end of the file), or -errno
};

class BlockReader {
 public:
  /// No read may be in flight: the drive would still write into its buffer.
  virtual ~BlockReader() = default;

  virtual std::string_view name() const = 0;  // "uring", "pread"
  /// Reads that may be in flight at once.
  virtual size_t depth() const = 0;
  /// Starts reads; the caller keeps at most depth() in flight. Does not wait for the drive.
  virtual void submit(std::span<const ReadRequest> requests) = 0;
  /// Waits until there is a completion, wake() was called or `timeout` has passed; returns how many
  /// of `out` were filled.
  virtual size_t wait(std::span<ReadCompletion> out, std::chrono::milliseconds timeout) = 0;
  virtual void wake() = 0;
};

/// Reads under way at once, in a run and in what `doctor` measures a drive with.
constexpr size_t kQueueDepth = 64;

/// io_uring; null (with a reason in *why) where the kernel or a sandbox refuses it.
std::unique_ptr<BlockReader> make_uring_reader(size_t depth, std::string* why);
/// A pool of pread threads; its depth is their number, at most 16.
std::unique_ptr<BlockReader> make_pread_reader(size_t depth);
/// K3_IO=uring|pread forces one (Error(kUsage) on another value or where it is refused); otherwise
/// io_uring where it works, else pread. `fallback_reason` is set when io_uring was refused.
std::unique_ptr<BlockReader> make_reader(size_t depth, std::string* fallback_reason);

}  // namespace k3::io
