#include "commands/progress.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cmath>

namespace k3::commands {
namespace {

constexpr std::chrono::milliseconds kFirst{1000};
constexpr std::chrono::milliseconds kTerminalInterval{500};
constexpr std::chrono::milliseconds kLogInterval{30'000};

size_t terminal_width(int fd) {
  winsize size{};
  if (::ioctl(fd, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return 80;
  return size.ws_col;
}

/// A line that is lost, or that nobody reads, is no reason to stop a job.
void write_line(int fd, const std::string& text) {
  pollfd ready{.fd = fd, .events = POLLOUT, .revents = 0};
  if (::poll(&ready, 1, 0) != 1) return;
  [[maybe_unused]] const ssize_t ignored = ::write(fd, text.data(), text.size());
}

}  // namespace

Progress::Progress(bool quiet)
    : Progress(quiet                     ? Mode::kSilent
               : ::isatty(STDERR_FILENO) ? Mode::kTerminal
                                         : Mode::kLog,
               STDERR_FILENO, [] { return std::chrono::steady_clock::now(); }) {}

Progress::Progress(Mode mode, int fd, std::function<Time()> now)
    : mode_(mode), fd_(fd), now_(std::move(now)), start_(now_()), next_(start_ + kFirst) {}

Progress::~Progress() {
  end_moving_line();
}

void Progress::end_moving_line() {
  if (mode_ != Mode::kTerminal) return;
  mode_ = Mode::kSilent;
  if (line_open_) write_line(fd_, "\r\x1b[K");
}

double Progress::seconds() const {
  return std::chrono::duration<double>(now_() - start_).count();
}

bool Progress::due() const {
  return mode_ != Mode::kSilent && now_() >= next_;
}

void Progress::show(std::string_view line) {
  if (mode_ == Mode::kTerminal) {
    // A line as wide as the terminal would wrap, and the next one could not replace it.
    write_line(fd_, fmt::format("\r{}\x1b[K", line.substr(0, terminal_width(fd_) - 1)));
    line_open_ = true;
  } else {
    write_line(fd_, fmt::format("{}\n", line));
  }
  next_ = now_() + (mode_ == Mode::kTerminal ? kTerminalInterval : kLogInterval);
}

std::string remaining_time(double seconds, uint64_t done, uint64_t total) {
  if (done == 0) return "unknown";
  const double left = seconds * (static_cast<double>(total) / static_cast<double>(done) - 1);
  const auto whole = static_cast<uint64_t>(std::lround(std::max(left, 0.0)));
  if (whole >= 3600) return fmt::format("{} h {} min", whole / 3600, whole % 3600 / 60);
  if (whole >= 60) return fmt::format("{} min {} s", whole / 60, whole % 60);
  return fmt::format("{} s", whole);
}

}  // namespace k3::commands
