#include "support/fault_reader.h"

#include <fcntl.h>

#include <algorithm>
#include <iterator>

#include "base/check.h"
#include "io/direct_file.h"

namespace k3::test {
namespace {

constexpr std::chrono::milliseconds kHangPoll{5};

bool is_direct(int fd) {
  return (::fcntl(fd, F_GETFL) & O_DIRECT) != 0;
}

}  // namespace

FaultReader::FaultReader(std::unique_ptr<io::BlockReader> inner, const Faults& faults,
                         std::shared_ptr<FaultControl> control)
    : inner_(std::move(inner)),
      faults_(faults),
      control_(std::move(control)),
      random_(faults.seed) {}

void FaultReader::submit(std::span<const io::ReadRequest> requests) {
  for (const io::ReadRequest& request : requests) submit_one(request);
}

void FaultReader::submit_one(const io::ReadRequest& request) {
  const uint64_t number = ++control_->reads;
  const bool direct = is_direct(request.fd);
  if (direct) {
    K3_CHECK(request.offset % io::kBlockSize == 0 && request.length % io::kBlockSize == 0);
    K3_CHECK(reinterpret_cast<uintptr_t>(request.buffer) % io::kBlockSize == 0);
  }
  if (number == faults_.fail_read) return end_early(request.tag, -faults_.fail_errno);
  if (number == faults_.end_of_file_read) return end_early(request.tag, 0);
  if (faults_.einval_every != 0 && number % faults_.einval_every == 0 && direct) {
    return end_early(request.tag, -EINVAL);
  }
  if (number == faults_.hang_read) {
    ++control_->spoiled;
    hanging_.push_back({request.tag, -EIO});
    control_->hanging = true;
    return;
  }
  pass_on(request, number, direct);
}

void FaultReader::pass_on(const io::ReadRequest& request, uint64_t number, bool direct) {
  io::ReadRequest passed = request;
  Spoil spoil;
  const bool cut = faults_.short_bytes != 0 && number <= faults_.short_until;
  if (cut && faults_.short_bytes < request.length) {
    ++control_->spoiled;
    const auto aligned = static_cast<uint32_t>(io::block_ceil(faults_.short_bytes));
    passed.length = direct ? aligned : faults_.short_bytes;
    spoil.kept = request.buffer + faults_.short_bytes;
    spoil.tail.assign(spoil.kept, request.buffer + passed.length);
    spoil.bytes_max = faults_.short_bytes;
  }
  if (number == faults_.corrupt_read) {
    ++control_->spoiled;
    spoil.corrupt = request.buffer;
  }
  spoils_[request.tag] = std::move(spoil);
  ++inner_in_flight_;
  inner_->submit({&passed, 1});
}

void FaultReader::end_early(uint64_t tag, int64_t result) {
  ++control_->spoiled;
  ready_.push_back({tag, result});
}

/// Moves what the inner reader has finished to ready_.
void FaultReader::collect(std::chrono::milliseconds timeout) {
  std::vector<io::ReadCompletion> completions(depth());
  completions.resize(inner_->wait(completions, timeout));
  inner_in_flight_ -= completions.size();
  for (io::ReadCompletion& completion : completions) {
    const Spoil& spoil = spoils_.at(completion.tag);
    completion.result = std::min(completion.result, spoil.bytes_max);
    std::copy(spoil.tail.begin(), spoil.tail.end(), spoil.kept);
    if (spoil.corrupt != nullptr) {
      for (int64_t i = 0; i < completion.result; ++i) spoil.corrupt[i] ^= std::byte{0x10};
    }
    ready_.push_back(completion);
  }
}

size_t FaultReader::wait(std::span<io::ReadCompletion> out, std::chrono::milliseconds timeout) {
  if (control_->release) {
    std::move(hanging_.begin(), hanging_.end(), std::back_inserter(ready_));
    hanging_.clear();
  }
  if (!hanging_.empty()) timeout = std::min(timeout, kHangPoll);
  if (ready_.empty()) collect(timeout);
  if (faults_.reorder) {
    while (inner_in_flight_ > 0) collect(timeout);  // nothing else is left to hold back for
    std::shuffle(ready_.begin(), ready_.end(), random_);
  }
  // One at a time when reordering, so that reads submitted meanwhile mix with these.
  const size_t count = std::min({out.size(), ready_.size(), faults_.reorder ? 1 : ready_.size()});
  std::copy_n(ready_.rbegin(), count, out.begin());
  ready_.resize(ready_.size() - count);
  control_->completed += count;
  return count;
}

void FaultReader::wake() {
  ++control_->wakes;
  inner_->wake();
}

}  // namespace k3::test
