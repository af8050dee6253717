// A BlockReader that passes reads on to another one and spoils some of them.
//
// It is also stricter than most drives: a direct read that is not aligned to blocks is a failed
// check.
//
// In scope: errors, EINVAL for direct reads, short reads, an early end of the file, completions
// that come late and out of order, flipped bits, a read that never ends. Out of scope: the
// errors of opening files, and of submitting itself.
#pragma once

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <memory>
#include <random>
#include <unordered_map>
#include <vector>

#include "io/block_reader.h"

namespace k3::test {

/// Which reads to spoil. Reads are numbered from 1 in the order of submission, those that continue
/// or repeat others included; 0 means never.
struct Faults {
  uint64_t fail_read = 0;  // this read ends with -fail_errno
  int fail_errno = EIO;
  uint64_t einval_every = 0;  // each k-th read is refused with EINVAL if its descriptor is direct
  uint64_t end_of_file_read = 0;      // this read ends with 0 bytes
  uint32_t short_bytes = 0;           // reads bring at most so many bytes, direct ones too
  uint64_t short_until = UINT64_MAX;  // but not those after this one
  uint64_t corrupt_read = 0;          // a bit of every byte that this read brings is flipped
  uint64_t hang_read = 0;  // this read ends with EIO, and only after FaultControl::release
  bool reorder = false;    // completions are held back as long as possible, then shuffled
  uint64_t seed = 1;       // of the shuffle
};

/// What a test shares with the reader that it gave away; safe from any thread.
struct FaultControl {
  std::atomic<uint64_t> reads{0};      // submitted
  std::atomic<uint64_t> completed{0};  // handed out by wait()
  std::atomic<uint64_t> spoiled{0};    // by one of the faults but reorder
  std::atomic<uint64_t> wakes{0};      // calls of wake()
  std::atomic<bool> hanging{false};    // hang_read was submitted
  std::atomic<bool> release{false};    // lets hang_read end, at the next wait()
};

class FaultReader : public io::BlockReader {
 public:
  FaultReader(std::unique_ptr<io::BlockReader> inner, const Faults& faults,
              std::shared_ptr<FaultControl> control);

  std::string_view name() const override { return "fault"; }
  size_t depth() const override { return inner_->depth(); }
  void submit(std::span<const io::ReadRequest> requests) override;
  size_t wait(std::span<io::ReadCompletion> out, std::chrono::milliseconds timeout) override;
  void wake() override;

 private:
  /// What to do to a read that the inner reader completes.
  struct Spoil {
    int64_t bytes_max = INT64_MAX;
    std::byte* kept = nullptr;  // what lies behind a short read stays as it was
    std::vector<std::byte> tail;
    std::byte* corrupt = nullptr;
  };
  void submit_one(const io::ReadRequest& request);
  void pass_on(const io::ReadRequest& request, uint64_t number, bool direct);
  void end_early(uint64_t tag, int64_t result);
  void collect(std::chrono::milliseconds timeout);

  std::unique_ptr<io::BlockReader> inner_;
  const Faults faults_;
  const std::shared_ptr<FaultControl> control_;
  std::mt19937_64 random_;
  size_t inner_in_flight_ = 0;
  std::vector<io::ReadCompletion> ready_;  // to be handed out, from the back
  std::vector<io::ReadCompletion> hanging_;
  std::unordered_map<uint64_t, Spoil> spoils_;  // by tag, of reads passed on
};

}  // namespace k3::test
