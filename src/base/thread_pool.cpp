#include "base/thread_pool.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <vector>

#include "base/check.h"
#include "base/thread.h"

namespace k3 {
namespace {

// A sleeping thread takes 50 us or so to run again; the gap between two products of a step is a few
// us. Spinning for about as long as a wake-up costs is never worse than twice the best choice.
constexpr auto kSpinTime = std::chrono::microseconds(40);
constexpr int kPausesPerClockRead = 32;

inline void cpu_pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

/// Waits until `ready(value)` holds, spinning first and then asleep; needs a notify after a change.
template <typename Ready>
void spin_then_wait(std::atomic<uint32_t>& word, Ready ready) {
  const auto deadline = std::chrono::steady_clock::now() + kSpinTime;
  do {
    for (int i = 0; i < kPausesPerClockRead; ++i) {
      if (ready(word.load(std::memory_order_acquire))) return;
      cpu_pause();
    }
    // With fewer free cores than threads, whom we wait for may need this one. Measured on 2 cores
    // with 6 other busy processes: 5 us for a task of two threads, 100 without yielding.
    ::sched_yield();
  } while (std::chrono::steady_clock::now() < deadline);
  for (uint32_t value; !ready(value = word.load(std::memory_order_acquire));) word.wait(value);
}

}  // namespace

struct ThreadPool::State {
  // The task: written by the caller while no worker runs, read after `generation` has changed.
  Call call = nullptr;
  void* context = nullptr;
  size_t count = 0;
  size_t grain = 1;
  size_t ranges = 0;
  bool stop = false;

  alignas(64) std::atomic<uint32_t> generation{0};  // one more for each task
  alignas(64) std::atomic<uint32_t> working{0};     // workers that have not finished the task
  std::vector<Thread> workers;

  void run_range(size_t range) const {
    const size_t units = (count - 1) / grain + 1;
    const size_t begin = units * range / ranges * grain;
    const size_t end = std::min(count, units * (range + 1) / ranges * grain);
    call(context, begin, end, range);
  }

  // Both changes are read-modify-writes, sequentially consistent: notify looks for sleepers next,
  // and that look must not come before the change.
  void publish() {
    working.store(static_cast<uint32_t>(workers.size()), std::memory_order_relaxed);
    generation.fetch_add(1);
    generation.notify_all();
  }
  void finish_one() {
    if (working.fetch_sub(1) == 1) working.notify_one();
  }
  void wait_for_workers() {
    spin_then_wait(working, [](uint32_t left) { return left == 0; });
  }

  void work(size_t index) {
    for (uint32_t seen = 0;; ++seen) {
      spin_then_wait(generation, [seen](uint32_t now) { return now != seen; });
      if (stop) return;
      if (index < ranges) run_range(index);
      finish_one();
    }
  }

  void stop_workers() {
    stop = true;
    publish();
    workers.clear();
  }
};

ThreadPool::ThreadPool(size_t threads) : state_(std::make_unique<State>()) {
  K3_CHECK(threads >= 1);
  state_->workers.reserve(threads - 1);
  try {
    for (size_t i = 1; i < threads; ++i) {
      state_->workers.emplace_back("k3-compute", [state = state_.get(), i] { state->work(i); });
    }
  } catch (...) {
    state_->stop_workers();
    throw;
  }
}

ThreadPool::~ThreadPool() {
  state_->stop_workers();
}

size_t ThreadPool::threads() const {
  return state_->workers.size() + 1;
}

void ThreadPool::run(size_t count, size_t grain, Call call, void* context) {
  K3_CHECK(grain > 0);
  if (count == 0) return;
  const size_t ranges = std::min(threads(), (count - 1) / grain + 1);
  if (ranges == 1) return call(context, 0, count, 0);  // nobody to wake
  State& state = *state_;
  state.call = call;
  state.context = context;
  state.count = count;
  state.grain = grain;
  state.ranges = ranges;
  state.publish();
  state.run_range(0);
  state.wait_for_workers();
}

}  // namespace k3
