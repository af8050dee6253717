// The buffers of a step, for up to `rows` positions at once: shapes, and what they take.
//
// A layer kind's scratch overlays the others': only one sublayer is computed at a time. Strides of
// buffers that feed a product are whole lane groups, so that a packed vector can take the place of
// one that is no longer needed.
#pragma once

#include <cstdint>
#include <span>

#include "io/arena.h"
#include "k3/units.h"
#include "kernels/table.h"
#include "model/config.h"

namespace k3::engine {

/// [rows, width] floats, `stride` apart.
struct RowBuffer {
  float* data = nullptr;
  size_t stride = 0;
  float* row(size_t i) const { return data + i * stride; }
  kernels::PackedColumns columns(size_t rows) const { return {data, rows, stride}; }
  kernels::ColumnsOut out() const { return {data, stride}; }
};

struct KdaBuffers {
  RowBuffer q, k, v, decay, gate, out;  // [rows, kda_width]; q becomes the packed output
  RowBuffer beta;                       // [rows, heads]
  RowBuffer f_a, f_a_packed;            // [rows, D]
};

struct MlaBuffers {
  RowBuffer q_a, q_a_packed;  // [rows, q_lora_rank]
  RowBuffer q;                // [rows, heads * (nope + rope)]
  RowBuffer latent;           // [rows, heads * latent_stride]
  size_t latent_stride;
  RowBuffer kv;                     // [rows, kv_lora_rank + rope]
  RowBuffer gate, out, out_packed;  // [rows, heads * v_head_dim]
};

struct DenseBuffers {
  RowBuffer gate, up;  // [rows, intermediate_size]; up becomes the packed hidden vector
};

struct MoeBuffers {
  RowBuffer scores;                  // [rows, num_experts]
  RowBuffer latent, latent_sum;      // [rows, latent_size]: z and u
  RowBuffer latent_packed;           // u, packed pairs
  RowBuffer shared_gate, shared_up;  // [rows, shared_width]; up becomes the packed hidden vector
  RowBuffer shared_out;              // [rows, hidden_size]
};

/// Rows of one expert that are computed together.
inline constexpr size_t kExpertRows = 64;

/// How large a step can be.
struct StepShape {
  size_t rows;             // positions taken in at once
  size_t logit_rows;       // of them, how many may want logits
  size_t head_chunk_rows;  // vocabulary rows of the largest chunk of the output head
  size_t threads;
};

struct Activations {
  static Bytes bytes_needed(const model::Config& config, const StepShape& shape);
  static Activations carve(const model::Config& config, const StepShape& shape, io::Arena& arena);
  /// Floats of a layer's small tensors, widened.
  static uint64_t small_floats(const model::Config& config);

  StepShape shape;
  std::span<float> sources;  // [attn_res_sources, rows, hidden_size]
  RowBuffer hidden;          // [rows, hidden_size]: a sublayer's input, then its output
  RowBuffer hidden_packed;   // the normed input, packed pairs
  KdaBuffers kda;
  MlaBuffers mla;
  DenseBuffers dense;
  MoeBuffers moe;
  std::span<float> conv_next;        // [conv_kernel-1, kda_width]: of q, k or v
  std::span<float> small;            // widened small tensors of a layer
  std::span<float> mix;              // [hidden_size]: norm_w * proj_w
  std::span<float> exp_a;            // [kda_heads]
  std::span<float> attention;        // [threads, AttentionScratch::floats]
  std::span<uint16_t> experts;       // [rows, experts_per_token], ascending
  std::span<float> expert_weights;   // likewise
  std::span<uint32_t> expert_begin;  // [num_experts + 1] into expert_uses
  std::span<uint32_t> expert_uses;   // [rows * experts_per_token]: row * experts_per_token + place
  std::span<uint16_t> chosen;        // [num_experts]: experts of a pass, ascending
  RowBuffer expert_in, expert_gate, expert_up, expert_hidden, expert_out;  // [kExpertRows, ...]
  RowBuffer logits;  // [logit_rows, head_chunk_rows]
};

}  // namespace k3::engine
