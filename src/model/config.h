// config.json as the numbers that the mathematics uses. Nothing is defaulted: a missing key is an
// error that names it, and every value that would mean other mathematics is refused.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace k3::model {

struct Config {
  // Names follow config.json; the comment gives the released value.
  uint32_t hidden_size;              // E, 7168
  uint32_t num_hidden_layers;        // 93
  uint32_t vocab_size;               // 163840
  float rms_norm_eps;                // 1e-5
  uint64_t max_position_embeddings;  // 1048576: a limit only

  uint32_t mla_heads;         // num_attention_heads, 96
  uint32_t q_lora_rank;       // 1536
  uint32_t kv_lora_rank;      // 512
  uint32_t qk_nope_head_dim;  // 128
  uint32_t qk_rope_head_dim;  // 64, never rotated
  uint32_t v_head_dim;        // 128

  uint32_t kda_heads;      // linear_attn_config.num_heads, 96
  uint32_t kda_head_dim;   // D, 128
  uint32_t conv_kernel;    // short_conv_kernel_size, 4
  float gate_lower_bound;  // -5

  uint32_t dense_layers;           // first_k_dense_replace, 1
  uint32_t intermediate_size;      // dense MLP width, 33792
  uint32_t num_experts;            // 896
  uint32_t experts_per_token;      // 16
  uint32_t num_shared_experts;     // 2, fused into one
  uint32_t moe_intermediate_size;  // expert width, 3072
  uint32_t latent_size;            // routed_expert_hidden_size, 3584
  float routed_scaling_factor;     // 1
  float situ_beta;                 // caps the gate: 4
  float situ_linear_beta;          // caps the up projection: 25
  uint32_t attn_res_block_size;    // 12

  std::vector<bool> is_mla;       // by zero-based layer; else KDA
  std::vector<uint32_t> eos_ids;  // of config.json and generation_config.json

  uint32_t kda_width() const { return kda_heads * kda_head_dim; }
  uint32_t cache_width() const { return kv_lora_rank + qk_rope_head_dim; }
  uint32_t q_head_dim() const { return qk_nope_head_dim + qk_rope_head_dim; }
  uint32_t shared_width() const { return num_shared_experts * moe_intermediate_size; }
  bool is_moe(uint32_t layer) const { return layer >= dense_layers; }
  uint32_t mla_layers() const;
  uint32_t kda_layers() const { return num_hidden_layers - mla_layers(); }
  uint32_t moe_layers() const { return num_hidden_layers - dense_layers; }
  /// Snapshots of AttnRes after the last layer, and the running prefix: the most sources of a mix.
  uint32_t attn_res_sources() const;

  /// Hash of everything that decides shapes or mathematics; not of max_position_embeddings and eos.
  uint64_t fingerprint() const;
};

/// Reads config.json (nested or flat) and generation_config.json where present. Error(kCheckpoint)
/// naming key, what was found and what was expected.
Config load_config(const std::filesystem::path& directory);
Config parse_config(std::string_view json, const std::string& what);

}  // namespace k3::model
