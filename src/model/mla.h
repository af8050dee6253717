// Gated multi-head latent attention between its projections, in the absorbed order: queries are
// moved into the latent space (W_UK), attention runs over cached rows of kv_lora_rank +
// qk_rope_head_dim values, and W_UV brings the result back. Spec section 5.4. The last
// qk_rope_head_dim values are never rotated and take part in the score only.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/table.h"
#include "model/config.h"

namespace k3::model {

inline constexpr uint64_t kAttentionTile = 256;  // absolute tiles: positions 0..255, 256..511, ...

/// Scratch of one thread that attends with so many heads at once.
struct AttentionScratch {
  static uint64_t floats(const Config& config, uint64_t heads);
  std::span<float> memory;
};

/// One query row and some of its heads.
struct AttentionQuery {
  uint64_t position;  // of the row: it sees cached positions 0..position
  const float* q;     // [heads, nope + rope]: the projected query (its last rope values are used)
  // [heads, latent_stride]: in: q_lat = q_nope W_UK; out: the attended latent, in lane order
  // (pack_pairs), as W_UV takes it. latent_stride >= packed_pairs_length(kv_lora_rank).
  float* latent;
  size_t latent_stride;
};

/// Attends with the heads of `heads`, all of them tile by tile, so that the cache is read from
/// memory once; `cache` is row 0 of the layer, cache_width floats a row. False when a score is not
/// finite: one of minus infinity would vanish in the softmax.
bool mla_attend(const kernels::Kernels& kernels, const Config& config, const float* cache,
                const AttentionQuery& query, kernels::Range heads, AttentionScratch scratch);

}  // namespace k3::model
