// A routed expert's tensor as the released checkpoint calls it; the program only reads such names.
#pragma once

#include <fmt/format.h>

#include <array>
#include <cstdint>
#include <string>

#include "weights/checkpoint_index.h"

namespace k3::test {

inline std::string expert_name(uint32_t layer, uint32_t expert, weights::ExpertPart part) {
  constexpr std::array<const char*, weights::kExpertParts> kParts = {
      "w1.weight_packed", "w1.weight_scale",  "w2.weight_packed",
      "w2.weight_scale",  "w3.weight_packed", "w3.weight_scale"};
  return fmt::format("language_model.model.layers.{}.block_sparse_moe.experts.{}.{}", layer, expert,
                     kParts[static_cast<size_t>(part)]);
}

}  // namespace k3::test
