#include "engine/memory_plan.h"

#include <gtest/gtest.h>

#include <vector>

#include "model/state.h"
#include "support/checkpoint_maker.h"
#include "support/messages.h"
#include "weights/trunk_stream.h"

namespace k3::engine {
namespace {

using test::error_of;
using test::mentions;

constexpr uint64_t kChunk = 1'000'000;
constexpr size_t kChunks = 500;

class MemoryPlan : public testing::Test {
 protected:
  MemoryPlan()
      : config(model::parse_config(test::tiny_config().dump(), "config.json")), chunks(kChunks) {
    for (auto& chunk : chunks) chunk.stored_bytes = chunk.raw_bytes = kChunk;
  }
  PlanInput input(std::optional<Bytes> budget) const {
    return {.config = config,
            .chunks = chunks,
            .head_chunk_rows = 64,
            .expert_slot = Bytes{2'008'192},
            .expert_payload = Bytes{2'000'000},
            .embedding_buffer = Bytes{8192},
            .embedding_row = Bytes{256},
            .process = Bytes{10'000'000},
            .index = Bytes{100'000},
            .tokenizer = Bytes{},
            .threads = 2,
            .context = 1000,
            .prompt_rows = 100,
            .batch_rows = std::nullopt,
            .prompt_logits = false,
            .budget = budget,
            .safe_budget = Bytes{uint64_t{1} << 40}};
  }
  Plan plan(uint64_t budget) const { return make_plan(input(Bytes{budget})); }
  uint64_t least() const { return plan(uint64_t{1} << 40).least_budget.value; }

  model::Config config;
  std::vector<weights::ChunkRecord> chunks;
};

TEST_F(MemoryPlan, LinesSumToTheTotalWhichStaysInsideTheBudget) {
  for (const uint64_t factor : {1, 2, 4, 8, 32, 128}) {
    const Plan p = plan(least() * factor);
    Bytes sum;
    for (const PlanLine& line : p.lines) sum += line.bytes;
    EXPECT_EQ(sum, p.total()) << factor;
    EXPECT_LE(p.total(), p.budget) << factor;
  }
}

TEST_F(MemoryPlan, TheArenaIsTheTotalWithoutProcessAndSlack) {
  const Plan p = plan(least() * 4);
  EXPECT_EQ(arena_bytes(p), p.total() - p.process - p.slack);
}

TEST_F(MemoryPlan, StatesAreWhatTheirOwnersSayTheyNeed) {
  const Plan p = plan(least() * 4);
  EXPECT_GE(p.state.value, 4 * (model::SequenceState::kda_floats(config) +
                                model::SequenceState::conv_floats(config) +
                                model::SequenceState::cache_floats(config, 1000)));
  EXPECT_LE(p.state.value, 4 * (model::SequenceState::kda_floats(config) +
                                model::SequenceState::conv_floats(config) +
                                model::SequenceState::cache_floats(config, 1000)) +
                               3 * 4096);
}

TEST_F(MemoryPlan, MoreMemoryNeverReadsMore) {
  Bytes before = plan(least()).trunk_per_token();
  for (uint64_t budget = least(); budget < least() * 40; budget += least()) {
    const Bytes now = plan(budget).trunk_per_token();
    EXPECT_LE(now, before) << budget;
    before = now;
  }
  EXPECT_EQ(before, Bytes{});
}

TEST_F(MemoryPlan, RingAndSlotsComeBeforePinsAndTheExpertCacheComesLast) {
  for (uint64_t budget = least(); budget < least() * 60; budget += least() / 2) {
    const Plan p = plan(budget);
    if (p.pinned.value >= 4096 * kChunks) {
      EXPECT_GE(p.ring, Bytes{63'000'000}) << budget;
      EXPECT_GE(p.expert_slots, 18u) << budget;
    }
    if (p.expert_slots > 18) {
      EXPECT_EQ(p.trunk_per_token(), Bytes{}) << budget;
    }
  }
}

TEST_F(MemoryPlan, PassesOfAPromptAreOfAboutEqualSize) {
  PlanInput in = input(Bytes{least() * 40});
  in.batch_rows = 60;
  const Plan p = make_plan(in);
  EXPECT_EQ(p.batch_rows, 50u);
  EXPECT_EQ(p.passes, 2u);
}

TEST_F(MemoryPlan, ABudgetThatIsTooSmallIsRefusedWithOneThatWorks) {
  PlanInput in = input(Bytes{1'000'000});
  in.context = 1;
  const std::string message = error_of(ErrorKind::kBudget, [&] { make_plan(in); });
  EXPECT_TRUE(mentions(message, "is the least that would do"));
  in.budget = Bytes{};
  in.budget = make_plan([&] {
                PlanInput roomy = in;
                roomy.budget = Bytes{uint64_t{1} << 40};
                return roomy;
              }())
                  .least_budget;
  EXPECT_NO_THROW(make_plan(in));
}

TEST_F(MemoryPlan, AContextTooLargeIsRefusedWithTheLargestThatFits) {
  PlanInput in = input(Bytes{least() + 2'000'000});
  in.context = 1'000'000;
  const std::string message = error_of(ErrorKind::kBudget, [&] { make_plan(in); });
  const std::string words = "the largest context that fits is ";
  ASSERT_TRUE(mentions(message, words));
  in.context = std::stoull(message.substr(message.find(words) + words.size()));
  EXPECT_NO_THROW(make_plan(in));
  in.context += in.context / 2;
  EXPECT_THROW(make_plan(in), Error);
}

TEST_F(MemoryPlan, KeepsSixteenReadsInFlightAtTheFloor) {
  config.num_experts = 40;
  config.experts_per_token = 16;
  const auto slots = [&](uint64_t payload) {
    PlanInput in = input(std::nullopt);
    in.expert_payload = Bytes{payload};
    in.expert_slot = Bytes{payload + 8192};
    in.safe_budget = make_plan(in).least_budget;
    return make_plan(in).expert_slots;
  };
  EXPECT_GE(slots(900'000), 16u);    // one piece each
  EXPECT_GE(slots(4u << 20), 4u);    // four pieces each
  EXPECT_GE(slots(17'547'264), 2u);  // sixteen pieces: one is read while one is used
  EXPECT_LE(slots(17'547'264), 3u);
}

TEST_F(MemoryPlan, AtTheReleasedShapeAPositionOfTheCacheTakes55296Bytes) {
  config.kv_lora_rank = 512;
  config.qk_rope_head_dim = 64;
  config.is_mla.assign(93, false);
  config.num_hidden_layers = 93;
  for (size_t layer = 0; layer < 24; ++layer) config.is_mla[layer * 3] = true;
  EXPECT_EQ(4 * model::SequenceState::cache_floats(config, 131072), uint64_t{55'296} * 131'072);
}

}  // namespace
}  // namespace k3::engine
