// The order in which a step uses the weights, as a list: pack writes it, a step expects it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model/config.h"
#include "weights/checkpoint_index.h"
#include "weights/trunk_layout.h"

namespace k3::model {

/// What a trunk tensor is. The numbers are stored in trunk files: append only.
enum class Role : uint16_t {
  // Small tensors: one chunk at the head of each layer, in this order.
  kAttnResNorm = 0,  // self_attention_res_norm
  kAttnResProj = 1,
  kInputNorm = 2,
  kMlpResNorm = 3,
  kMlpResProj = 4,
  kPostAttnNorm = 5,
  kALog = 6,  // first kda_heads values
  kDtBias = 7,
  kConvQ = 8,  // [kda_width, conv_kernel]
  kConvK = 9,
  kConvV = 10,
  kONorm = 11,
  kQANorm = 12,
  kKvANorm = 13,
  kRouterBias = 14,  // e_score_correction_bias
  kRoutedNorm = 15,
  // KDA matrices, in this order.
  kQProj = 32,
  kKProj = 33,
  kVProj = 34,
  kFAProj = 35,
  kFBProj = 36,
  kBProj = 37,
  kGProj = 38,  // KDA and MLA
  kOProj = 39,  // KDA and MLA
  // MLA matrices, in this order (then kGProj, kOProj).
  kQAProj = 48,
  kQBProj = 49,
  kWUK = 50,  // [heads*nope, kv_lora_rank]: the key half of kv_b_proj
  kKvAProj = 51,
  kWUV = 52,  // [heads*v, kv_lora_rank]: the value half
  // Feed-forward, in this order.
  kDenseGate = 64,
  kDenseUp = 65,
  kDenseDown = 66,
  kRouter = 67,
  kRoutedDown = 68,
  kSharedGate = 69,
  kSharedUp = 70,
  kSharedDown = 71,
  kRoutedUp = 72,
  // Output, after the last layer: one small chunk, then the head.
  kOutputResNorm = 96,
  kOutputResProj = 97,
  kOutputNorm = 98,
  kLmHead = 99,
};

/// "q_proj", "w_uk", ...: for messages and reports.
std::string_view role_name(Role role);

/// Every tensor of the trunk in the order of use.
std::vector<weights::TrunkTensor> trunk_order(const Config& config);

/// What to look for in the checkpoint: the names of trunk_order (W_UK and W_UV both name
/// kv_b_proj), then the embedding table; and the experts.
weights::CheckpointRequest checkpoint_request(const Config& config);

/// Checks dtypes and shapes found against the configuration: BF16 or F32, the exact shape (1-D
/// norms as [n], res_proj [1, E], conv [C, 1, K]; A_log at least kda_heads long).
/// Error(kCheckpoint) naming tensor, found and expected.
void check_shapes(const Config& config, const weights::CheckpointIndex& index);

}  // namespace k3::model
