// Nothing about how a run is done changes a bit of it: passes, budgets, threads, instruction sets,
// back ends. The ordinary run takes settings that cover all of them; with K3_FULL_INVARIANCE set,
// every combination is run (half an hour).
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "support/engine_runs.h"

namespace k3::test {
namespace {

constexpr uint64_t kVocabularyMin = 256;  // of all the models
constexpr uint64_t kNewTokens = 4;
constexpr size_t kScalarMax = 33;  // longest prompt that the scalar kernels run
const std::optional<uint64_t> kOnePass = std::nullopt;

const PackedModel& packed(const std::string& name) {
  static std::map<std::string, std::unique_ptr<PackedModel>> models;
  auto& model = models[name];
  if (!model) model = std::make_unique<PackedModel>(name);
  return *model;
}

bool wants_all() {
  return std::getenv("K3_FULL_INVARIANCE") != nullptr;
}

std::vector<Setting> covering_settings(size_t tokens) {
  std::vector<Setting> all = {{1, 1, 1, "avx2", "uring"},
                              {7, 2, 2, "avx512", "pread"},
                              {64, 8, 1, "avx512", "uring"},
                              {kOnePass, 2, 1, "avx2", "pread"}};
  if (tokens <= kScalarMax) all.push_back({7, 2, 2, "scalar", "uring"});
  return all;
}

std::vector<Setting> all_settings(size_t tokens) {
  std::vector<Setting> all;
  for (const auto batch : {std::optional<uint64_t>(1), std::optional<uint64_t>(7),
                           std::optional<uint64_t>(64), kOnePass}) {
    for (const uint64_t budget : {1, 2, 8}) {
      for (const uint64_t threads : {1, 2}) {
        for (const char* isa : {"scalar", "avx2", "avx512"}) {
          if (tokens > kScalarMax && isa == std::string("scalar")) continue;
          for (const char* io : {"uring", "pread"}) {
            all.push_back({batch, budget, threads, isa, io});
          }
        }
      }
    }
  }
  return all;
}

struct Prompt {
  std::string model;
  size_t tokens;
};

class Receipts : public testing::TestWithParam<Prompt> {
 protected:
  static bool possible(const Setting& setting) {
    return host_has_isa(setting.isa) && (setting.io != "uring" || host_has_uring());
  }
};

TEST_P(Receipts, AreTheSameHoweverTheRunIsDone) {
  const auto& [name, tokens] = GetParam();
  const PackedModel& model = packed(name);
  const std::vector<uint32_t> prompt = some_ids(tokens, kVocabularyMin);
  // With less than 8 times the floor the passes may be shorter than asked for.
  const RunResult whole = run_engine(model, prompt, kNewTokens, {kOnePass, 64, 2, "avx2", "pread"});
  EXPECT_EQ(whole.plan.passes, 1u);
  size_t compared = 0;
  for (const Setting& setting : wants_all() ? all_settings(tokens) : covering_settings(tokens)) {
    if (!possible(setting)) continue;
    const RunResult run = run_engine(model, prompt, kNewTokens, setting);
    EXPECT_EQ(run.receipt, whole.receipt) << setting.name();
    if (setting.batch) {
      EXPECT_LE(run.plan.batch_rows, *setting.batch);
    }
    EXPECT_EQ(run.stats.isa, setting.isa);
    EXPECT_EQ(run.stats.io, setting.io);
    ++compared;
  }
  EXPECT_GE(compared, 1u);
}

TEST(Codecs, GiveTheSameReceipts) {
  for (const char* name : {"tiny-k3", "random-a", "random-b", "random-c"}) {
    const PackedModel raw(name, 8192, "raw");
    for (const size_t tokens : {1, 33}) {
      const std::vector<uint32_t> prompt = some_ids(tokens, kVocabularyMin);
      const RunResult expected =
          run_engine(raw, prompt, kNewTokens, {kOnePass, 8, 2, "avx2", "pread"});
      for (const char* codec : {"auto", "lossless"}) {
        const PackedModel packed_model(name, 8192, codec);
        for (const Setting& setting : covering_settings(tokens)) {
          if (!host_has_isa(setting.isa) || (setting.io == "uring" && !host_has_uring())) continue;
          EXPECT_EQ(run_engine(packed_model, prompt, kNewTokens, setting).receipt, expected.receipt)
              << name << ", " << codec << ", " << setting.name();
        }
      }
    }
  }
}

std::vector<Prompt> prompts() {
  std::vector<Prompt> all;
  for (const char* model : {"tiny-k3", "random-a", "random-b", "random-c"}) {
    for (const size_t tokens : {1, 2, 31, 32, 33, 257}) all.push_back({model, tokens});
  }
  all.push_back({"tiny-k3", 4000});
  return all;
}

INSTANTIATE_TEST_SUITE_P(Models, Receipts, testing::ValuesIn(prompts()), [](const auto& test) {
  std::string name = test.param.model + "_" + std::to_string(test.param.tokens);
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

}  // namespace
}  // namespace k3::test
