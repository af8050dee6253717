#include "base/json.h"

#include <gtest/gtest.h>

namespace k3 {
namespace {

std::string failure(const std::string& text) {
  try {
    parse_json(text, "file.json");
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kCheckpoint);
    return error.what();
  }
  return "";
}

TEST(ParseJson, BuildsTheSameTreeAsTheLibrary) {
  const std::string text = R"( {"a":[1,-2,3.5,1e3,true,false,null,"x\u00e9\n"],"b":{"c":{},"d":[]},
                               "e":[[[]],{"a":{"a":1}}],"":18446744073709551615} )";
  EXPECT_EQ(parse_json(text, "x"), Json::parse(text));
  for (const char* scalar : {"1", "-1", "2.5", "\"s\"", "null", "true", "[]", "{}"}) {
    EXPECT_EQ(parse_json(scalar, "x"), Json::parse(scalar));
  }
  EXPECT_TRUE(parse_json("18446744073709551615", "x").is_number_unsigned());
  EXPECT_TRUE(parse_json("-5", "x").is_number_integer());
}

TEST(ParseJson, RefusesAKeyThatAppearsTwiceInOneObject) {
  EXPECT_NE(failure(R"({"a":1,"b":2,"a":3})").find("file.json"), std::string::npos);
  EXPECT_NE(failure(R"({"a":1,"b":2,"a":3})").find("\"a\" appears twice"), std::string::npos);
  EXPECT_NE(failure(R"([{"x":{"k":[],"k":[]}}])"), "");
  EXPECT_NE(failure(R"({"a":1,"\u0061":1})"), "");  // the same key, spelled otherwise
  EXPECT_EQ(failure(R"([{"a":1},{"a":{"a":1}}])"), "");
}

TEST(ParseJson, RefusesNestingDeeperThan64) {
  const auto nested = [](int depth) { return std::string(depth, '[') + std::string(depth, ']'); };
  EXPECT_EQ(failure(nested(64)), "");
  EXPECT_NE(failure(nested(65)).find("64"), std::string::npos);
  EXPECT_NE(failure(std::string(1'000'000, '[')), "");
  std::string objects = "1";
  for (int i = 0; i < 65; ++i) objects = "{\"k\":" + objects + "}";
  EXPECT_NE(failure(objects), "");
}

TEST(ParseJson, RefusesWhatIsNotOneValue) {
  for (const char* text : {"", " ", "{", "[1,]", "{\"a\":1,}", "1 2", "{} x", "nul", "NaN", "'a'",
                           "[1e999]", "\"\xff\"", "// c\n1", "{1:2}", "\"\n\""}) {
    EXPECT_NE(failure(text), "") << text;
  }
  EXPECT_NE(failure(std::string("1\0", 2)), "");
}

TEST(ParseJson, KeepsTheMessageShortWhateverTheFileHolds) {
  EXPECT_LT(failure("[\"" + std::string(100'000, 'a') + "\xff").size(), 300u);
  EXPECT_EQ(failure("[1,]").find("json.exception"), std::string::npos);
}

TEST(DumpJson, KeepsTheOrderAndReplacesInvalidUtf8) {
  OrderedJson value;
  value["z"] = 1;
  value["a"] = "x\xffy";
  EXPECT_EQ(dump_json(value), "{\"z\":1,\"a\":\"x\xEF\xBF\xBDy\"}");
}

}  // namespace
}  // namespace k3
