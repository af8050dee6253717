// A fixed set of threads that run ranges of one task together with the caller.
//
// No allocation and no lock per task: a task is published by one atomic store, threads spin for it
// for a bounded time and then sleep, so that a run that waits for its drive leaves the cores idle.
// Not re-entrant: one task at a time, always started by the same thread.
#pragma once

#include <cstddef>
#include <memory>
#include <type_traits>

namespace k3 {

class ThreadPool {
 public:
  /// `threads` includes the caller; 1 starts none.
  explicit ThreadPool(size_t threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  size_t threads() const;

  /// Calls body(begin, end) on disjoint ranges that cover [0, count), each begin (but the first)
  /// a multiple of `grain`; at most threads() ranges. Returns when all are done. body must not
  /// throw.
  template <typename Body>
  void parallel_for(size_t count, size_t grain, Body&& body) {
    auto call = [](void* context, size_t begin, size_t end, size_t range) {
      auto& run_body = *static_cast<std::remove_reference_t<Body>*>(context);
      if constexpr (std::is_invocable_v<Body, size_t, size_t, size_t>) {
        run_body(begin, end, range);
      } else {
        run_body(begin, end);
      }
    };
    run(count, grain, call, &body);
  }

 private:
  using Call = void (*)(void* context, size_t begin, size_t end, size_t range);
  void run(size_t count, size_t grain, Call call, void* context);

  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace k3
