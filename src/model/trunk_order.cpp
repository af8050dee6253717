#include "model/trunk_order.h"

#include <fmt/format.h>

#include "k3/error.h"
#include "model/tensor_names.h"

namespace k3::model {
namespace {

using weights::DType;
using weights::RowPattern;
using weights::TensorLocation;
using weights::TrunkTensor;

struct RoleName {
  Role role;
  std::string_view name;
};
constexpr RoleName kRoleNames[] = {
    {Role::kAttnResNorm, "self_attention_res_norm"},
    {Role::kAttnResProj, "self_attention_res_proj"},
    {Role::kInputNorm, "input_layernorm"},
    {Role::kMlpResNorm, "mlp_res_norm"},
    {Role::kMlpResProj, "mlp_res_proj"},
    {Role::kPostAttnNorm, "post_attention_layernorm"},
    {Role::kALog, "A_log"},
    {Role::kDtBias, "dt_bias"},
    {Role::kConvQ, "q_conv1d"},
    {Role::kConvK, "k_conv1d"},
    {Role::kConvV, "v_conv1d"},
    {Role::kONorm, "o_norm"},
    {Role::kQANorm, "q_a_layernorm"},
    {Role::kKvANorm, "kv_a_layernorm"},
    {Role::kRouterBias, "e_score_correction_bias"},
    {Role::kRoutedNorm, "routed_expert_norm"},
    {Role::kQProj, "q_proj"},
    {Role::kKProj, "k_proj"},
    {Role::kVProj, "v_proj"},
    {Role::kFAProj, "f_a_proj"},
    {Role::kFBProj, "f_b_proj"},
    {Role::kBProj, "b_proj"},
    {Role::kGProj, "g_proj"},
    {Role::kOProj, "o_proj"},
    {Role::kQAProj, "q_a_proj"},
    {Role::kQBProj, "q_b_proj"},
    {Role::kWUK, "w_uk"},
    {Role::kKvAProj, "kv_a_proj"},
    {Role::kWUV, "w_uv"},
    {Role::kDenseGate, "gate_proj"},
    {Role::kDenseUp, "up_proj"},
    {Role::kDenseDown, "down_proj"},
    {Role::kRouter, "router"},
    {Role::kRoutedDown, "routed_expert_down_proj"},
    {Role::kSharedGate, "shared_gate_proj"},
    {Role::kSharedUp, "shared_up_proj"},
    {Role::kSharedDown, "shared_down_proj"},
    {Role::kRoutedUp, "routed_expert_up_proj"},
    {Role::kOutputResNorm, "output_attn_res_norm"},
    {Role::kOutputResProj, "output_attn_res_proj"},
    {Role::kOutputNorm, "norm"},
    {Role::kLmHead, "lm_head"},
};

class OrderBuilder {
 public:
  explicit OrderBuilder(const Config& config) : c_(config) {}

  std::vector<TrunkTensor> build() {
    for (layer_ = 0; layer_ < c_.num_hidden_layers; ++layer_) {
      add_small();
      c_.is_mla[layer_] ? add_mla() : add_kda();
      c_.is_moe(layer_) ? add_moe() : add_dense();
    }
    add_output();
    return std::move(out_);
  }

 private:
  void add(Role role, uint64_t rows, uint64_t cols) {
    const bool output = role >= Role::kOutputResNorm;
    out_.push_back({.name = tensor_name(layer_, role),
                    .layer = output ? weights::kNoLayer : static_cast<uint16_t>(layer_),
                    .role = static_cast<uint16_t>(role),
                    .rows = rows,
                    .cols = cols,
                    .source_rows = rows,
                    .at_least = false,
                    .pattern = {.take = rows, .period = rows, .begin = 0},
                    .group = 0});
  }
  /// A tensor that shares a chunk with the other small ones of its layer.
  void add_to_group(Role role, uint64_t rows, uint64_t cols) {
    add(role, rows, cols);
    out_.back().group = layer_ + 1;
  }
  void add_vector(Role role, uint64_t size) { add_to_group(role, 1, size); }

  void add_small() {
    const uint64_t e = c_.hidden_size;
    for (Role role : {Role::kAttnResNorm, Role::kAttnResProj, Role::kInputNorm, Role::kMlpResNorm,
                      Role::kMlpResProj, Role::kPostAttnNorm}) {
      add_vector(role, e);
    }
    if (c_.is_mla[layer_]) {
      add_vector(Role::kQANorm, c_.q_lora_rank);
      add_vector(Role::kKvANorm, c_.kv_lora_rank);
    } else {
      add_vector(Role::kALog, c_.kda_heads);
      out_.back().at_least = true;  // the released one is padded from 96 heads to 128 values
      add_vector(Role::kDtBias, c_.kda_width());
      for (Role role : {Role::kConvQ, Role::kConvK, Role::kConvV}) {
        add_to_group(role, c_.kda_width(), c_.conv_kernel);
      }
      add_vector(Role::kONorm, c_.kda_head_dim);
    }
    if (c_.is_moe(layer_)) {
      add_vector(Role::kRouterBias, c_.num_experts);
      add_vector(Role::kRoutedNorm, c_.latent_size);
    }
  }

  void add_kda() {
    const uint64_t e = c_.hidden_size, width = c_.kda_width();
    for (Role role : {Role::kQProj, Role::kKProj, Role::kVProj}) add(role, width, e);
    add(Role::kFAProj, c_.kda_head_dim, e);
    add(Role::kFBProj, width, c_.kda_head_dim);
    add(Role::kBProj, c_.kda_heads, e);
    add(Role::kGProj, width, e);
    add(Role::kOProj, e, width);
  }

