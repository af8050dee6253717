#include "commands/options.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "support/run_k3.h"
#include "support/test_data.h"

namespace k3::commands {
namespace {

uint64_t parsed(const std::string& text, const CLI::Validator& bounds) {
  CLI::App app;
  uint64_t count = 0;
  app.add_option("--count", count)->transform(bounds);
  app.parse(std::vector<std::string>{"--count=" + text});
  return count;
}

TEST(Counts, AreDecimalWithZerosInFrontOrWithout) {
  EXPECT_EQ(parsed("10", count_from(1)), 10u);
  EXPECT_EQ(parsed("010", count_from(1)), 10u);
  EXPECT_EQ(parsed("000", count_from(0)), 0u);
  EXPECT_EQ(parsed("0010", count_between(1, 10)), 10u);
  EXPECT_EQ(parsed("18446744073709551615", count_from(1)), UINT64_MAX);
}

TEST(Counts, OutsideTheirBoundsAreRefused) {
  EXPECT_THROW(parsed("0", count_from(1)), CLI::ValidationError);
  EXPECT_THROW(parsed("0", count_between(1, 10)), CLI::ValidationError);
  EXPECT_THROW(parsed("11", count_between(1, 10)), CLI::ValidationError);
}

const std::vector<std::string> kNoCounts{
    "0x10", "0b1", " 5",   "5 ", "+5",  "-1",  "1e3",
    "1.0",  "1k",  "five", "",   "1,2", "nan", "99999999999999999999"};

// The command line as a user types it: the model is not opened before the options are right.
TEST(Counts, ThatAreNoneAreRefusedInOneLineByEveryOption) {
  const std::vector<std::vector<std::string>> options{
      {"generate", "-n"}, {"generate", "--stop-id"}, {"generate", "-c"}, {"generate", "-b"},
      {"generate", "-t"}, {"plan", "--context"},     {"score", "-t"},    {"bench", "kernels", "-t"},
  };
  for (const std::vector<std::string>& option : options) {
    for (const std::string& text : kNoCounts) {
      std::vector<std::string> args(option.begin(), option.end() - 1);
      if (args.front() != "bench") args.push_back(test::data_dir() / "tiny-k3");
      args.push_back(option.back());
      args.push_back(text);
      const auto run = test::run_k3({.args = args});
      EXPECT_EQ(run.exit_code, 2) << option.front() << option.back() << " '" << text << "'";
      EXPECT_EQ(run.out, "");
      EXPECT_EQ(run.err.find('\n'), run.err.size() - 1) << run.err;
    }
  }
}

}  // namespace
}  // namespace k3::commands
