#include "base/log.h"

#include <gtest/gtest.h>

#include <string>

#include "base/check.h"

namespace k3 {
namespace {

class Log : public testing::Test {
 protected:
  ~Log() override { log::set_level(log::Level::kInfo); }

  std::string all_messages_at(log::Level level) {
    log::set_level(level);
    testing::internal::CaptureStderr();
    testing::internal::CaptureStdout();
    log::error("one");
    log::warn("two");
    log::info("three");
    log::debug("four {} %s");
    EXPECT_EQ(testing::internal::GetCapturedStdout(), "");
    return testing::internal::GetCapturedStderr();
  }
};

TEST_F(Log, WritesOneLinePerMessageToStderrAlone) {
  EXPECT_EQ(all_messages_at(log::Level::kDebug),
            "error: one\nwarning: two\ninfo: three\ndebug: four {} %s\n");
}

TEST_F(Log, LeavesOutWhatIsBelowTheLevel) {
  EXPECT_EQ(all_messages_at(log::Level::kInfo), "error: one\nwarning: two\ninfo: three\n");
  EXPECT_EQ(all_messages_at(log::Level::kWarn), "error: one\nwarning: two\n");
  EXPECT_EQ(all_messages_at(log::Level::kError), "error: one\n");
  EXPECT_EQ(log::level(), log::Level::kError);
}

TEST(CheckDeathTest, AFailedCheckNamesItsPlaceAndAborts) {
  K3_CHECK(1 + 1 == 2);
  EXPECT_DEATH(K3_CHECK(1 + 1 == 3), "log_test.cpp:[0-9]+: check failed: 1 \\+ 1 == 3");
}

}  // namespace
}  // namespace k3
