#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <mutex>
#include <vector>

#include "base/check.h"
#include "base/thread.h"
#include "io/block_reader.h"

namespace k3::io {
namespace {

constexpr size_t kThreadsMax = 16;  // drives of any kind are busy by then

// Both lists keep room for depth() entries from the start: nothing allocates while reading.
class PreadReader : public BlockReader {
 public:
  explicit PreadReader(size_t depth);
  ~PreadReader() override;

  std::string_view name() const override { return "pread"; }
  size_t depth() const override { return threads_.size(); }
  void submit(std::span<const ReadRequest> requests) override;
  size_t wait(std::span<ReadCompletion> out, std::chrono::milliseconds timeout) override;
  void wake() override;

 private:
  void work();
  void stop();

  std::mutex mutex_;  // guards all below but threads_
  std::condition_variable requested_;
  std::condition_variable completed_;
  std::vector<ReadRequest> requests_;  // not begun; in the order of submission from first_ on
  size_t first_ = 0;
  std::vector<ReadCompletion> completions_;
  bool woken_ = false;
  bool stopping_ = false;
  std::vector<Thread> threads_;
};

PreadReader::PreadReader(size_t depth) {
  const size_t threads = std::min(depth, kThreadsMax);
  requests_.reserve(threads);
  completions_.reserve(threads);
  threads_.reserve(threads);
  try {
    for (size_t i = 0; i < threads; ++i) threads_.emplace_back("k3-pread", [this] { work(); });
  } catch (...) {
    stop();
    throw;
  }
}

PreadReader::~PreadReader() {
  stop();
}

void PreadReader::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  requested_.notify_all();
  threads_.clear();
}

void PreadReader::submit(std::span<const ReadRequest> requests) {
  {
    const std::lock_guard lock(mutex_);
    requests_.erase(requests_.begin(), requests_.begin() + static_cast<ptrdiff_t>(first_));
    first_ = 0;
    K3_CHECK(requests_.size() + requests.size() <= depth());
    requests_.insert(requests_.end(), requests.begin(), requests.end());
  }
  for (size_t i = 0; i < requests.size(); ++i) requested_.notify_one();
}

void PreadReader::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    requested_.wait(lock, [this] { return stopping_ || first_ < requests_.size(); });
    if (stopping_) return;
    const ReadRequest request = requests_[first_++];
    lock.unlock();
    const ssize_t result =
        ::pread(request.fd, request.buffer, request.length, static_cast<off_t>(request.offset));
    const ReadCompletion completion{request.tag, result < 0 ? -errno : result};
    lock.lock();
    completions_.push_back(completion);
    completed_.notify_one();
  }
}

size_t PreadReader::wait(std::span<ReadCompletion> out, std::chrono::milliseconds timeout) {
  std::unique_lock lock(mutex_);
  completed_.wait_for(lock, timeout, [this] { return woken_ || !completions_.empty(); });
  woken_ = false;
  const size_t count = std::min(out.size(), completions_.size());
  const auto end = completions_.begin() + static_cast<ptrdiff_t>(count);
  std::copy(completions_.begin(), end, out.begin());
  completions_.erase(completions_.begin(), end);
  return count;
}

void PreadReader::wake() {
  {
    const std::lock_guard lock(mutex_);
    woken_ = true;
  }
  completed_.notify_one();
}

}  // namespace

std::unique_ptr<BlockReader> make_pread_reader(size_t depth) {
  K3_CHECK(depth >= 1);
  return std::make_unique<PreadReader>(depth);
}

}  // namespace k3::io
