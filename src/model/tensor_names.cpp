#include "model/tensor_names.h"

#include <fmt/format.h>

#include <array>
#include <charconv>

#include "base/check.h"

namespace k3::model {
namespace {

using weights::ExpertPart;

constexpr std::string_view kModel = "language_model.model.";
constexpr std::string_view kExperts = "block_sparse_moe.experts.";

constexpr std::array<std::string_view, weights::kExpertParts> kPartNames = {
    "w1.weight_packed", "w1.weight_scale",  "w2.weight_packed",
    "w2.weight_scale",  "w3.weight_packed", "w3.weight_scale"};

/// What follows "language_model.model.layers.L.".
std::string_view layer_suffix(Role role) {
  switch (role) {
    case Role::kAttnResNorm:
      return "self_attention_res_norm.weight";
    case Role::kAttnResProj:
      return "self_attention_res_proj.weight";
    case Role::kInputNorm:
      return "input_layernorm.weight";
    case Role::kMlpResNorm:
      return "mlp_res_norm.weight";
    case Role::kMlpResProj:
      return "mlp_res_proj.weight";
    case Role::kPostAttnNorm:
      return "post_attention_layernorm.weight";
    case Role::kALog:
      return "self_attn.A_log";
    case Role::kDtBias:
      return "self_attn.dt_bias";
    case Role::kConvQ:
      return "self_attn.q_conv1d.weight";
    case Role::kConvK:
      return "self_attn.k_conv1d.weight";
    case Role::kConvV:
      return "self_attn.v_conv1d.weight";
    case Role::kONorm:
      return "self_attn.o_norm.weight";
    case Role::kQANorm:
      return "self_attn.q_a_layernorm.weight";
    case Role::kKvANorm:
      return "self_attn.kv_a_layernorm.weight";
    case Role::kRouterBias:
      return "block_sparse_moe.gate.e_score_correction_bias";
    case Role::kRoutedNorm:
      return "block_sparse_moe.routed_expert_norm.weight";
    case Role::kQProj:
      return "self_attn.q_proj.weight";
    case Role::kKProj:
      return "self_attn.k_proj.weight";
    case Role::kVProj:
      return "self_attn.v_proj.weight";
    case Role::kFAProj:
      return "self_attn.f_a_proj.weight";
    case Role::kFBProj:
      return "self_attn.f_b_proj.weight";
    case Role::kBProj:
      return "self_attn.b_proj.weight";
    case Role::kGProj:
      return "self_attn.g_proj.weight";
    case Role::kOProj:
      return "self_attn.o_proj.weight";
    case Role::kQAProj:
      return "self_attn.q_a_proj.weight";
    case Role::kQBProj:
      return "self_attn.q_b_proj.weight";
    case Role::kWUK:
    case Role::kWUV:
      return "self_attn.kv_b_proj.weight";
    case Role::kKvAProj:
      return "self_attn.kv_a_proj_with_mqa.weight";
    case Role::kDenseGate:
      return "mlp.gate_proj.weight";
    case Role::kDenseUp:
      return "mlp.up_proj.weight";
    case Role::kDenseDown:
      return "mlp.down_proj.weight";
    case Role::kRouter:
      return "block_sparse_moe.gate.weight";
    case Role::kRoutedDown:
      return "block_sparse_moe.routed_expert_down_proj.weight";
    case Role::kSharedGate:
      return "block_sparse_moe.shared_experts.gate_proj.weight";
    case Role::kSharedUp:
      return "block_sparse_moe.shared_experts.up_proj.weight";
    case Role::kSharedDown:
      return "block_sparse_moe.shared_experts.down_proj.weight";
    case Role::kRoutedUp:
      return "block_sparse_moe.routed_expert_up_proj.weight";
    default:
      return {};
  }
}

/// Takes `prefix` off the front of `text`, if it is there.
bool eat(std::string_view& text, std::string_view prefix) {
  if (!text.starts_with(prefix)) return false;
  text.remove_prefix(prefix.size());
  return true;
}

/// Takes a decimal number and a dot off the front: no sign, no leading zero.
std::optional<uint32_t> eat_number(std::string_view& text) {
  uint32_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const auto digits = static_cast<size_t>(end - text.data());
  if (error != std::errc() || (text.front() == '0' && digits > 1)) return std::nullopt;
  text.remove_prefix(digits);
  if (!eat(text, ".")) return std::nullopt;
  return number;
}

}  // namespace

std::string tensor_name(uint32_t layer, Role role) {
  switch (role) {
    case Role::kOutputResNorm:
      return fmt::format("{}output_attn_res_norm.weight", kModel);
    case Role::kOutputResProj:
      return fmt::format("{}output_attn_res_proj.weight", kModel);
    case Role::kOutputNorm:
      return fmt::format("{}norm.weight", kModel);
    case Role::kLmHead:
      return "language_model.lm_head.weight";
    default:
      break;
  }
  const std::string_view suffix = layer_suffix(role);
  K3_CHECK(!suffix.empty());
  return fmt::format("{}layers.{}.{}", kModel, layer, suffix);
}

std::string embedding_name() {
  return fmt::format("{}embed_tokens.weight", kModel);
}

std::string expert_name(uint32_t layer, uint32_t expert, ExpertPart part) {
  return fmt::format("{}layers.{}.{}{}.{}", kModel, layer, kExperts, expert,
                     kPartNames[static_cast<size_t>(part)]);
}

std::optional<weights::ExpertName> parse_expert_name(std::string_view name) {
  if (!eat(name, kModel) || !eat(name, "layers.")) return std::nullopt;
  const std::optional<uint32_t> layer = eat_number(name);
  if (!layer || !eat(name, kExperts)) return std::nullopt;
  const std::optional<uint32_t> expert = eat_number(name);
  if (!expert) return std::nullopt;
  for (size_t part = 0; part < kPartNames.size(); ++part) {
    if (name == kPartNames[part]) {
      return weights::ExpertName{*layer, *expert, static_cast<ExpertPart>(part)};
    }
  }
  return std::nullopt;
}

}  // namespace k3::model
