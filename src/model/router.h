// Which experts a token uses, and with what weights.
#pragma once

#include <cstdint>
#include <span>

#include "model/config.h"

namespace k3::model {

/// From the gate's sigmoid scores s[num_experts] and the correction bias: the experts_per_token
/// largest of s + bias (ties to the lower number; the bias is for the choice only), as ascending
/// numbers, with w = (s / (sum of the chosen s, ascending, + 1e-20)) * routed_scaling_factor.
void route(const Config& config, std::span<const float> scores, std::span<const float> bias,
           std::span<uint16_t> experts, std::span<float> weights);

}  // namespace k3::model
