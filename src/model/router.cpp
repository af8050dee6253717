#include "model/router.h"

#include <algorithm>

#include "base/check.h"

namespace k3::model {
namespace {

/// Keeps the `experts.size()` best numbers, ordered by (biased score descending, number ascending).
void choose(std::span<const float> scores, std::span<const float> bias,
            std::span<uint16_t> experts) {
  size_t kept = 0;
  for (size_t e = 0; e < scores.size(); ++e) {
    const float biased = scores[e] + bias[e];
    size_t at = kept;
    // Strictly better only: an equal one that came before has the lower number and stays.
    while (at > 0 && biased > scores[experts[at - 1]] + bias[experts[at - 1]]) --at;
    if (at == experts.size()) continue;
    if (kept < experts.size()) ++kept;
    for (size_t i = kept - 1; i > at; --i) experts[i] = experts[i - 1];
    experts[at] = static_cast<uint16_t>(e);
  }
}

}  // namespace

void route(const Config& config, std::span<const float> scores, std::span<const float> bias,
           std::span<uint16_t> experts, std::span<float> weights) {
  K3_CHECK(experts.size() == config.experts_per_token && weights.size() == experts.size());
  choose(scores, bias, experts);
  std::sort(experts.begin(), experts.end());
  float sum = 0.0f;
  for (uint16_t e : experts) sum += scores[e];
  const float denominator = sum + 1e-20f;
  for (size_t i = 0; i < experts.size(); ++i) {
    weights[i] = (scores[experts[i]] / denominator) * config.routed_scaling_factor;
  }
}

}  // namespace k3::model
