// The two kinds of attention of a layer: projections through the stream, the rest in model/.
#include <algorithm>

#include "engine/step.h"
#include "model/kda.h"
#include "model/mla.h"

namespace k3::engine {

using model::Role;

namespace {
// Scores of one head between two looks for an interrupt: half a second at the released shape.
constexpr size_t kBlockScores = 1u << 18;
}  // namespace

void Step::kda(model::SequenceState& state) {
  const model::Config& c = p_.config;
  KdaBuffers& b = p_.buffers.kda;
  const kernels::PackedColumns x = p_.buffers.hidden_packed.columns(rows_);
  const size_t width = c.kda_width();

  project(Role::kQProj, x, b.q.out());
  project(Role::kKProj, x, b.k.out());
  project(Role::kVProj, x, b.v.out());
  const RowBuffer convolved[] = {b.q, b.k, b.v};
  const Role taps[] = {Role::kConvQ, Role::kConvK, Role::kConvV};
  for (uint32_t which = 0; which < 3; ++which) {
    const model::ConvRows conv{.rows = convolved[which].data,
                               .count = rows_,
                               .stride = convolved[which].stride,
                               .tail = state.conv_tail(kda_layer_, which),
                               .next_tail = p_.buffers.conv_next.data(),
                               .taps = small_[taps[which]]};
    const WorkClock::Scope convolution(clock_, &TimeByKind::kda);
    p_.pool.parallel_for(width, 16, [&](size_t begin, size_t end) {
      model::kda_convolve(p_.kernels, c, conv, {begin, end});
      for (size_t r = 0; r < rows_; ++r) note_finite(convolved[which].row(r) + begin, end - begin);
    });
    check_finite("short convolution");
  }

  project(Role::kFAProj, x, b.f_a.out());
  pack_rows(b.f_a, c.kda_head_dim, b.f_a_packed);
  project(Role::kFBProj, b.f_a_packed.columns(rows_), b.decay.out());
  project(Role::kBProj, x, b.beta.out());
  each_row([&](size_t r) { p_.kernels.sigmoid(b.beta.row(r), c.kda_heads, b.beta.row(r)); });
  project(Role::kGProj, x, b.gate.out());

  p_.kernels.exp(small_[Role::kALog], c.kda_heads, p_.buffers.exp_a.data());
  const model::KdaRows rows{.count = rows_,
                            .stride = b.q.stride,
                            .q = b.q.data,
                            .k = b.k.data,
                            .v = b.v.data,
                            .decay = b.decay.data,
                            .beta = b.beta.data,
                            .beta_stride = b.beta.stride,
                            .gate = b.gate.data,
                            .out = b.out.data,
                            .state = state.kda(kda_layer_, 0),
                            .exp_a = p_.buffers.exp_a.data(),
                            .dt_bias = small_[Role::kDtBias],
                            .o_norm = small_[Role::kONorm]};
  {
    const WorkClock::Scope recurrence(clock_, &TimeByKind::kda);
    in_blocks(rows_, kBlockRows, [&](size_t first, size_t count) {
      const model::KdaRows block = rows.block(first, count);
      p_.pool.parallel_for(c.kda_heads, 1, [&](size_t begin, size_t end) {
        note(model::kda_heads(p_.kernels, c, block, {begin, end}));
      });
    });
  }
  each_row([&](size_t r) { note_finite(b.out.row(r), width); });
  check_finite("delta rule");

  pack_rows(b.out, width, b.q);
  project(Role::kOProj, b.q.columns(rows_), p_.buffers.hidden.out());
  ++kda_layer_;
}

void Step::mla(model::SequenceState& state) {
  const model::Config& c = p_.config;
  MlaBuffers& b = p_.buffers.mla;
  const kernels::PackedColumns x = p_.buffers.hidden_packed.columns(rows_);

  project(Role::kQAProj, x, b.q_a.out());
  each_row([&](size_t r) {
    float* q_a = b.q_a.row(r);
    note_normable(q_a, c.q_lora_rank);
    p_.kernels.rms_norm(q_a, small_[Role::kQANorm], c.q_lora_rank, c.rms_norm_eps, q_a);
  });
  check_finite(model::role_name(Role::kQANorm));
  pack_rows(b.q_a, c.q_lora_rank, b.q_a_packed);
  project(Role::kQBProj, b.q_a_packed.columns(rows_), b.q.out());
  absorb_queries();

  project(Role::kKvAProj, x, b.kv.out());
  each_row([&](size_t r) {
    // The latent is normed; the shared key behind it is not, and is not rotated either.
    float* cached = state.cache_row(mla_layer_, state.position() + r);
    note_normable(b.kv.row(r), c.kv_lora_rank);
    p_.kernels.rms_norm(b.kv.row(r), small_[Role::kKvANorm], c.kv_lora_rank, c.rms_norm_eps,
                        cached);
    std::copy_n(b.kv.row(r) + c.kv_lora_rank, c.qk_rope_head_dim, cached + c.kv_lora_rank);
    note_finite(cached, c.cache_width());
  });
  check_finite("latent cache");
  attend(state, mla_layer_);
  expand_values();

  project(Role::kGProj, x, b.gate.out());
  const size_t width = size_t{c.mla_heads} * c.v_head_dim;
  each_row([&](size_t r) { p_.kernels.gate(b.out.row(r), b.gate.row(r), width, b.out.row(r)); });
  pack_rows(b.out, width, b.out_packed);
  project(Role::kOProj, b.out_packed.columns(rows_), p_.buffers.hidden.out());
  ++mla_layer_;
}

/// q_lat = q_nope W_UK, head by head; a chunk may begin and end inside a head, and the chain of its
/// sum goes on from chunk to chunk.
void Step::absorb_queries() {
  const WorkClock::Scope products(clock_, &TimeByKind::trunk);
  const model::Config& c = p_.config;
  MlaBuffers& b = p_.buffers.mla;
  const size_t nope = c.qk_nope_head_dim, rows = size_t{c.mla_heads} * nope;
  each_row([&](size_t r) { std::fill_n(b.latent.row(r), b.latent.stride, 0.0f); });
  for (size_t done = 0; done < rows;) {
    const kernels::WeightView w = next_product(Role::kWUK).weights;
    const size_t first_head = done / nope, last_head = (done + w.rows - 1) / nope;
    in_blocks(rows_, kBlockRows, [&](size_t first, size_t count) {
      p_.pool.parallel_for(last_head - first_head + 1, 1, [&](size_t begin, size_t end) {
        for (size_t h = first_head + begin; h < first_head + end; ++h) {
          const size_t from = std::max(h * nope, done);
          const size_t to = std::min((h + 1) * nope, done + w.rows);
          p_.kernels.accumulate_rows(w, {from - done, to - done},
                                     {.count = count,
                                      .x = b.q.row(first) + h * c.q_head_dim() + from - h * nope,
                                      .x_stride = b.q.stride,
                                      .y = b.latent.row(first) + h * b.latent_stride,
                                      .y_stride = b.latent.stride});
        }
      });
    });
    done += w.rows;
  }
  each_row([&](size_t r) { note_finite(b.latent.row(r), b.latent.stride); });
  check_finite(model::role_name(Role::kWUK));
}

void Step::attend(model::SequenceState& state, uint32_t mla_layer) {
  const WorkClock::Scope attention(clock_, &TimeByKind::attention);
  const model::Config& c = p_.config;
  MlaBuffers& b = p_.buffers.mla;
  const size_t scratch = p_.buffers.attention.size() / p_.buffers.shape.threads;
  // A row costs as much as the positions it sees.
  const size_t most = 1 + kBlockScores / (state.position() + rows_);
  in_blocks(rows_, most, [&](size_t first, size_t count) {
    // Split by heads, not by rows: later rows see more positions and would cost more.
    p_.pool.parallel_for(c.mla_heads, 1, [&](size_t begin, size_t end, size_t range) {
      const model::AttentionScratch mine{p_.buffers.attention.subspan(range * scratch, scratch)};
      for (size_t r = first; r < first + count; ++r) {
        note(model::mla_attend(p_.kernels, c, state.cache_row(mla_layer, 0),
                               {.position = state.position() + r,
                                .q = b.q.row(r),
                                .latent = b.latent.row(r),
                                .latent_stride = b.latent_stride},
                               {begin, end}, mine));
      }
    });
  });
  each_row([&](size_t r) { note_finite(b.latent.row(r), b.latent.stride); });
  check_finite("attention");
}

/// out = W_UV (attended latent), head by head.
void Step::expand_values() {
  const WorkClock::Scope products(clock_, &TimeByKind::trunk);
  const model::Config& c = p_.config;
  MlaBuffers& b = p_.buffers.mla;
  const size_t dim = c.v_head_dim, rows = size_t{c.mla_heads} * dim;
  for (size_t done = 0; done < rows;) {
    const kernels::WeightView w = next_product(Role::kWUV).weights;
    const auto product = matmul_of(w.encoding);
    in_blocks(rows_, kBlockRows, [&](size_t first, size_t count) {
      p_.pool.parallel_for(w.rows, 1, [&](size_t begin, size_t end) {
        for (size_t at = begin; at < end;) {
          const size_t head = (done + at) / dim;
          const size_t to = std::min(end, (head + 1) * dim - done);
          product(w, {at, to},
                  {b.latent.row(first) + head * b.latent_stride, count, b.latent.stride},
                  {b.out.row(first) + done, b.out.stride});
          at = to;
        }
      });
    });
    done += w.rows;
  }
  each_row([&](size_t r) { note_finite(b.out.row(r), rows); });
  check_finite(model::role_name(Role::kWUV));
}

}  // namespace k3::engine
