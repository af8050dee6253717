#include "base/thread.h"

#include <fmt/format.h>
#include <signal.h>

#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "base/check.h"
#include "k3/error.h"

namespace k3 {
namespace {

// ThreadSanitizer keeps several hundred kilobytes of its own in every stack.
#if defined(__SANITIZE_THREAD__)
constexpr size_t kStackBytes = 2048 * 1024;
#else
constexpr size_t kStackBytes = 512 * 1024;
#endif

struct Start {
  std::string name;
  std::function<void()> body;
};

void* thread_main(void* argument) {
  const std::unique_ptr<Start> start(static_cast<Start*>(argument));
  pthread_setname_np(pthread_self(), start->name.substr(0, 15).c_str());
  start->body();
  return nullptr;
}

/// pthread_create with our stack size; the new thread inherits a mask of all signals.
int create_thread(pthread_t* handle, Start* start) {
  pthread_attr_t attributes;
  K3_CHECK(pthread_attr_init(&attributes) == 0);
  K3_CHECK(pthread_attr_setstacksize(&attributes, kStackBytes) == 0);
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  const int error = pthread_create(handle, &attributes, thread_main, start);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  pthread_attr_destroy(&attributes);
  return error;
}

}  // namespace

Thread::Thread(const char* name, std::function<void()> body) {
  auto start = std::make_unique<Start>(Start{name, std::move(body)});
  if (const int error = create_thread(&handle_, start.get()); error != 0) {
    throw Error(
        ErrorKind::kInternal,
        fmt::format("cannot start thread {}: {}; raise the limit of processes (ulimit -u), or "
                    "end some",
                    name, std::strerror(error)));
  }
  start.release();  // thread_main owns it
  joinable_ = true;
}

Thread::Thread(Thread&& other) noexcept
    : handle_(other.handle_), joinable_(std::exchange(other.joinable_, false)) {}

Thread& Thread::operator=(Thread&& other) noexcept {
  join();
  handle_ = other.handle_;
  joinable_ = std::exchange(other.joinable_, false);
  return *this;
}

void Thread::join() {
  if (std::exchange(joinable_, false)) K3_CHECK(pthread_join(handle_, nullptr) == 0);
}

}  // namespace k3
