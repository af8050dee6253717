#include "commands/interrupts.h"

#include <fmt/format.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdint>
#include <ctime>
#include <string>

#include "commands/streams.h"

namespace k3::commands {
namespace {

// A terminal that closes, timeout(1) and a service that is stopped mean the same as Ctrl-C.
constexpr int kInterrupts[] = {SIGINT, SIGTERM, SIGHUP};
// What comes twice within this time was meant once: timeout(1) signals its child and then the group
// that the child is in.
constexpr int64_t kSameInterruptMs = 200;

// Written by the signal handler, read by the computing and the watching thread: a sig_atomic_t is
// for one thread only.
std::atomic<int> interrupt_signal = 0;    // the first one
std::atomic<int64_t> interrupted_at = 0;  // by now_ms()
static_assert(std::atomic<int>::is_always_lock_free && std::atomic<int64_t>::is_always_lock_free);

/// What the signal handler says before it ends the process; never destroyed, since an interrupt may
/// come while the process ends.
std::string& last_words = *new std::string;

int64_t now_ms() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);  // may be called in a signal handler
  return int64_t{now.tv_sec} * 1000 + now.tv_nsec / 1'000'000;
}

/// True for the first one.
bool note_interrupt(int signal) {
  int none = 0;
  if (!interrupt_signal.compare_exchange_strong(none, signal)) return false;
  interrupted_at = now_ms();
  return true;
}

void end_now(int signal) {
  note_interrupt(signal);
  say(last_words);
  ::_exit(128 + signal);
}

void end_at_the_second(int signal) {
  if (!note_interrupt(signal) && now_ms() - interrupted_at >= kSameInterruptMs) end_now(signal);
}

/// What was ignored when the process started, as in a background job of a script or under nohup,
/// stays so.
void on_interrupt(void (*handler)(int)) {
  struct sigaction action {};
  ::sigemptyset(&action.sa_mask);
  for (const int signal : kInterrupts) ::sigaddset(&action.sa_mask, signal);
  action.sa_handler = handler;
  for (const int signal : kInterrupts) {
    struct sigaction present {};
    ::sigaction(signal, nullptr, &present);
    if (present.sa_handler != SIG_IGN) ::sigaction(signal, &action, nullptr);
  }
}

void set_last_words(const char* message) {
  on_interrupt(SIG_DFL);  // the handler must not see the text change
  last_words = fmt::format("{}k3: {}\n", clear_line(), message);
}

}  // namespace

void end_on_interrupt(const char* message) {
  set_last_words(message);
  on_interrupt(end_now);
}

void watch_interrupts() {
  set_last_words("interrupted again: ended at once, nothing was saved");
  on_interrupt(end_at_the_second);
}

bool interrupted() {
  return interrupt_signal != 0;
}

int code_of(ErrorKind kind) {
  const int signal = interrupt_signal;
  return kind == ErrorKind::kInterrupted && signal != 0 ? 128 + signal : exit_code(kind);
}

}  // namespace k3::commands
