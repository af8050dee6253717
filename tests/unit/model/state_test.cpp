#include "model/state.h"

#include <algorithm>
#include <set>

#include "unit/model/double_support.h"

namespace k3::model {
namespace {

struct Owned {
  explicit Owned(const Config& config, uint64_t capacity)
      : kda(SequenceState::kda_floats(config), 7.0f),
        conv(SequenceState::conv_floats(config), 7.0f),
        cache(SequenceState::cache_floats(config, capacity), 7.0f),
        state(config, capacity, {kda, conv, cache}) {}
  Floats kda, conv, cache;
  SequenceState state;
};

TEST(SequenceState, ResetForgetsStatesTailsAndPosition) {
  const Config config = odd_config();
  Owned owned(config, 5);
  owned.state.advance(3);
  owned.state.reset();
  EXPECT_EQ(owned.state.position(), 0);
  EXPECT_EQ(std::ranges::count(owned.kda, 0.0f), std::ssize(owned.kda));
  EXPECT_EQ(std::ranges::count(owned.conv, 0.0f), std::ssize(owned.conv));
}

TEST(SequenceState, LayersHeadsTailsAndRowsShareNoFloat) {
  const Config config = odd_config();
  Owned owned(config, 5);
  float mark = 100;
  const auto fill = [&](float* at, size_t n) { std::fill_n(at, n, ++mark); };
  for (uint32_t layer = 0; layer < config.kda_layers(); ++layer) {
    for (uint32_t head = 0; head < config.kda_heads; ++head) {
      fill(owned.state.kda(layer, head), config.kda_head_dim * config.kda_head_dim);
    }
    for (uint32_t which = 0; which < 3; ++which) {
      fill(owned.state.conv_tail(layer, which), (config.conv_kernel - 1) * config.kda_width());
    }
  }
  for (uint32_t layer = 0; layer < config.mla_layers(); ++layer) {
    for (uint64_t p = 0; p < 5; ++p) fill(owned.state.cache_row(layer, p), config.cache_width());
  }
  std::set<float> seen;
  for (const Floats* part : {&owned.kda, &owned.conv, &owned.cache}) {
    seen.insert(part->begin(), part->end());
  }
  // Every float was filled, and no filling was overwritten by a later one.
  EXPECT_FALSE(seen.contains(7.0f));
  EXPECT_EQ(seen.size(), static_cast<size_t>(mark - 100));
}

TEST(SequenceStateDeathTest, NoPositionBeyondTheCapacityIsTakenIn) {
  const Config config = odd_config();
  Owned owned(config, 5);
  owned.state.advance(5);
  EXPECT_DEATH(owned.state.advance(1), "check failed");
}

}  // namespace
}  // namespace k3::model
