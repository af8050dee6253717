#include "weights/ordered_work.h"

#include <array>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <utility>

#include "base/thread.h"

namespace k3::weights {
namespace {

/// Index i uses slot i % kWorkSlots, which is free once index i - kWorkSlots was taken.
class OrderedWork {
 public:
  OrderedWork(uint64_t begin, uint64_t end, const std::function<void(const WorkItem&)>& make)
      : end_(end), make_(make), next_(begin), taken_(begin) {
    try {
      for (size_t i = 0; i < kWorkThreads; ++i) {
        threads_[i] = Thread("k3-pack", [this, i] { work(i); });
      }
    } catch (...) {
      stop();  // those that did start are joined next
      throw;
    }
  }
  ~OrderedWork() { stop(); }

  /// Waits for the result of `index`, the next one; throws what its making threw.
  WorkItem wait(uint64_t index) {
    std::unique_lock lock(mutex_);
    Slot& slot = slots_[index % kWorkSlots];
    changed_.wait(lock, [&] { return slot.ready; });
    if (slot.failure) std::rethrow_exception(slot.failure);
    return {index, index % kWorkSlots, slot.thread};
  }

  void release(uint64_t index) {
    {
      const std::lock_guard lock(mutex_);
      slots_[index % kWorkSlots].ready = false;
      taken_ = index + 1;
    }
    changed_.notify_all();
  }

 private:
  void stop() {
    {
      const std::lock_guard lock(mutex_);
      stopped_ = true;
    }
    changed_.notify_all();
  }

  struct Slot {
    bool ready = false;
    size_t thread = 0;
    std::exception_ptr failure;
  };

  void work(size_t thread) {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [&] { return stopped_ || next_ == end_ || next_ < taken_ + kWorkSlots; });
      if (stopped_ || next_ == end_) return;
      const uint64_t index = next_++;
      lock.unlock();
      std::exception_ptr failure = make({index, index % kWorkSlots, thread});
      lock.lock();
      slots_[index % kWorkSlots] = {true, thread, std::move(failure)};
      changed_.notify_all();
    }
  }

  std::exception_ptr make(const WorkItem& item) {
    try {
      make_(item);
    } catch (...) {
      return std::current_exception();
    }
    return nullptr;
  }

  const uint64_t end_;
  const std::function<void(const WorkItem&)>& make_;

  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  uint64_t next_;   // the next index to make
  uint64_t taken_;  // all before this index were taken
  bool stopped_ = false;
  std::array<Slot, kWorkSlots> slots_;

  std::array<Thread, kWorkThreads> threads_;  // last: they use all of the above
};

}  // namespace

void run_in_order(uint64_t begin, uint64_t end, const std::function<void(const WorkItem&)>& make,
                  const std::function<void(const WorkItem&)>& take) {
  OrderedWork work(begin, end, make);
  for (uint64_t index = begin; index < end; ++index) {
    take(work.wait(index));
    work.release(index);
  }
}

}  // namespace k3::weights
