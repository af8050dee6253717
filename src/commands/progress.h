// Progress of a long job on stderr: a moving line on a terminal, a plain line now and then in a
// log, nothing with -q. Jobs that end within a second stay silent.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <string_view>

namespace k3::commands {

class Progress {
 public:
  enum class Mode { kSilent, kTerminal, kLog };
  using Time = std::chrono::steady_clock::time_point;

  /// stderr, as a terminal or as a log.
  explicit Progress(bool quiet);
  /// For tests: any descriptor, any clock.
  Progress(Mode mode, int fd, std::function<Time()> now);
  /// Clears the moving line.
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// Shows format() (one line, no line end) if a line is due: the first after a second, then two a
  /// second on a terminal, one in 30 seconds in a log.
  template <typename Format>
  void update(Format&& format) {
    if (due()) show(format());
  }

  /// Clears the moving line and shows no other; the lines of a log go on.
  void end_moving_line();

  double seconds() const;  // since construction

 private:
  bool due() const;
  void show(std::string_view line);

  Mode mode_;
  int fd_;
  std::function<Time()> now_;
  Time start_;
  Time next_;
  bool line_open_ = false;
};

/// "3 min 20 s", "45 s": what is left of a job that has done `done` of `total` in `seconds`.
std::string remaining_time(double seconds, uint64_t done, uint64_t total);

}  // namespace k3::commands
