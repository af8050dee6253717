#include "model/mla.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/check.h"

namespace k3::model {
namespace {

// Heads whose dots with a tile are kept at once: whole tiles of both kernels (24 columns, 6 heads).
constexpr size_t kHeadGroup = 24;

/// The spans of a thread's scratch.
struct Scratch {
  float* query;    // [cache_width]: latent and rope part of one head, before packing
  float* dots;     // [kHeadGroup, kAttentionTile]
  float* packed;   // [heads, packed width]
  float* maximum;  // [heads]
  float* total;    // [heads]
  float* sums;     // [heads, kv_lora_rank]

  Scratch(const Config& c, size_t heads, float* memory)
      : query(memory),
        dots(query + c.cache_width()),
        packed(dots + kHeadGroup * kAttentionTile),
        maximum(packed + heads * kernels::packed_pairs_length(c.cache_width())),
        total(maximum + heads),
        sums(total + heads) {}
};

void pack_queries(const kernels::Kernels& kernels, const Config& c, const AttentionQuery& query,
                  kernels::Range heads, const Scratch& s) {
  const size_t packed = kernels::packed_pairs_length(c.cache_width());
  for (size_t h = heads.begin; h < heads.end; ++h) {
    const float* rope = query.q + h * c.q_head_dim() + c.qk_nope_head_dim;
    std::copy_n(query.latent + h * query.latent_stride, c.kv_lora_rank, s.query);
    std::copy_n(rope, c.qk_rope_head_dim, s.query + c.kv_lora_rank);
    kernels.pack_pairs(s.query, c.cache_width(), s.packed + (h - heads.begin) * packed);
  }
}

bool dots_are_finite(const kernels::Kernels& kernels, size_t heads, size_t positions,
                     const float* dots) {
  for (size_t h = 0; h < heads; ++h) {
    if (!kernels.all_finite(dots + h * kAttentionTile, positions)) return false;
  }
  return true;
}

/// One tile of the cache with heads [first, first + count) of the scratch; false when a score is
/// not finite.
bool attend_group(const kernels::Kernels& kernels, const Config& c, const kernels::WeightView& tile,
                  size_t first, size_t count, const Scratch& s) {
  const size_t packed = kernels::packed_pairs_length(c.cache_width());
  kernels.matmul_f32(tile, {0, tile.rows}, {s.packed + first * packed, count, packed},
                     {s.dots, kAttentionTile});
  if (!dots_are_finite(kernels, count, tile.rows, s.dots)) return false;
  const float scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(c.q_head_dim())));
  kernels.attend_tile({.positions = tile.rows,
                       .width = c.kv_lora_rank,
                       .row_stride = tile.cols,
                       .rows = reinterpret_cast<const float*>(tile.data),
                       .heads = count,
                       .scale = scale,
                       .dots = s.dots,
                       .dot_stride = kAttentionTile,
                       .maximum = s.maximum + first,
                       .total = s.total + first,
                       .sums = s.sums + first * c.kv_lora_rank});
  return true;
}

}  // namespace

uint64_t AttentionScratch::floats(const Config& c, uint64_t heads) {
  return c.cache_width() + kHeadGroup * kAttentionTile +
         heads * (kernels::packed_pairs_length(c.cache_width()) + 2 + c.kv_lora_rank);
}

bool mla_attend(const kernels::Kernels& kernels, const Config& config, const float* cache,
                const AttentionQuery& query, kernels::Range heads, AttentionScratch scratch) {
  const size_t count = heads.end - heads.begin, width = config.cache_width();
  const size_t rank = config.kv_lora_rank;
  K3_CHECK(scratch.memory.size() >= AttentionScratch::floats(config, count));
  const Scratch s(config, count, scratch.memory.data());
  pack_queries(kernels, config, query, heads, s);
  std::fill_n(s.maximum, count, -std::numeric_limits<float>::infinity());
  std::fill_n(s.total, count, 0.0f);
  std::fill_n(s.sums, count * rank, 0.0f);
  for (uint64_t begin = 0; begin <= query.position; begin += kAttentionTile) {
    const uint64_t positions = std::min(kAttentionTile, query.position + 1 - begin);
    const kernels::WeightView tile{kernels::Encoding::kF32,
                                   reinterpret_cast<const std::byte*>(cache + begin * width),
                                   nullptr, positions, width};
    for (size_t first = 0; first < count; first += kHeadGroup) {
      const size_t group = std::min(kHeadGroup, count - first);
      if (!attend_group(kernels, config, tile, first, group, s)) return false;
    }
  }
  for (size_t i = 0; i < count; ++i) {
    kernels.divide(s.sums + i * rank, s.total[i], rank, s.query);
    kernels.pack_pairs(s.query, rank, query.latent + (heads.begin + i) * query.latent_stride);
  }
  return true;
}

}  // namespace k3::model
