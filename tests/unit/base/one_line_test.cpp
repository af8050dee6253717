#include "base/one_line.h"

#include <gtest/gtest.h>

#include "base/log.h"
#include "k3/error.h"

namespace k3 {
namespace {

TEST(OneLine, LeavesTextOfAnyLanguageAsItIs) {
  for (const char* text : {"", "plain text", "naïve", "模型/分片.safetensors", "😀 \xEF\xBF\xBD",
                           "\xF4\x8F\xBF\xBF", "C:\\x \"quoted\""}) {
    EXPECT_EQ(one_line(text), text);
  }
}

TEST(OneLine, ShowsWhatActsOnATerminalOrBreaksALine) {
  EXPECT_EQ(one_line("a\nb\r\tc"), "a\\x0ab\\x0d\\x09c");
  EXPECT_EQ(one_line("\x1b[31m\x07\x7f"), "\\x1b[31m\\x07\\x7f");
  EXPECT_EQ(one_line(std::string_view("a\0b", 3)), "a\\x00b");
  EXPECT_EQ(one_line("\xC2\x9B"
                     "31m"),
            "\\xc2\\x9b31m");                   // CSI of C1
  EXPECT_EQ(one_line("\xC2\xA0"), "\xC2\xA0");  // the first after C1
  EXPECT_EQ(one_line("\xE2\x80\xA8 \xE2\x80\xA9"), "\\xe2\\x80\\xa8 \\xe2\\x80\\xa9");
  for (const char* turn : {"\xE2\x80\xAE", "\xE2\x80\xAA", "\xE2\x81\xA6", "\xE2\x81\xA9"}) {
    EXPECT_EQ(one_line(turn).find('\xE2'), std::string::npos);
  }
}

TEST(OneLine, ShowsBytesThatAreNotUtf8) {
  EXPECT_EQ(one_line("\xff\xfe"), "\\xff\\xfe");
  EXPECT_EQ(one_line("\xE6\xAD"), "\\xe6\\xad");  // cut
  EXPECT_EQ(one_line("\xE6"
                     "a"),
            "\\xe6a");                            // no continuation
  EXPECT_EQ(one_line("\xC0\x80"), "\\xc0\\x80");  // not the shortest
  EXPECT_EQ(one_line("\xE0\x80\xA0"), "\\xe0\\x80\\xa0");
  EXPECT_EQ(one_line("\xED\xA0\x80"), "\\xed\\xa0\\x80");           // half of a surrogate pair
  EXPECT_EQ(one_line("\xF4\x90\x80\x80"), "\\xf4\\x90\\x80\\x80");  // beyond the last
}

TEST(OneLine, IsWhatAnErrorAndAWarningAreMadeOf) {
  EXPECT_STREQ(Error(ErrorKind::kUsage, std::string_view("a\n\0b", 4)).what(), "a\\x0a\\x00b");
  testing::internal::CaptureStderr();
  log::warn("shard \x1b[31m\nk3: not ours");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "warning: shard \\x1b[31m\\x0ak3: not ours\n");
}

}  // namespace
}  // namespace k3
