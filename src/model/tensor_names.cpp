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
struct LayerTensor {
  Role role;
  std::string_view suffix;
};
constexpr LayerTensor kLayerTensors[] = {
    {Role::kAttnResNorm, "self_attention_res_norm.weight"},
    {Role::kAttnResProj, "self_attention_res_proj.weight"},
    {Role::kInputNorm, "input_layernorm.weight"},
    {Role::kMlpResNorm, "mlp_res_norm.weight"},
    {Role::kMlpResProj, "mlp_res_proj.weight"},
    {Role::kPostAttnNorm, "post_attention_layernorm.weight"},
    {Role::kALog, "self_attn.A_log"},
    {Role::kDtBias, "self_attn.dt_bias"},
    {Role::kConvQ, "self_attn.q_conv1d.weight"},
    {Role::kConvK, "self_attn.k_conv1d.weight"},
    {Role::kConvV, "self_attn.v_conv1d.weight"},
    {Role::kONorm, "self_attn.o_norm.weight"},
    {Role::kQANorm, "self_attn.q_a_layernorm.weight"},
    {Role::kKvANorm, "self_attn.kv_a_layernorm.weight"},
    {Role::kRouterBias, "block_sparse_moe.gate.e_score_correction_bias"},
    {Role::kRoutedNorm, "block_sparse_moe.routed_expert_norm.weight"},
    {Role::kQProj, "self_attn.q_proj.weight"},
    {Role::kKProj, "self_attn.k_proj.weight"},
    {Role::kVProj, "self_attn.v_proj.weight"},
    {Role::kFAProj, "self_attn.f_a_proj.weight"},
    {Role::kFBProj, "self_attn.f_b_proj.weight"},
    {Role::kBProj, "self_attn.b_proj.weight"},
    {Role::kGProj, "self_attn.g_proj.weight"},
    {Role::kOProj, "self_attn.o_proj.weight"},
    {Role::kQAProj, "self_attn.q_a_proj.weight"},
    {Role::kQBProj, "self_attn.q_b_proj.weight"},
    {Role::kWUK, "self_attn.kv_b_proj.weight"},
    {Role::kWUV, "self_attn.kv_b_proj.weight"},
    {Role::kKvAProj, "self_attn.kv_a_proj_with_mqa.weight"},
    {Role::kDenseGate, "mlp.gate_proj.weight"},
    {Role::kDenseUp, "mlp.up_proj.weight"},
    {Role::kDenseDown, "mlp.down_proj.weight"},
    {Role::kRouter, "block_sparse_moe.gate.weight"},
    {Role::kRoutedDown, "block_sparse_moe.routed_expert_down_proj.weight"},
    {Role::kSharedGate, "block_sparse_moe.shared_experts.gate_proj.weight"},
    {Role::kSharedUp, "block_sparse_moe.shared_experts.up_proj.weight"},
    {Role::kSharedDown, "block_sparse_moe.shared_experts.down_proj.weight"},
    {Role::kRoutedUp, "block_sparse_moe.routed_expert_up_proj.weight"},
};

std::string_view layer_suffix(Role role) {
  for (const LayerTensor& tensor : kLayerTensors) {
    if (tensor.role == role) return tensor.suffix;
  }
  return {};
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
