// What one pass over a prompt reads, to the byte.
#include <gtest/gtest.h>

#include <fstream>
#include <numeric>

#include "base/json.h"
#include "support/engine_runs.h"
#include "weights/dtype.h"
#include "weights/trunk_file.h"

namespace k3::test {
namespace {

class ByteCounts : public testing::TestWithParam<std::string> {
 protected:
  ByteCounts() : model(GetParam()), trunk(weights::TrunkFile::open(model.path() / "trunk.k3")) {
    std::ifstream file(data_dir() / "goldens" / "experts.json");
    const Json golden = Json::parse(file).at(GetParam());
    golden.at("ids").get_to(prompt);
    golden.at("distinct").get_to(distinct);
  }

  uint64_t expert_bytes() const {
    const auto& parts = trunk.header().expert_part_bytes;
    return std::accumulate(std::begin(parts), std::end(parts), uint64_t{0});
  }
  uint64_t embedding_row() const {
    const auto dtype = static_cast<weights::DType>(trunk.header().embedding_dtype);
    return trunk.header().embedding_cols * weights::dtype_bytes(dtype);
  }
  static Setting setting(uint64_t budget_times) {
    return {std::nullopt, budget_times, 2, "avx2", "pread"};
  }

  PackedModel model;
  weights::TrunkFile trunk;
  std::vector<uint32_t> prompt;
  std::vector<uint64_t> distinct;  // experts by MoE layer that the reference chooses
};

TEST_P(ByteCounts, OnePassReadsTheTrunkOnceAndEachChosenExpertOnce) {
  for (const uint64_t budget_times : {2, 64}) {
    const RunResult run = run_engine(model, prompt, 1, setting(budget_times));
    ASSERT_EQ(run.stats.passes, 1u);
    EXPECT_EQ(run.stats.trunk_bytes, trunk.stored_bytes().value);
    EXPECT_EQ(run.stats.expert_bytes,
              std::accumulate(distinct.begin(), distinct.end(), uint64_t{0}) * expert_bytes());
    EXPECT_EQ(run.stats.embedding_bytes, prompt.size() * embedding_row());
  }
}

TEST_P(ByteCounts, EachFurtherPassReadsTheTrunkThatIsNotPinned) {
  Setting token_by_token = setting(2);
  token_by_token.batch = 1;
  const RunResult run = run_engine(model, prompt, 1, token_by_token);
  ASSERT_EQ(run.stats.passes, prompt.size());
  EXPECT_EQ(run.stats.trunk_bytes,
            trunk.stored_bytes().value + (prompt.size() - 1) * run.plan.trunk_per_token().value);
}

INSTANTIATE_TEST_SUITE_P(Models, ByteCounts,
                         testing::Values("tiny-k3", "random-a", "random-b", "random-c"),
                         [](const auto& test) {
                           std::string name = test.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace k3::test
