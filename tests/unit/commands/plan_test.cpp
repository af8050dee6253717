#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "base/json.h"
#include "support/checkpoint_maker.h"
#include "support/run_k3.h"
#include "support/sanitizers.h"
#include "support/test_data.h"

namespace {

namespace fs = std::filesystem;
using namespace k3;        // NOLINT
using namespace k3::test;  // NOLINT

constexpr uint64_t k40M = 40'000'000;

class PlanCommand : public testing::Test {
 protected:
  PlanCommand() : model(dir.path() / "model") {
    make_checkpoint(model);
    EXPECT_EQ(run_k3({.args = {"pack", model.string()}}).exit_code, 0);
  }
  K3Result plan(std::vector<std::string> more) const {
    more.insert(more.begin(), {"plan", model.string()});
    return run_k3({.args = std::move(more)});
  }
  Json plan_json(std::vector<std::string> more) const {
    more.push_back("--json");
    const K3Result result = plan(std::move(more));
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return parse_json(result.out, "stdout");
  }

  TempDir dir;
  fs::path model;
};

TEST_F(PlanCommand, LinesSumToTheTotalAndTheTotalStaysInsideTheBudget) {
  const Json json = plan_json({"--budget", budget_text(k40M), "--disk-gbps", "1"});
  uint64_t sum = 0;
  for (const Json& line : json["lines"]) sum += line["bytes"].get<uint64_t>();
  EXPECT_EQ(sum, json["total_bytes"]);
  EXPECT_LE(json["total_bytes"], json["budget_bytes"]);
  EXPECT_EQ(json["budget_bytes"], budget_of(k40M));
}

TEST_F(PlanCommand, PlansABudgetThatNoMachineHasWithoutTakingMemory) {
  for (const char* budget : {"18446744073709551615", "9223372036854775808"}) {
    EXPECT_EQ(plan({"--budget", budget, "--disk-gbps", "1"}).exit_code,
              0);  // four times that overflows
  }
  const Json json = plan_json({"--budget", "1000T", "--disk-gbps", "1"});
  EXPECT_EQ(json["budget_bytes"], 1'000'000'000'000'000u);
  EXPECT_EQ(json["bytes_per_token"]["trunk"], 0u);
}

struct PlanAndRun {
  Json plan;
  Json run;

  uint64_t streamed() const { return plan["bytes_per_token"]["trunk"]; }
  /// Of the trunk's stored bytes.
  double pinned_share() const {
    const auto pinned = plan["pinned_bytes"].get<double>();
    return pinned / (pinned + static_cast<double>(streamed()));
  }
};

/// tiny-k3 at one budget, its trunk packed with a codec.
PlanAndRun plan_and_run(const fs::path& folder, const std::string& codec) {
  const std::string model = data_dir() / "tiny-k3";
  const std::string file = folder / (codec + ".k3");
  EXPECT_EQ(run_k3({.args = {"pack", model, "-o", file, "--codec", codec}}).exit_code, 0);
  const K3Result plan = run_k3(
      {.args = {"plan", model, "--trunk", file, "--budget", "24M", "--disk-gbps", "1", "--json"}});
  const K3Result run = run_k3({.args = {"generate", model, "--trunk", file, "--budget", "24M",
                                        "--ids", "1,2,3", "-n", "2", "--ignore-eos", "--json"}});
  return {parse_json(plan.out, "plan"), parse_json(run.out, "run")};
}

TEST(PlanOfAPackedTrunk, PinsMoreThanThatOfARawOneAndTheRunReadsLess) {
  if (kSanitized) GTEST_SKIP() << "a budget as small as this test needs is less than a sanitizer's";
  const TempDir dir;
  const PlanAndRun raw = plan_and_run(dir.path(), "raw");
  const PlanAndRun packed = plan_and_run(dir.path(), "lossless");
  EXPECT_GT(raw.streamed(), 0u);
  EXPECT_LT(packed.streamed(), raw.streamed());
  EXPECT_GT(packed.pinned_share(), raw.pinned_share());
  EXPECT_LT(packed.run["stats"]["read_bytes"]["trunk"], raw.run["stats"]["read_bytes"]["trunk"]);
  EXPECT_EQ(packed.run["receipt"], raw.run["receipt"]);
}

TEST_F(PlanCommand, SecondsAreBytesByTheGivenSpeedAndMoreMemoryNeverCostsTime) {
  const Json json = plan_json({"--budget", budget_text(20'000'000), "--disk-gbps", "2"});
  const double bytes = json["bytes_per_token"]["total"].get<double>();
  EXPECT_NEAR(json["seconds_per_token"].get<double>(), bytes / 2e9, bytes / 2e9 * 1e-6);
  ASSERT_EQ(json["what_if"].size(), 3u);
  for (const Json& other : json["what_if"]) {
    EXPECT_LE(other["seconds_per_token"], json["seconds_per_token"]) << other;
  }
  EXPECT_EQ(json["what_if"][0]["budget_bytes"], 2 * budget_of(20'000'000));
  EXPECT_EQ(json["what_if"][1]["budget_bytes"], 4 * budget_of(20'000'000));
}

TEST_F(PlanCommand, MeasuresTheDriveWhenNoSpeedIsGiven) {
  const Json json = plan_json({"--budget", budget_text(k40M)});
  EXPECT_EQ(json["drive"]["measured"], true);
  EXPECT_GT(json["drive"]["trunk_gbps"], 0.0);
  EXPECT_GT(json["drive"]["experts_gbps"], 0.0);
}

TEST_F(PlanCommand, MeasuresShardsOfAnyName) {
  rename_shards(model, ".bin");
  ASSERT_EQ(run_k3({.args = {"pack", model.string(), "--force"}}).exit_code, 0);
  EXPECT_GT(plan_json({"--budget", budget_text(k40M)})["drive"]["experts_gbps"], 0.0);
}

TEST_F(PlanCommand, PrintsATableABarAndBytesForAToken) {
  const K3Result result = plan({"--budget", budget_text(k40M), "--disk-gbps", "1"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  for (const char* part : {"KDA states", "latent cache", "pinned trunk", "[C", "read for a token",
                           "2 times the memory", "two such drives"}) {
    EXPECT_NE(result.out.find(part), std::string::npos) << part << "\n" << result.out;
  }
}

TEST_F(PlanCommand, RefusesTooSmallABudgetWithOneThatWorks) {
  const K3Result result = plan({"--budget", "1M", "--disk-gbps", "1"});
  EXPECT_EQ(result.exit_code, 5);
  const std::string words = " is the least that would do";
  const size_t end = result.err.find(words);
  ASSERT_NE(end, std::string::npos) << result.err;
  const size_t begin = result.err.rfind(": ", end) + 2;
  std::string least = result.err.substr(begin, end - begin);
  std::erase(least, ' ');
  EXPECT_EQ(plan({"--budget", least, "--disk-gbps", "1"}).exit_code, 0) << least;
}

TEST_F(PlanCommand, TellsTheLargestContextThatFitsAndItFits) {
  Json config = tiny_config();
  config["text_config"]["max_position_embeddings"] = 1u << 20;
  std::ofstream(model / "config.json") << config;
  const Json roomy =
      plan_json({"--budget", budget_text(1'000'000'000), "-c", "64", "--disk-gbps", "1"});
  const uint64_t least = roomy["least_budget_bytes"].get<uint64_t>();
  // Room for some more positions, not for all.
  const std::string budget = std::to_string(least + 4'000'000);
  const std::string most = std::to_string(1u << 20);
  const K3Result refused = plan({"--budget", budget, "-c", most, "--disk-gbps", "1"});
  EXPECT_EQ(refused.exit_code, 5) << refused.err;
  const std::string words = "the largest context that fits is ";
  const size_t at = refused.err.find(words);
  ASSERT_NE(at, std::string::npos) << refused.err;
  const uint64_t fits = std::stoull(refused.err.substr(at + words.size()));
  EXPECT_GE(fits, 64u);
  EXPECT_EQ(plan({"--budget", budget, "-c", std::to_string(fits), "--disk-gbps", "1"}).exit_code,
            0);
}

TEST_F(PlanCommand, WithoutATrunkFileSaysHowToMakeOne) {
  fs::remove(model / "trunk.k3");
  const K3Result result = plan({"--budget", budget_text(k40M)});
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_NE(result.err.find("k3 pack"), std::string::npos) << result.err;
}

}  // namespace
