#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <string>

#include "commands/progress.h"

namespace {

using k3::commands::Progress;
using std::chrono::milliseconds;

/// Feeds a Progress with an update every 100 ms of a clock that the test moves.
std::string shown(Progress::Mode mode, int seconds, int line_ends_at = -1) {
  std::array<int, 2> pipe;
  EXPECT_EQ(::pipe(pipe.data()), 0);
  Progress::Time now;
  {
    Progress progress(mode, pipe[1], [&] { return now; });
    for (int tenth = 0; tenth <= seconds * 10; ++tenth) {
      progress.update([&] { return std::to_string(tenth); });
      if (tenth == line_ends_at * 10) progress.end_moving_line();
      now += milliseconds(100);
    }
  }
  ::close(pipe[1]);
  std::string text(65536, '\0');
  const ssize_t got = ::read(pipe[0], text.data(), text.size());
  ::close(pipe[0]);
  text.resize(static_cast<size_t>(std::max<ssize_t>(got, 0)));
  return text;
}

TEST(Progress, ALogGetsPlainLinesAtOneSecondAndThenEveryThirty) {
  EXPECT_EQ(shown(Progress::Mode::kLog, 62), "10\n310\n610\n");
}

TEST(Progress, ATerminalGetsOneMovingLineThatIsClearedAtTheEnd) {
  EXPECT_EQ(shown(Progress::Mode::kTerminal, 2), "\r10\x1b[K\r15\x1b[K\r20\x1b[K\r\x1b[K");
}

TEST(Progress, AMovingLineGivesWayToTextAndDoesNotComeBack) {
  EXPECT_EQ(shown(Progress::Mode::kTerminal, 9, 1), "\r10\x1b[K\r\x1b[K");
  EXPECT_EQ(shown(Progress::Mode::kTerminal, 9, 0), "");
  EXPECT_EQ(shown(Progress::Mode::kLog, 62, 1), "10\n310\n610\n");
}

TEST(Progress, ShortJobsAndSilentOnesSayNothing) {
  EXPECT_EQ(shown(Progress::Mode::kTerminal, 0), "");
  EXPECT_EQ(shown(Progress::Mode::kSilent, 100), "");
}

TEST(Progress, RemainingTimeScalesWhatHasPassed) {
  EXPECT_EQ(k3::commands::remaining_time(10, 1, 4), "30 s");
  EXPECT_EQ(k3::commands::remaining_time(100, 1, 3), "3 min 20 s");
  EXPECT_EQ(k3::commands::remaining_time(3600, 1, 3), "2 h 0 min");
  EXPECT_EQ(k3::commands::remaining_time(10, 0, 4), "unknown");
}

}  // namespace
