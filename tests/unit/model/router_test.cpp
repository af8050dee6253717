#include "model/router.h"

#include <algorithm>
#include <numeric>

#include "unit/model/double_support.h"

namespace k3::model {
namespace {

struct Routed {
  std::vector<uint16_t> experts;
  Floats weights;
};

Routed route_all(const Floats& scores, const Floats& bias, uint32_t chosen, float factor = 1) {
  Config config = odd_config();
  config.num_experts = static_cast<uint32_t>(scores.size());
  config.experts_per_token = chosen;
  config.routed_scaling_factor = factor;
  Routed out{std::vector<uint16_t>(chosen), Floats(chosen)};
  route(config, scores, bias, out.experts, out.weights);
  return out;
}

using Numbers = std::vector<uint16_t>;

TEST(Router, TheBiasDecidesTheChoiceAndIsNotInTheWeights) {
  const Routed routed = route_all({0.9f, 0.1f, 0.5f, 0.3f}, {-0.8f, 0.9f, 0.0f, 0.0f}, 2);
  EXPECT_EQ(routed.experts, (Numbers{1, 2}));
  expect_close(routed.weights, {0.1 / 0.6, 0.5 / 0.6}, 1e-6);
}

TEST(Router, EqualOnesGoToTheLowerNumber) {
  EXPECT_EQ(route_all(Floats(7, 0.5f), Floats(7, 0.25f), 3).experts, (Numbers{0, 1, 2}));
  // Equal with the bias only, and a better one behind them.
  EXPECT_EQ(
      route_all({0.25f, 0.5f, 0.75f, 0.5f, 0.9f}, {0.5f, 0.25f, 0.0f, 0.25f, 0.5f}, 3).experts,
      (Numbers{0, 1, 4}));
}

TEST(Router, NumbersAscendWhateverTheOrderOfTheScores) {
  const Routed routed = route_all({0.2f, 0.9f, 0.1f, 0.7f, 0.8f, 0.3f}, Floats(6, 0.0f), 4);
  EXPECT_EQ(routed.experts, (Numbers{1, 3, 4, 5}));
  expect_close(routed.weights, {0.9 / 2.7, 0.7 / 2.7, 0.8 / 2.7, 0.3 / 2.7}, 1e-6);
}

TEST(Router, WeightsAreSharesAmongTheChosenTimesTheFactor) {
  const Floats scores{0.9f, 0.5f, 0.4f, 0.01f, 0.02f}, bias(5, 0.0f);
  expect_close(route_all(scores, bias, 2, 2.5f).weights, {2.5 * 0.9 / 1.4, 2.5 * 0.5 / 1.4}, 1e-6);
  expect_close(route_all(scores, bias, 1, 0.7f).weights, {0.7}, 1e-6);
}

TEST(Router, ScoresOfZeroGiveWeightsOfZeroAndNotNaN) {
  EXPECT_EQ(route_all(Floats(4, 0.0f), Floats(4, 0.0f), 2).weights, Floats(2, 0.0f));
}

TEST(Router, NegativeBiasesDoNotKeepAnExpertFromBeingChosen) {
  EXPECT_EQ(route_all({0.5f, 0.5f, 0.5f}, {-3.0f, -1.0f, -2.0f}, 2).experts, (Numbers{1, 2}));
}

TEST(Router, ChoosesAsASortOfAllDoes) {
  for (uint32_t seed = 0; seed < 50; ++seed) {
    Floats scores = normal(37, seed, 0.1, 0.5);
    Floats bias = normal(37, seed + 1000, 0.1);
    // Few different values, so that many are equal.
    for (float& s : scores) s = std::round(s * 16) / 16;
    for (float& b : bias) b = std::round(b * 16) / 16;
    Numbers order(37);
    std::iota(order.begin(), order.end(), uint16_t{0});
    std::stable_sort(order.begin(), order.end(), [&](uint16_t a, uint16_t b) {
      return scores[a] + bias[a] > scores[b] + bias[b];
    });
    order.resize(9);
    std::sort(order.begin(), order.end());
    EXPECT_EQ(route_all(scores, bias, 9).experts, order) << "seed " << seed;
  }
}

/// Four chosen scores whose sum differs by one unit between ascending numbers and descending
/// scores; and weights whose factor cannot be taken into the denominator.
TEST(Router, TheDenominatorIsSummedByAscendingNumberThenDividesThenTheFactor) {
  bool order_matters = false, factor_matters = false;
  for (uint32_t seed = 0; seed < 50; ++seed) {
    Floats scores = normal(8, seed, 0.2, 0.5);
    const Routed routed = route_all(scores, Floats(8, 0.0f), 8, 0.7f);
    float ascending = 0, by_score = 0;
    for (float s : scores) ascending = ascending + s;
    Floats sorted = scores;
    std::sort(sorted.rbegin(), sorted.rend());
    for (float s : sorted) by_score = by_score + s;
    order_matters |= ascending != by_score;
    for (size_t i = 0; i < 8; ++i) {
      ASSERT_EQ(routed.weights[i], (scores[i] / ascending) * 0.7f);
      factor_matters |= (scores[i] / ascending) * 0.7f != (scores[i] * 0.7f) / ascending;
    }
  }
  EXPECT_TRUE(order_matters);
  EXPECT_TRUE(factor_matters);
}

}  // namespace
}  // namespace k3::model
