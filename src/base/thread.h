// A named thread with a small stack, joined at the end of its scope.
//
// The stack is below 2 MiB on purpose: with transparent huge pages always on, the first touch of a
// default 8 MiB stack can make 2 MiB resident, once per thread, and the budget counts it. All
// signals are blocked in it, so that handlers run in the main thread alone.
#pragma once

#include <pthread.h>

#include <functional>

namespace k3 {

class Thread {
 public:
  Thread() = default;
  /// `name` is cut to 15 characters. Throws Error(kInternal) where the system refuses.
  Thread(const char* name, std::function<void()> body);
  Thread(Thread&& other) noexcept;
  Thread& operator=(Thread&& other) noexcept;
  ~Thread() { join(); }

  void join();

 private:
  pthread_t handle_{};
  bool joinable_ = false;
};

}  // namespace k3
