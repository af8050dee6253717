#include "engine/step.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "base/check.h"
#include "k3/error.h"
#include "model/attn_res.h"
#include "weights/dtype.h"
#include "weights/trunk_codec.h"

namespace k3::engine {

using model::Role;

namespace {
constexpr size_t kRowGrain = 8;  // rows of a matrix that a thread takes at least
}  // namespace

Step::Step(const Parts& parts)
    : p_(parts), small_(parts.kernels, parts.trunk_file, parts.buffers.small) {}

void Step::run(model::SequenceState& state, const StepRequest& request) {
  const model::Config& c = p_.config;
  ids_ = request.ids;
  rows_ = request.ids.size();
  K3_CHECK(rows_ >= 1 && rows_ <= p_.buffers.shape.rows);
  K3_CHECK(request.logit_rows <= std::min(rows_, p_.buffers.shape.logit_rows));
  K3_CHECK(state.position() + rows_ <= state.capacity());
  kda_layer_ = mla_layer_ = 0;
  snapshots_ = 0;
  prefix_empty_ = false;
  not_finite_ = false;  // noted in a step that ended before it was looked at

  clock_.start();
  const WorkClock::Scope rest(clock_, &TimeByKind::rest);
  p_.trunk.begin_pass(request.another_follows);
  embed();
  for (layer_ = 0; layer_ < c.num_hidden_layers; ++layer_) {
    p_.on_layer(layer_);
    begin_layer();
    if (c.is_mla[layer_]) {
      mla(state);
    } else {
      kda(state);
    }
    add_to_prefix();
    mix(Role::kMlpResNorm, Role::kMlpResProj, Role::kPostAttnNorm);
    if (c.is_moe(layer_)) {
      moe();
    } else {
      dense();
    }
    add_to_prefix();
  }
  p_.on_layer(layer_);
  output(request);
  state.advance(rows_);
}

void Step::embed() {
  const auto& table = p_.embedding.table();
  const WorkClock::Scope waiting(clock_, &TimeByKind::waiting);
  p_.embedding.read(ids_, [&](size_t i, const std::byte* bytes) {
    if (table.dtype == weights::DType::kF32) {
      std::copy_n(bytes, 4 * table.cols, reinterpret_cast<std::byte*>(prefix(i)));
    } else {
      p_.kernels.widen_bf16(bytes, table.cols, prefix(i));
    }
    note_normable(prefix(i), table.cols);
  });
  layer_ = 0;
  check_finite("embedding");
}

void Step::begin_layer() {
  const model::Config& c = p_.config;
  small_.load(next_chunk());
  mix(Role::kAttnResNorm, Role::kAttnResProj, Role::kInputNorm);
  if (layer_ % c.attn_res_block_size == 0) {
    // The running sum, raw, becomes the next snapshot where it lies; a new one starts.
    ++snapshots_;
    prefix_empty_ = true;
  }
}

/// hidden = rms(mixture of the snapshots and the running sum, input_norm), packed for the products.
void Step::mix(Role norm, Role proj, Role input_norm) {
  const model::Config& c = p_.config;
  const size_t width = c.hidden_size, count = snapshots_ + 1;
  p_.kernels.multiply(small_[norm], small_[proj], width, p_.buffers.mix.data());
  each_row([&](size_t r) {
    float* hidden = p_.buffers.hidden.row(r);
    std::array<const float*, model::kAttnResSourcesMax> sources;
    for (size_t s = 0; s < count; ++s) sources[s] = source(s, r);
    if (snapshots_ == 0) {  // layer 0 reads the embedding itself
      p_.kernels.rms_norm(prefix(r), small_[input_norm], width, c.rms_norm_eps, hidden);
    } else {
      note(model::attn_res_mix(p_.kernels, {sources.data(), count}, p_.buffers.mix.data(), width,
                               c.rms_norm_eps, hidden));
      note_normable(hidden, width);
      p_.kernels.rms_norm(hidden, small_[input_norm], width, c.rms_norm_eps, hidden);
    }
    note_finite(hidden, width);
    p_.kernels.pack_pairs(hidden, width, p_.buffers.hidden_packed.row(r));
  });
  check_finite(model::role_name(input_norm));
}

/// The sublayer's output, in `hidden`, joins the running sum.
void Step::add_to_prefix() {
  const size_t width = p_.config.hidden_size;
  each_row([&](size_t r) {
    if (prefix_empty_) {
      std::copy_n(p_.buffers.hidden.row(r), width, prefix(r));
    } else {
      p_.kernels.add(prefix(r), p_.buffers.hidden.row(r), width, prefix(r));
    }
    note_normable(prefix(r), width);
  });
  prefix_empty_ = false;
  check_finite("residual sum");
}

void Step::output(const StepRequest& request) {
  small_.load(next_chunk());
  mix(Role::kOutputResNorm, Role::kOutputResProj, Role::kOutputNorm);
  const size_t first = rows_ - request.logit_rows;
  const RowBuffer& packed = p_.buffers.hidden_packed;
  const kernels::PackedColumns x{packed.row(first), request.logit_rows, packed.stride};
  for (size_t row = 0; row < p_.config.vocab_size;) {
    const Product product = next_product(Role::kLmHead);
    if (request.logit_rows > 0) {
      const WorkClock::Scope head(clock_, &TimeByKind::head);
      multiply(product.weights, x, p_.buffers.logits.out());
      check_finite(model::role_name(Role::kLmHead));
      (*request.sink)(row, product.weights.rows, p_.buffers.logits.out());
    }
    row += product.weights.rows;
  }
}

float* Step::source(size_t snapshot, size_t row) const {
  const size_t width = p_.config.hidden_size;
  return p_.buffers.sources.data() + (snapshot * p_.buffers.shape.rows + row) * width;
}

weights::ChunkView Step::next_chunk() {
  const WorkClock::Scope waiting(clock_, &TimeByKind::waiting);
  return p_.trunk.next();
}

weights::ExpertView Step::next_expert() {
  const WorkClock::Scope waiting(clock_, &TimeByKind::waiting);
  return p_.experts.next();
}

Step::Product Step::next_product(Role role) {
  const weights::ChunkView chunk = next_chunk();
  const weights::SegmentRecord& segment = chunk.segments.front();
  const weights::TensorRecord& tensor = p_.trunk_file.tensors()[segment.tensor];
  K3_CHECK(tensor.role == static_cast<uint16_t>(role));
  K3_CHECK(tensor.layer == layer_ || tensor.layer == weights::kNoLayer);
  return {{weights::encoding_of(chunk.record->codec, tensor.dtype), chunk.bytes + segment.offset,
           nullptr, segment.row_count, tensor.cols},
          segment.row_begin,
          tensor.rows};
}

void Step::project(Role role, const kernels::PackedColumns& x, const kernels::ColumnsOut& y,
                   WorkClock::Kind kind) {
  const WorkClock::Scope product(clock_, kind);
  for (size_t done = 0, rows = 1; done < rows;) {
    const Product chunk = next_product(role);
    K3_CHECK(chunk.row_begin == done);
    multiply(chunk.weights, x, {y.data + done, y.stride});
    done += chunk.weights.rows;
    rows = chunk.matrix_rows;
  }
  check_finite(model::role_name(role));
}

decltype(kernels::Kernels::matmul_bf16) Step::matmul_of(kernels::Encoding encoding) const {
  switch (encoding) {
    case kernels::Encoding::kBf16:
      return p_.kernels.matmul_bf16;
    case kernels::Encoding::kF32:
      return p_.kernels.matmul_f32;
    case kernels::Encoding::kMxfp4:
      return p_.kernels.matmul_mxfp4;
    case kernels::Encoding::kPacked3:
    case kernels::Encoding::kPacked4:
      return p_.kernels.matmul_packed;
  }
  K3_CHECK(false);
}

void Step::multiply(const kernels::WeightView& w, const kernels::PackedColumns& x,
                    const kernels::ColumnsOut& y) {
  const auto product = matmul_of(w.encoding);
  in_blocks(x.count, kBlockRows, [&](size_t first, size_t count) {
    const kernels::PackedColumns in{x.data + first * x.stride, count, x.stride};
    const kernels::ColumnsOut out{y.data + first * y.stride, y.stride};
    p_.pool.parallel_for(w.rows, kRowGrain, [&](size_t begin, size_t end) {
      product(w, {begin, end}, in, out);
      for (size_t c = 0; c < count; ++c) note_finite(out.data + c * y.stride + begin, end - begin);
    });
  });
}

void Step::pack_rows(RowBuffer from, size_t width, RowBuffer to) {
  each_row([&](size_t r) { p_.kernels.pack_pairs(from.row(r), width, to.row(r)); });
}

void Step::throw_if_interrupted() const {
  if (p_.interrupted) throw Error(ErrorKind::kInterrupted, "interrupted");
}

void Step::note_finite(const float* x, size_t n) {
  note(p_.kernels.all_finite(x, n));
}

void Step::note_normable(const float* x, size_t n) {
  note(std::isfinite(p_.kernels.dot(x, x, n)));  // not finite when an element is not
}

void Step::note(bool finite) {
  if (!finite) not_finite_.store(true, std::memory_order_relaxed);
}

void Step::check_finite(std::string_view operation) {
  if (!not_finite_.exchange(false, std::memory_order_relaxed)) return;
  const std::string where = layer_ < p_.config.num_hidden_layers ? fmt::format("layer {}", layer_)
                                                                 : std::string("the output");
  throw Error(ErrorKind::kInternal,
              fmt::format("not a finite number in {}, {}: the weights or the drive are damaged, or "
                          "an activation overflowed; run `k3 verify --hashes` to find out",
                          where, operation));
}

}  // namespace k3::engine
