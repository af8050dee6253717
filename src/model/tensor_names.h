// The only place where a checkpoint name is spelled.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "model/trunk_order.h"
#include "weights/checkpoint_index.h"

namespace k3::model {

std::string tensor_name(uint32_t layer, Role role);  // layer is ignored for output roles
std::string embedding_name();

/// Recognises language_model.model.layers.L.block_sparse_moe.experts.E.wN.weight_{packed,scale}.
std::optional<weights::ExpertName> parse_expert_name(std::string_view name);

}  // namespace k3::model
