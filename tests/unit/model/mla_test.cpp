#include "model/mla.h"

#include <algorithm>

#include "unit/model/double_support.h"

namespace k3::model {
namespace {

/// One query of all heads over a cache, before and after.
struct Case {
  Config config = odd_config();
  uint64_t position;
  Floats cache;    // [position + 1, cache_width]
  Floats q;        // [heads, nope + rope]
  Floats latents;  // [heads, rank]: the query in the latent space

  explicit Case(uint64_t last, uint32_t heads = 3) : position(last) {
    config.mla_heads = heads;
    const uint32_t seed = static_cast<uint32_t>(last) * 10;
    cache = normal((last + 1) * config.cache_width(), seed);
    q = normal(heads * config.q_head_dim(), seed + 1, 2);
    latents = normal(heads * config.kv_lora_rank, seed + 2, 1.5);
  }

  size_t stride() const { return kernels::packed_pairs_length(config.kv_lora_rank); }

  /// The attended latents, packed, by calls over the given cuts of the heads.
  Floats attend(const std::vector<size_t>& cuts, const kernels::Kernels& kernels,
                bool& finite) const {
    Floats latent(config.mla_heads * stride(), 0.0f);
    for (size_t h = 0; h < config.mla_heads; ++h) {
      std::copy_n(latents.data() + h * config.kv_lora_rank, config.kv_lora_rank,
                  latent.data() + h * stride());
    }
    Floats scratch(AttentionScratch::floats(config, config.mla_heads));
    for (size_t i = 0; i + 1 < cuts.size(); ++i) {
      finite &= mla_attend(
          kernels, config, cache.data(),
          {.position = position, .q = q.data(), .latent = latent.data(), .latent_stride = stride()},
          {cuts[i], cuts[i + 1]}, {scratch});
    }
    return latent;
  }
  Floats attend(const std::vector<size_t>& cuts, const kernels::Kernels& kernels = scalar()) const {
    bool finite = true;
    Floats latent = attend(cuts, kernels, finite);
    EXPECT_TRUE(finite);
    return latent;
  }

  /// The same from the formula: softmax over positions of the dot product of latent and rope parts.
  Floats attend_exactly_packed() const {
    Floats out;
    for (size_t h = 0; h < config.mla_heads; ++h) {
      const Doubles exact = attend_exactly(h);
      Floats natural(exact.begin(), exact.end()), packed(stride());
      scalar().pack_pairs(natural.data(), natural.size(), packed.data());
      out.insert(out.end(), packed.begin(), packed.end());
    }
    return out;
  }

  Doubles attend_exactly(size_t h) const {
    const size_t rank = config.kv_lora_rank, rope = config.qk_rope_head_dim;
    const float* latent = latents.data() + h * rank;
    const float* q_rope = q.data() + h * config.q_head_dim() + config.qk_nope_head_dim;
    Doubles p;
    for (uint64_t t = 0; t <= position; ++t) {
      const float* row = cache.data() + t * config.cache_width();
      double dot = 0;
      for (size_t i = 0; i < rank; ++i) dot += double{latent[i]} * row[i];
      for (size_t i = 0; i < rope; ++i) dot += double{q_rope[i]} * row[rank + i];
      p.push_back(dot / std::sqrt(double(config.q_head_dim())));
    }
    const double maximum = *std::max_element(p.begin(), p.end());
    double total = 0;
    for (double& score : p) total += score = std::exp(score - maximum);
    Doubles out(rank, 0.0);
    for (uint64_t t = 0; t <= position; ++t) {
      for (size_t i = 0; i < rank; ++i) {
        out[i] += p[t] / total * cache[t * config.cache_width() + i];
      }
    }
    return out;
  }
};

Doubles widened(const Floats& x) {
  return {x.begin(), x.end()};
}

TEST(Mla, IsTheSoftmaxOverAllPositionsUpToTheRowsWithItsUnrotatedExtraValues) {
  for (uint64_t position : {0, 1, 254, 255, 256, 257, 511, 512, 600}) {
    SCOPED_TRACE(position);
    const Case c(position);
    expect_close(c.attend({0, 3}), widened(c.attend_exactly_packed()), 2e-5);
  }
}

TEST(Mla, TheExtraValuesDecideTheChoiceOfPositionsAndAreNotSummed) {
  Case c(9);
  const size_t rank = c.config.kv_lora_rank, width = c.config.cache_width();
  std::fill(c.latents.begin(), c.latents.end(), 0.0f);
  std::fill(c.q.begin(), c.q.end(), 0.0f);
  for (uint64_t t = 0; t <= 9; ++t) {
    std::fill_n(c.cache.data() + t * width + rank, c.config.qk_rope_head_dim, 0.0f);
  }
  c.cache[7 * width + rank] = 400.0f;  // the shared key of position 7 alone fits the query
  for (size_t h = 0; h < 3; ++h) c.q[h * c.config.q_head_dim() + c.config.qk_nope_head_dim] = 1;
  const Floats latent = c.attend({0, 3});
  Floats packed(c.stride());
  scalar().pack_pairs(c.cache.data() + 7 * width, rank, packed.data());
  for (size_t h = 0; h < 3; ++h) {
    const auto head = latent.begin() + static_cast<ptrdiff_t>(h * c.stride());
    EXPECT_TRUE(std::equal(packed.begin(), packed.end(), head));
  }
}

TEST(Mla, LaterPositionsAreNotSeen) {
  Case c(300);
  const Floats before = c.attend({0, 3});
  c.cache.resize(c.cache.size() + 50 * c.config.cache_width(), 1e6f);
  EXPECT_EQ(c.attend({0, 3}), before);
}

TEST(Mla, AScoreOfMinusInfinityIsReportedAndDoesNotVanishInTheSoftmax) {
  for (uint64_t seen : {0, 7, 299}) {
    Case c(300);
    const size_t width = c.config.cache_width(), rank = c.config.kv_lora_rank;
    c.cache[seen * width + rank] = -1e20f;
    c.q[c.config.qk_nope_head_dim] = 1e20f;
    bool finite = true;
    c.attend({0, 3}, scalar(), finite);
    EXPECT_FALSE(finite) << seen;
  }
}

TEST(Mla, AnySplitOfTheHeadsHasTheSameBits) {
  const Case c(300, 35);  // more heads than share a pass over a tile
  const Floats whole = c.attend({0, 35});
  EXPECT_EQ(c.attend({0, 1, 17, 20, 35}), whole);
  EXPECT_EQ(c.attend({0, 16, 32, 35}), whole);
  expect_close(whole, widened(c.attend_exactly_packed()), 2e-5);
}

TEST(Mla, EveryInstructionSetHasTheSameBits) {
  const Case c(600, 19);
  const Floats expected = c.attend({0, 19});
  for (const auto isa : {kernels::Isa::kAvx2, kernels::Isa::kAvx512}) {
    if (isa > kernels::best_isa()) continue;
    EXPECT_EQ(c.attend({0, 19}, kernels::table(isa)), expected) << kernels::isa_name(isa);
  }
}

}  // namespace
}  // namespace k3::model
