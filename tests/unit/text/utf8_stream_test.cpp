#include "text/utf8_stream.h"

#include <gtest/gtest.h>

#include <string>

namespace k3::text {
namespace {

const std::string kFffd = "\xEF\xBF\xBD";

TEST(ToValidUtf8, ValidTextIsUnchangedAndNothingIsCounted) {
  const std::string text = "a\u00E9\u4F60\U0001F642\U0010FFFF";
  size_t replaced = 7;
  EXPECT_EQ(to_valid_utf8(text, &replaced), text);
  EXPECT_EQ(replaced, 0u);
  EXPECT_EQ(to_valid_utf8(std::string("\0", 1)), std::string("\0", 1));
}

TEST(ToValidUtf8, EachMaximalIllFormedPartIsReplacedOnce) {
  // The example of the Unicode standard, table 3-11, and one line for each kind of defect.
  const std::pair<std::string, size_t> cases[] = {
      {"a\xF1\x80\x80\xE1\x80\xC2"
       "b\x80"
       "c\x80\xBF"
       "d",
       6},
      {"\x80", 1},              // a continuation alone
      {"\xC0\xAF", 2},          // overlong: no part of it starts a sequence
      {"\xE0\x9F\xBF", 3},      // overlong in three bytes
      {"\xED\xA0\x80", 3},      // a surrogate
      {"\xF4\x90\x80\x80", 4},  // above U+10FFFF
      {"\xE6\xAD", 1},          // cut at the end of the text
      {"\xF0\x9F\x99x", 1},     // cut inside the text
      {"\xFF\xFE", 2},
  };
  for (const auto& [bytes, count] : cases) {
    size_t replaced = 0;
    const std::string valid = to_valid_utf8(bytes, &replaced);
    EXPECT_EQ(replaced, count) << valid;
    size_t found = 0;
    for (size_t at = valid.find(kFffd); at != std::string::npos; at = valid.find(kFffd, at + 3)) {
      ++found;
    }
    EXPECT_EQ(found, count) << valid;
  }
  EXPECT_EQ(to_valid_utf8("a\xF1\x80\x80\xE1\x80\xC2"
                          "b\x80"
                          "c\x80\xBF"
                          "d"),
            "a" + kFffd + kFffd + kFffd + "b" + kFffd + "c" + kFffd + kFffd + "d");
}

TEST(Utf8Stream, BytesOneByOneGiveWholeCharactersOnly) {
  const std::string text = "x\u00E9\u4F60\U0001F642!";
  Utf8Stream stream;
  std::string joined;
  for (const char byte : text) {
    const std::string out = stream.push({&byte, 1});
    size_t replaced = 0;
    EXPECT_EQ(to_valid_utf8(out, &replaced), out);
    EXPECT_EQ(replaced, 0u);
    joined += out;
  }
  EXPECT_EQ(joined, text);
  EXPECT_EQ(stream.finish(), "");
}

TEST(Utf8Stream, AnIncompleteEndIsHeldBackAndFlushedAsOneReplacement) {
  Utf8Stream stream;
  EXPECT_EQ(stream.push("ab\xF0\x9F\x99"), "ab");
  EXPECT_EQ(stream.finish(), kFffd);
  EXPECT_EQ(stream.finish(), "");
  EXPECT_EQ(stream.push("c"), "c");
}

TEST(Utf8Stream, WhatCannotBecomeValidIsNotHeldBack) {
  Utf8Stream stream;
  EXPECT_EQ(stream.push("\xE0\x80"), kFffd + kFffd);
  EXPECT_EQ(stream.push("\xE4\xBD"), "");
  EXPECT_EQ(stream.push("a"), kFffd + "a");
}

TEST(Utf8Stream, AnyCutsOfAnyBytesGiveTheTextOfTheWhole) {
  const std::string bytes = "a\xF0\x9F\x99\x82\xE4\xBD\xC2\xA9\xED\xA0\x80\xF4\x8F\xBF\xBF\xE2\x82";
  for (size_t first = 0; first <= bytes.size(); ++first) {
    for (size_t second = first; second <= bytes.size(); ++second) {
      Utf8Stream stream;
      std::string joined = stream.push(bytes.substr(0, first));
      joined += stream.push(bytes.substr(first, second - first));
      joined += stream.push(bytes.substr(second));
      joined += stream.finish();
      ASSERT_EQ(joined, to_valid_utf8(bytes)) << first << ", " << second;
    }
  }
}

}  // namespace
}  // namespace k3::text
