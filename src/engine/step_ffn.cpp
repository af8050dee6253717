// The feed-forward part of a layer: dense, or latent mixture of experts with shared experts.
#include <algorithm>

#include "base/check.h"
#include "engine/step.h"
#include "model/router.h"

namespace k3::engine {

using model::Role;

void Step::dense() {
  const DenseBuffers& b = p_.buffers.dense;
  const kernels::PackedColumns x = p_.buffers.hidden_packed.columns(rows_);
  project(Role::kDenseGate, x, b.gate.out());
  project(Role::kDenseUp, x, b.up.out());
  gated_hidden(b.gate, b.up, p_.config.intermediate_size);
  project(Role::kDenseDown, b.up.columns(rows_), p_.buffers.hidden.out());
}

void Step::moe() {
  const model::Config& c = p_.config;
  MoeBuffers& b = p_.buffers.moe;
  const kernels::PackedColumns x = p_.buffers.hidden_packed.columns(rows_);

  project(Role::kRouter, x, b.scores.out(), &TimeByKind::router);
  choose_experts();
  group_by_expert();
  p_.experts.request(layer_ - c.dense_layers,
                     p_.buffers.chosen.first(chosen_count_));  // read while the trunk goes on

  project(Role::kRoutedDown, x, b.latent.out());
  project(Role::kSharedGate, x, b.shared_gate.out());
  project(Role::kSharedUp, x, b.shared_up.out());
  gated_hidden(b.shared_gate, b.shared_up, c.shared_width());
  project(Role::kSharedDown, b.shared_up.columns(rows_), b.shared_out.out());

  run_experts();
  // The norm is taken of the weighted sum, not of each expert.
  each_row([&](size_t r) {
    float* u = b.latent_sum.row(r);
    note_normable(u, c.latent_size);
    p_.kernels.rms_norm(u, small_[Role::kRoutedNorm], c.latent_size, c.rms_norm_eps, u);
    p_.kernels.pack_pairs(u, c.latent_size, b.latent_packed.row(r));
  });
  check_finite("sum of experts");
  project(Role::kRoutedUp, b.latent_packed.columns(rows_), p_.buffers.hidden.out());
  each_row([&](size_t r) {
    float* routed = p_.buffers.hidden.row(r);
    p_.kernels.add(routed, b.shared_out.row(r), c.hidden_size, routed);
  });
}

/// up = packed situ(gate, up): the input of a down projection.
void Step::gated_hidden(RowBuffer gate, RowBuffer up, size_t width) {
  const model::Config& c = p_.config;
  each_row([&](size_t r) {
    p_.kernels.situ(gate.row(r), up.row(r), width, c.situ_beta, c.situ_linear_beta, gate.row(r));
    p_.kernels.pack_pairs(gate.row(r), width, up.row(r));
  });
}

void Step::choose_experts() {
  const WorkClock::Scope router(clock_, &TimeByKind::router);
  const model::Config& c = p_.config;
  const size_t k = c.experts_per_token;
  each_row([&](size_t r) {
    float* scores = p_.buffers.moe.scores.row(r);
    p_.kernels.sigmoid(scores, c.num_experts, scores);
    model::route(c, {scores, c.num_experts}, {small_[Role::kRouterBias], c.num_experts},
                 p_.buffers.experts.subspan(r * k, k), p_.buffers.expert_weights.subspan(r * k, k));
  });
}

/// Counting sort of (row, expert) by expert: uses of expert e are
/// expert_uses[expert_begin[e] .. expert_begin[e+1]), by ascending row.
void Step::group_by_expert() {
  const size_t uses = rows_ * p_.config.experts_per_token, experts = p_.config.num_experts;
  const auto begin = p_.buffers.expert_begin;
  std::fill(begin.begin(), begin.end(), 0u);
  for (size_t i = 0; i < uses; ++i) ++begin[p_.buffers.experts[i] + 1];
  chosen_count_ = 0;
  for (size_t e = 0; e < experts; ++e) {
    if (begin[e + 1] > 0) p_.buffers.chosen[chosen_count_++] = static_cast<uint16_t>(e);
    begin[e + 1] += begin[e];
  }
  for (size_t i = uses; i-- > 0;) {
    // Placed from the back of each group, so that the rows end up ascending; begin[e+1] ends as the
    // group's first place, and the shift below puts it right.
    p_.buffers.expert_uses[--begin[p_.buffers.experts[i] + 1]] = static_cast<uint32_t>(i);
  }
  for (size_t e = 0; e < experts; ++e) begin[e] = begin[e + 1];
  begin[experts] = static_cast<uint32_t>(uses);
}

void Step::run_experts() {
  const WorkClock::Scope experts(clock_, &TimeByKind::experts);
  each_row([&](size_t r) {
    std::fill_n(p_.buffers.moe.latent_sum.row(r), p_.config.latent_size, 0.0f);
  });
  for (size_t i = 0; i < chosen_count_; ++i) {
    const weights::ExpertView expert = next_expert();
    K3_CHECK(expert.expert == p_.buffers.chosen[i]);
    const uint32_t begin = p_.buffers.expert_begin[expert.expert];
    const uint32_t end = p_.buffers.expert_begin[expert.expert + 1];
    for (uint32_t at = begin; at < end; at += kExpertRows) {
      const uint32_t count = std::min<uint32_t>(kExpertRows, end - at);
      run_expert(expert, p_.buffers.expert_uses.subspan(at, count));
    }
  }
}

/// latent_sum[row] = fma(weight, w2 situ(w1 z, w3 z), latent_sum[row]) for the rows that chose it.
void Step::run_expert(const weights::ExpertView& expert, std::span<const uint32_t> uses) {
  using weights::ExpertPart;
  const model::Config& c = p_.config;
  Activations& b = p_.buffers;
  const size_t inner = c.moe_intermediate_size, latent = c.latent_size, count = uses.size();
  const auto view = [&](ExpertPart packed, ExpertPart scale, size_t rows, size_t cols) {
    return kernels::WeightView{kernels::Encoding::kMxfp4, expert.part[static_cast<size_t>(packed)],
                               expert.part[static_cast<size_t>(scale)], rows, cols};
  };
  const auto w1 = view(ExpertPart::kW1Packed, ExpertPart::kW1Scale, inner, latent);
  const auto w2 = view(ExpertPart::kW2Packed, ExpertPart::kW2Scale, latent, inner);
  const auto w3 = view(ExpertPart::kW3Packed, ExpertPart::kW3Scale, inner, latent);
  const auto each_use = [&](auto&& body) {
    p_.pool.parallel_for(count, 1, [&](size_t begin, size_t end) {
      for (size_t i = begin; i < end; ++i) body(i, uses[i] / c.experts_per_token);
    });
  };

  each_use([&](size_t i, size_t row) {
    p_.kernels.pack_octets(b.moe.latent.row(row), latent, b.expert_in.row(i));
  });
  multiply(w1, b.expert_in.columns(count), b.expert_gate.out());
  multiply(w3, b.expert_in.columns(count), b.expert_up.out());
  check_finite("routed expert, w1 and w3");
  each_use([&](size_t i, size_t) {
    float* gate = b.expert_gate.row(i);
    p_.kernels.situ(gate, b.expert_up.row(i), inner, c.situ_beta, c.situ_linear_beta, gate);
    p_.kernels.pack_octets(gate, inner, b.expert_hidden.row(i));
  });
  multiply(w2, b.expert_hidden.columns(count), b.expert_out.out());
  check_finite("routed expert, w2");
  each_use([&](size_t i, size_t row) {
    p_.kernels.add_scaled(b.expert_out.row(i), b.expert_weights[uses[i]], latent,
                          b.moe.latent_sum.row(row));
  });
}

}  // namespace k3::engine
