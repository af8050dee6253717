#include "engine/activations.h"

#include <algorithm>

#include "model/mla.h"

namespace k3::engine {
namespace {

using kernels::packed_octets_length;
using kernels::packed_pairs_length;

/// The most that ThreadPool::parallel_for gives to one thread.
uint64_t heads_of_a_thread(const model::Config& c, size_t threads) {
  return (c.mla_heads + threads - 1) / threads;
}

/// Hands out row buffers from one block of memory, or only counts when there is none: the same code
/// says how much is needed and lays it out, so the two cannot differ.
class Carver {
 public:
  Carver(float* base, size_t rows) : base_(base), rows_(rows) {}

  RowBuffer rows(size_t width) {
    const size_t stride = packed_pairs_length(width);
    const RowBuffer buffer{base_ == nullptr ? nullptr : base_ + used_, stride};
    used_ += stride * rows_;
    return buffer;
  }
  size_t used() const { return used_; }

 private:
  float* base_;
  size_t rows_;
  size_t used_ = 0;
};

KdaBuffers kda_buffers(const model::Config& c, Carver& carve) {
  KdaBuffers b;
  for (RowBuffer* buffer : {&b.q, &b.k, &b.v, &b.decay, &b.gate, &b.out}) {
    *buffer = carve.rows(c.kda_width());
  }
  b.beta = carve.rows(c.kda_heads);
  b.f_a = carve.rows(c.kda_head_dim);
  b.f_a_packed = carve.rows(c.kda_head_dim);
  return b;
}

MlaBuffers mla_buffers(const model::Config& c, Carver& carve) {
  MlaBuffers b;
  b.q_a = carve.rows(c.q_lora_rank);
  b.q_a_packed = carve.rows(c.q_lora_rank);
  b.q = carve.rows(size_t{c.mla_heads} * c.q_head_dim());
  b.latent_stride = packed_pairs_length(c.kv_lora_rank);
  b.latent = carve.rows(c.mla_heads * b.latent_stride);
  b.kv = carve.rows(c.cache_width());
  for (RowBuffer* buffer : {&b.gate, &b.out, &b.out_packed}) {
    *buffer = carve.rows(size_t{c.mla_heads} * c.v_head_dim);
  }
  return b;
}

DenseBuffers dense_buffers(const model::Config& c, Carver& carve) {
  DenseBuffers b;
  b.gate = carve.rows(c.intermediate_size);
  b.up = carve.rows(c.intermediate_size);
  return b;
}

MoeBuffers moe_buffers(const model::Config& c, Carver& carve) {
  MoeBuffers b;
  b.scores = carve.rows(c.num_experts);
  b.latent = carve.rows(c.latent_size);
  b.latent_sum = carve.rows(c.latent_size);
  b.latent_packed = carve.rows(c.latent_size);
  b.shared_gate = carve.rows(c.shared_width());
  b.shared_up = carve.rows(c.shared_width());
  b.shared_out = carve.rows(c.hidden_size);
  return b;
}

/// The overlaid scratch of all layer kinds: floats taken; fills `a` when given.
size_t overlay(const model::Config& c, size_t rows, float* base, Activations* a) {
  size_t most = 0;
  const auto lay_out = [&](auto buffers, auto member) {
    Carver carve(base, rows);
    auto laid_out = buffers(c, carve);
    most = std::max(most, carve.used());
    if (a != nullptr) a->*member = laid_out;
  };
  lay_out(kda_buffers, &Activations::kda);
  lay_out(mla_buffers, &Activations::mla);
  lay_out(dense_buffers, &Activations::dense);
  lay_out(moe_buffers, &Activations::moe);
  return most;
}

/// Counts what an arena would be asked for.
struct Counter {
  uint64_t total = 0;
  template <typename T>
  std::span<T> carve(size_t count) {
    total += io::Arena::padded(Bytes{count * sizeof(T)}).value;
    return {};
  }
};

template <typename Source>
RowBuffer carve_rows(Source& source, size_t rows, size_t stride) {
  return {source.template carve<float>(rows * stride).data(), stride};
}

/// Everything but the overlaid scratch, which it returns.
template <typename Source>
std::span<float> carve_all(const model::Config& c, const StepShape& shape, Source& source,
                           Activations& a) {
  const size_t rows = shape.rows, batch = std::min(rows, kExpertRows), width = c.hidden_size;
  a.sources = source.template carve<float>(c.attn_res_sources() * rows * width);
  a.hidden = carve_rows(source, rows, width);
  a.hidden_packed = carve_rows(source, rows, packed_pairs_length(width));
  a.conv_next = source.template carve<float>((c.conv_kernel - 1) * c.kda_width());
  a.small = source.template carve<float>(Activations::small_floats(c));
  a.mix = source.template carve<float>(width);
  a.exp_a = source.template carve<float>(c.kda_heads);
  a.attention = source.template carve<float>(
      shape.threads * model::AttentionScratch::floats(c, heads_of_a_thread(c, shape.threads)));
  a.experts = source.template carve<uint16_t>(rows * c.experts_per_token);
  a.expert_weights = source.template carve<float>(rows * c.experts_per_token);
  a.expert_begin = source.template carve<uint32_t>(c.num_experts + 1);
  a.expert_uses = source.template carve<uint32_t>(rows * c.experts_per_token);
  a.chosen = source.template carve<uint16_t>(c.num_experts);
  a.expert_in = carve_rows(source, batch, packed_octets_length(c.latent_size));
  a.expert_gate = carve_rows(source, batch, c.moe_intermediate_size);
  a.expert_up = carve_rows(source, batch, c.moe_intermediate_size);
  a.expert_hidden = carve_rows(source, batch, packed_octets_length(c.moe_intermediate_size));
  a.expert_out = carve_rows(source, batch, c.latent_size);
  a.logits = carve_rows(source, shape.logit_rows, shape.head_chunk_rows);
  return source.template carve<float>(overlay(c, rows, nullptr, nullptr));
}

}  // namespace

Bytes Activations::bytes_needed(const model::Config& config, const StepShape& shape) {
  Counter counter;
  Activations unused{};
  carve_all(config, shape, counter, unused);
  return Bytes{counter.total};
}

Activations Activations::carve(const model::Config& config, const StepShape& shape,
                               io::Arena& arena) {
  Activations a{};
  a.shape = shape;
  const std::span<float> scratch = carve_all(config, shape, arena, a);
  overlay(config, shape.rows, scratch.data(), &a);
  return a;
}

uint64_t Activations::small_floats(const model::Config& c) {
  const uint64_t width = c.hidden_size;
  const uint64_t kda =
      c.kda_heads + c.kda_width() * (1 + 3 * uint64_t{c.conv_kernel}) + c.kda_head_dim;
  const uint64_t mla = uint64_t{c.q_lora_rank} + c.kv_lora_rank;
  const uint64_t moe = uint64_t{c.num_experts} + c.latent_size;
  return 6 * width + std::max(kda, mla) + moe;
}

}  // namespace k3::engine
