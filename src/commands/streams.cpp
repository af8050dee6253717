#include "commands/streams.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>

#include "commands/interrupts.h"
#include "k3/error.h"

namespace k3::commands {
namespace {

// An interrupted process gives whoever reads its streams this many times so long to go on.
constexpr int kWaitMs = 100, kWaitsWhenInterrupted = 5;

enum class Stdout { kOpen, kReaderGone, kNotRead, kFailed };
Stdout stdout_state = Stdout::kOpen;

/// What occupy_closed_streams() left there, and not a file opened for reading alone.
bool stdout_was_closed() {
  return (::fcntl(STDOUT_FILENO, F_GETFL) & O_PATH) != 0;
}

/// False when the process was interrupted and nobody reads from `fd`.
bool wait_until_writable(int fd) {
  pollfd ready{.fd = fd, .events = POLLOUT, .revents = 0};
  for (int waits = 0; waits < kWaitsWhenInterrupted;) {
    if (::poll(&ready, 1, kWaitMs) > 0) return true;
    if (interrupted()) ++waits;
  }
  return false;
}

/// Writes all of it, in pieces for which a pipe that is writable has room: no write blocks. 0, or
/// the error: ETIMEDOUT as wait_until_writable().
int write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    if (!wait_until_writable(fd)) return ETIMEDOUT;
    const ssize_t written = ::write(fd, text.data(), std::min<size_t>(text.size(), PIPE_BUF));
    if (written >= 0) {
      text.remove_prefix(static_cast<size_t>(written));
    } else if (errno != EINTR && errno != EAGAIN && errno != EWOULDBLOCK) {
      return errno;
    }
  }
  return 0;
}

}  // namespace

void occupy_closed_streams() {
  for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; ++fd) {
    if (::fcntl(fd, F_GETFD) < 0) ::open("/", O_PATH);  // the lowest free: fd
  }
}

void say(std::string_view text) {
  write_all(STDERR_FILENO, text);
}

void print(std::string_view text) {
  if (stdout_state != Stdout::kOpen) return;
  const int error = write_all(STDOUT_FILENO, text);
  if (error == EPIPE || (error == EBADF && stdout_was_closed())) {
    stdout_state = Stdout::kReaderGone;
  } else if (error == ETIMEDOUT) {
    stdout_state = Stdout::kNotRead;
  } else if (error != 0) {
    stdout_state = Stdout::kFailed;
    throw Error(ErrorKind::kInternal,
                fmt::format("writing the result to stdout failed: {}", std::strerror(error)));
  }
}

bool reader_gone() {
  return stdout_state == Stdout::kReaderGone;
}

bool stdout_not_read() {
  return stdout_state == Stdout::kNotRead;
}

const char* clear_line() {
  return ::isatty(STDERR_FILENO) != 0 ? "\r\x1b[K" : "";
}

}  // namespace k3::commands
