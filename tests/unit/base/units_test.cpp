#include "k3/units.h"

#include <gtest/gtest.h>

#include "k3/error.h"

namespace k3 {
namespace {

TEST(ParseBytes, ReadsDecimalAndBinaryUnits) {
  EXPECT_EQ(parse_bytes("0").value, 0u);
  EXPECT_EQ(parse_bytes("4096").value, 4096u);
  EXPECT_EQ(parse_bytes("4096B").value, 4096u);
  EXPECT_EQ(parse_bytes("500M").value, 500'000'000u);
  EXPECT_EQ(parse_bytes("8G").value, 8'000'000'000u);
  EXPECT_EQ(parse_bytes("8GB").value, 8'000'000'000u);
  EXPECT_EQ(parse_bytes("8GiB").value, 8ull << 30);
  EXPECT_EQ(parse_bytes("64KiB").value, 65536u);
  EXPECT_EQ(parse_bytes("1TB").value, 1'000'000'000'000u);
  EXPECT_EQ(parse_bytes("2TiB").value, 2ull << 40);
  EXPECT_EQ(parse_bytes("3k").value, 3000u);
}

TEST(ParseBytes, IgnoresTheCaseOfTheUnit) {
  EXPECT_EQ(parse_bytes("8g"), parse_bytes("8G"));
  EXPECT_EQ(parse_bytes("8gib"), parse_bytes("8GiB"));
  EXPECT_EQ(parse_bytes("8GIB"), parse_bytes("8GiB"));
  EXPECT_EQ(parse_bytes("7mb"), parse_bytes("7M"));
}

TEST(ParseBytes, ReadsFractionsExactly) {
  EXPECT_EQ(parse_bytes("8.5G").value, 8'500'000'000u);
  EXPECT_EQ(parse_bytes("0.3G").value, 300'000'000u);
  EXPECT_EQ(parse_bytes("1.1T").value, 1'100'000'000'000u);
  EXPECT_EQ(parse_bytes("1.5KiB").value, 1536u);
  EXPECT_EQ(parse_bytes("16777215.999999999999T").value, 16'777'215'999'999'999'999u);
}

TEST(ParseBytes, ReadsTheLargestSizeAndRefusesTheNext) {
  EXPECT_EQ(parse_bytes("18446744073709551615").value, UINT64_MAX);
  EXPECT_THROW(parse_bytes("18446744073709551616"), Error);
  EXPECT_EQ(parse_bytes("16777215TiB").value, 16777215ull << 40);
  EXPECT_THROW(parse_bytes("16777216TiB"), Error);
  EXPECT_THROW(parse_bytes("16777215.99999999999999TiB"), Error);
}

TEST(ParseBytes, RefusesWhatIsNotASizeAndNamesIt) {
  for (const char* text : {"",      "G",   "-1G", "+1G", "1e400", "1e3",  "8X",    "0x10",   "8GG",
                           "8GiBs", "8 G", " 8G", "8G ", "8.G",   ".5G",  "8..5G", "8.5.5G", "1.5",
                           "1.5B",  "nan", "inf", "8Gi", "8iB",   "8,5G", "8EB"}) {
    try {
      parse_bytes(text);
      ADD_FAILURE() << "accepted " << text;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kUsage) << text;
      EXPECT_NE(std::string(error.what()).find(text), std::string::npos) << error.what();
    }
  }
}

TEST(Bytes, ArithmeticOutsideOf64BitsThrows) {
  const Bytes largest{UINT64_MAX};
  EXPECT_EQ((Bytes{3} + Bytes{4}).value, 7u);
  EXPECT_EQ((Bytes{7} - Bytes{7}).value, 0u);
  EXPECT_EQ((Bytes{7} * 6).value, 42u);
  EXPECT_THROW(largest + Bytes{1}, Error);
  EXPECT_THROW(Bytes{6} - Bytes{7}, Error);
  EXPECT_THROW(Bytes{1ull << 32} * (1ull << 32), Error);
}

TEST(FormatBytes, WritesThreeDigitsInDecimalUnits) {
  EXPECT_EQ(format_bytes(Bytes{0}), "0 B");
  EXPECT_EQ(format_bytes(Bytes{4096}), "4096 B");
  EXPECT_EQ(format_bytes(Bytes{17'547'264}), "17.5 MB");
  EXPECT_EQ(format_bytes(Bytes{512'000'000}), "512 MB");
  EXPECT_EQ(format_bytes(Bytes{8'500'000'000}), "8.50 GB");
  EXPECT_EQ(format_bytes(Bytes{1'560'000'000'000}), "1.56 TB");
  EXPECT_EQ(format_bytes(Bytes{UINT64_MAX}), "18.4 EB");
}

TEST(FormatBytes, RoundsIntoTheNextUnitAndTheNextDigit) {
  EXPECT_EQ(format_bytes(Bytes{999'600'000}), "1.00 GB");
  EXPECT_EQ(format_bytes(Bytes{999'400'000}), "999 MB");
  EXPECT_EQ(format_bytes(Bytes{9'996'000}), "10.0 MB");
  EXPECT_EQ(format_bytes(Bytes{99'960'000}), "100 MB");
}

}  // namespace
}  // namespace k3
