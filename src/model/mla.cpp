#include "model/mla.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/check.h"

namespace k3::model {
namespace {

constexpr size_t kHeadGroup = 16;  // heads that share one pass over a tile of the cache

/// The spans of a thread's scratch.
struct Scratch {
  float* query;    // [cache_width]: latent and rope part of one head, before packing
  float* packed;   // [kHeadGroup, packed width]
  float* dots;     // [kHeadGroup, kAttentionTile]
  float* maximum;  // [kHeadGroup]
  float* total;    // [kHeadGroup]
  float* sums;     // [kHeadGroup, kv_lora_rank]

  Scratch(const Config& c, float* memory)
      : query(memory),
        packed(query + c.cache_width()),
        dots(packed + kHeadGroup * kernels::packed_pairs_length(c.cache_width())),
        maximum(dots + kHeadGroup * kAttentionTile),
        total(maximum + kHeadGroup),
        sums(total + kHeadGroup) {}
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

void attend_group(const kernels::Kernels& kernels, const Config& c, const float* cache,
                  const AttentionQuery& query, kernels::Range heads, const Scratch& s) {
  const size_t count = heads.end - heads.begin, width = c.cache_width();
  pack_queries(kernels, c, query, heads, s);
  std::fill_n(s.maximum, count, -std::numeric_limits<float>::infinity());
  std::fill_n(s.total, count, 0.0f);
  std::fill_n(s.sums, count * c.kv_lora_rank, 0.0f);
  const float scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(c.q_head_dim())));
  for (uint64_t begin = 0; begin <= query.position; begin += kAttentionTile) {
    const uint64_t positions = std::min(kAttentionTile, query.position + 1 - begin);
    const float* rows = cache + begin * width;
    const kernels::WeightView tile{kernels::Encoding::kF32,
                                   reinterpret_cast<const std::byte*>(rows), nullptr, positions,
                                   width};
    kernels.matmul_f32(tile, {0, positions}, {s.packed, count, kernels::packed_pairs_length(width)},
                       {s.dots, kAttentionTile});
    kernels.attend_tile({.positions = positions,
                         .width = c.kv_lora_rank,
                         .row_stride = width,
                         .rows = rows,
                         .heads = count,
                         .scale = scale,
                         .dots = s.dots,
                         .dot_stride = kAttentionTile,
                         .maximum = s.maximum,
                         .total = s.total,
                         .sums = s.sums});
  }
  for (size_t i = 0; i < count; ++i) {
    kernels.divide(s.sums + i * c.kv_lora_rank, s.total[i], c.kv_lora_rank, s.query);
    kernels.pack_pairs(s.query, c.kv_lora_rank,
                       query.latent + (heads.begin + i) * query.latent_stride);
  }
}

}  // namespace

uint64_t AttentionScratch::floats(const Config& c) {
  return c.cache_width() + kHeadGroup * (kernels::packed_pairs_length(c.cache_width()) +
                                         kAttentionTile + 2 + c.kv_lora_rank);
}

void mla_attend(const kernels::Kernels& kernels, const Config& config, const float* cache,
                const AttentionQuery& query, kernels::Range heads, AttentionScratch scratch) {
  K3_CHECK(scratch.memory.size() >= AttentionScratch::floats(config));
  const Scratch spans(config, scratch.memory.data());
  for (size_t h = heads.begin; h < heads.end; h += kHeadGroup) {
    attend_group(kernels, config, cache, query, {h, std::min(h + kHeadGroup, heads.end)}, spans);
  }
}

}  // namespace k3::model
