#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <string>

#include "base/json.h"
#include "support/run_k3.h"
#include "support/sanitizers.h"
#include "support/test_data.h"

namespace {

using namespace k3;        // NOLINT
using namespace k3::test;  // NOLINT

constexpr double kTolerance = 1e-4;

class ScoreCommand : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder = new TempDir;
    const K3Result packed = run_k3({.args = {"pack", model(), "-o", trunk(), "-q"}});
    ASSERT_EQ(packed.exit_code, 0) << packed.err;
  }
  static void TearDownTestSuite() { delete folder; }

  static std::string model() { return data_dir() / "tiny-k3"; }
  static std::string trunk() { return folder->path() / "trunk.k3"; }
  static std::string text_file() { return data_dir() / "goldens" / "tiny-k3.perplexity.txt"; }

  static K3Result score(std::vector<std::string> more, const std::string& input = "") {
    more.insert(more.begin(),
                {"score", model(), "--trunk", trunk(), "--budget", budget_text(200'000'000)});
    return run_k3({.args = std::move(more), .input = input});
  }
  static Json reference() {
    std::ifstream file(data_dir() / "goldens" / "tiny-k3.json");
    return Json::parse(file).at("perplexity");
  }

  static inline TempDir* folder = nullptr;
};

TEST_F(ScoreCommand, EqualsTheReferenceOnTheTextOfThePerplexity) {
  const K3Result result = score({text_file(), "--json", "-q"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const Json json = parse_json(result.out, "stdout");
  EXPECT_NEAR(json.at("mean_nll").get<double>(), reference().at("nll_per_token").get<double>(),
              kTolerance);
  EXPECT_NEAR(json.at("perplexity").get<double>(),
              std::exp(reference().at("nll_per_token").get<double>()), 50 * kTolerance);
  EXPECT_EQ(json.at("tokens").get<size_t>() + 1, reference().at("ids").size());
}

TEST_F(ScoreCommand, GivesTheLogLikelihoodOfEachTokenAndTheirMean) {
  const Json json = parse_json(score({text_file(), "--json", "-q"}).out, "stdout");
  const Json ids = reference().at("ids");
  EXPECT_EQ(json.at("first_id"), ids.at(0));
  double sum = 0;
  for (size_t i = 0; i + 1 < ids.size(); ++i) {
    EXPECT_EQ(json.at("per_token").at(i).at("id"), ids.at(i + 1));
    const double value = json.at("per_token").at(i).at("log_likelihood");
    EXPECT_LT(value, 0);
    sum += value;
  }
  EXPECT_NEAR(-sum / static_cast<double>(ids.size() - 1), json.at("mean_nll").get<double>(), 1e-9);
}

TEST_F(ScoreCommand, IsTheSameInPassesOfSevenAndFromStandardInput) {
  std::ifstream file(text_file());
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  const Json whole = parse_json(score({text_file(), "--json", "-q"}).out, "stdout");
  const Json cut = parse_json(score({"--json", "-q", "-b", "7"}, text).out, "stdout");
  EXPECT_EQ(whole.at("per_token"), cut.at("per_token"));
  EXPECT_EQ(cut.at("stats").at("passes"), 49);
}

TEST_F(ScoreCommand, SaysTheFiguresInOneLine) {
  const K3Result result = score({"--ids", "320,272,841,259", "-q"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.out.find("mean NLL "), 0u) << result.out;
  EXPECT_NE(result.out.find(", 3 tokens\n"), std::string::npos) << result.out;
}

TEST_F(ScoreCommand, ReadsIdsFromStandardInput) {
  EXPECT_EQ(score({"--ids", "-", "-q"}, "320, 272,841,259\n").out,
            score({"--ids", "320,272,841,259", "-q"}).out);
}

TEST_F(ScoreCommand, ATextOfOneTokenOrNoneIsAUsageError) {
  for (const auto& [input, count] : {std::pair{"", "0 tokens"}, {"a", "1 token"}}) {
    const K3Result result = score({"-"}, input);
    EXPECT_EQ(result.exit_code, 2) << result.err;
    EXPECT_NE(result.err.find(count), std::string::npos) << result.err;
    EXPECT_EQ(result.out, "");
  }
}

}  // namespace