  void add_mla() {
    const uint64_t e = c_.hidden_size, heads = c_.mla_heads;
    add(Role::kQAProj, c_.q_lora_rank, e);
    add(Role::kQBProj, heads * c_.q_head_dim(), c_.q_lora_rank);
    add_kv_b_half(Role::kWUK, c_.qk_nope_head_dim, 0);
    add(Role::kKvAProj, c_.cache_width(), e);
    add_kv_b_half(Role::kWUV, c_.v_head_dim, c_.qk_nope_head_dim);
    add(Role::kGProj, heads * c_.v_head_dim, e);
    add(Role::kOProj, e, heads * c_.v_head_dim);
  }

  /// kv_b_proj holds, head by head, qk_nope_head_dim rows of W_UK and v_head_dim rows of W_UV. The
  /// two are used before and after the attention, so each is stored as one run.
  void add_kv_b_half(Role role, uint64_t rows_per_head, uint64_t first_row) {
    const uint64_t period = uint64_t{c_.qk_nope_head_dim} + c_.v_head_dim;
    add(role, c_.mla_heads * rows_per_head, c_.kv_lora_rank);
    out_.back().source_rows = c_.mla_heads * period;
    out_.back().pattern = {.take = rows_per_head, .period = period, .begin = first_row};
  }

  void add_dense() {
    add(Role::kDenseGate, c_.intermediate_size, c_.hidden_size);
    add(Role::kDenseUp, c_.intermediate_size, c_.hidden_size);
    add(Role::kDenseDown, c_.hidden_size, c_.intermediate_size);
  }

  void add_moe() {
    const uint64_t e = c_.hidden_size;
    add(Role::kRouter, c_.num_experts, e);
    add(Role::kRoutedDown, c_.latent_size, e);
    add(Role::kSharedGate, c_.shared_width(), e);
    add(Role::kSharedUp, c_.shared_width(), e);
    add(Role::kSharedDown, e, c_.shared_width());
    add(Role::kRoutedUp, e, c_.latent_size);
  }

  void add_output() {
    for (Role role : {Role::kOutputResNorm, Role::kOutputResProj, Role::kOutputNorm}) {
      add_vector(role, c_.hidden_size);
    }
    add(Role::kLmHead, c_.vocab_size, c_.hidden_size);
  }

  const Config& c_;
  uint32_t layer_ = 0;
  std::vector<TrunkTensor> out_;
};

using Shape = std::vector<uint64_t>;

/// The shape in which the checkpoint stores a trunk tensor.
Shape stored_shape(const TrunkTensor& tensor) {
  switch (static_cast<Role>(tensor.role)) {
    case Role::kConvQ:
    case Role::kConvK:
    case Role::kConvV:
      return {tensor.source_rows, 1, tensor.cols};
    case Role::kAttnResProj:
    case Role::kMlpResProj:
    case Role::kOutputResProj:
      return {1, tensor.cols};
    default:
      // Every other tensor of a group is a vector; the matrices are alone.
      return tensor.group != 0 ? Shape{tensor.cols} : Shape{tensor.source_rows, tensor.cols};
  }
}

bool shape_fits(const Shape& found, const Shape& expected, bool at_least) {
  if (at_least) return found.size() == 1 && found[0] >= expected[0];
  return found == expected;
}

void check_form(const std::string& name, const TensorLocation& found, const Shape& expected,
                bool at_least) {
  const bool widened = found.dtype == DType::kBf16 || found.dtype == DType::kF32;
  if (widened && shape_fits(found.shape, expected, at_least)) return;
  throw Error(ErrorKind::kCheckpoint,
              fmt::format("tensor {} is {} [{}], expected BF16 or F32 [{}{}] by config.json; is "
                          "config.json from this checkpoint?",
                          name, dtype_name(found.dtype), fmt::join(found.shape, ", "),
                          fmt::join(expected, ", "), at_least ? " or more" : ""));
}

weights::ExpertShape expert_shape(const Config& config) {
  const uint64_t inner = config.moe_intermediate_size, latent = config.latent_size;
  weights::ExpertShape shape;
  const auto set = [&](size_t packed, uint64_t rows, uint64_t cols) {
    shape.part_shape[packed] = {rows, cols / 2};
    shape.part_bytes[packed] = rows * (cols / 2);
    shape.part_shape[packed + 1] = {rows, cols / 32};
    shape.part_bytes[packed + 1] = rows * (cols / 32);
  };
  set(0, inner, latent);  // w1
  set(2, latent, inner);  // w2
  set(4, inner, latent);  // w3
  return shape;
}

}  // namespace

std::string_view role_name(Role role) {
  for (const RoleName& named : kRoleNames) {
    if (named.role == role) return named.name;
  }
  return "unknown";
}

std::vector<TrunkTensor> trunk_order(const Config& config) {
  return OrderBuilder(config).build();
}

weights::CheckpointRequest checkpoint_request(const Config& config) {
  weights::CheckpointRequest request;
  for (const TrunkTensor& tensor : trunk_order(config)) request.tensors.push_back(tensor.name);
  request.tensors.push_back(embedding_name());
  for (uint32_t layer = config.dense_layers; layer < config.num_hidden_layers; ++layer) {
    request.expert_layers.push_back(layer);
  }
  request.experts_per_layer = config.num_experts;
  request.expert_shape = expert_shape(config);
  request.parse_expert = parse_expert_name;
  return request;
}

void check_shapes(const Config& config, const weights::CheckpointIndex& index) {
  const std::vector<TrunkTensor> order = trunk_order(config);
  for (size_t i = 0; i < order.size(); ++i) {
    check_form(order[i].name, index.tensor(i), stored_shape(order[i]), order[i].at_least);
  }
  check_form(embedding_name(), index.tensor(order.size()), {config.vocab_size, config.hidden_size},
             false);
}

}  // namespace k3::model
