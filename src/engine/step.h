// One pass over the layers: takes chunks from the trunk stream in the order of model/trunk_order,
// hands spans to the model's functions, asks for experts, and keeps the compute pool busy. All
// calls, no mathematics of its own.
//
// The rows of a step are consecutive positions of one sequence. Every row's results have the bits
// that they would have alone: products and mixtures are per row, the recurrences advance position
// by position, experts are added by ascending number.
#pragma once

#include <algorithm>
#include <atomic>
#include <functional>
#include <optional>
#include <span>
#include <string_view>

#include "base/thread_pool.h"
#include "engine/activations.h"
#include "engine/small_tensors.h"
#include "engine/work_clock.h"
#include "kernels/table.h"
#include "model/config.h"
#include "model/state.h"
#include "weights/embedding.h"
#include "weights/expert_cache.h"
#include "weights/trunk_stream.h"

namespace k3::engine {

/// Logits of the wanted rows for vocabulary ids [vocab_begin, vocab_begin + vocab_count):
/// logits.data[row * logits.stride + id - vocab_begin].
using LogitsSink =
    std::function<void(size_t vocab_begin, size_t vocab_count, kernels::ColumnsOut logits)>;

struct StepRequest {
  std::span<const uint32_t> ids;  // 1..shape.rows of them
  size_t logit_rows;              // the last so many rows want logits
  bool another_follows;           // the trunk may be read ahead into the next pass
  const LogitsSink* sink;         // may be null when logit_rows is 0
};

class Step {
 public:
  struct Parts {
    const model::Config& config;
    const kernels::Kernels& kernels;
    ThreadPool& pool;
    const weights::TrunkFile& trunk_file;
    weights::TrunkStream& trunk;
    weights::ExpertCache& experts;
    weights::EmbeddingReader& embedding;
    Activations& buffers;
    /// Called before each layer (and with num_hidden_layers before the head); may throw to stop.
    std::function<void(uint32_t layer)> on_layer;
    const std::atomic<bool>& interrupted;  // may be set from any thread: the step ends
  };
  explicit Step(const Parts& parts);

  /// Advances `state` by request.ids. Error(kRead) from the drive; Error(kInternal) naming layer
  /// and operation when a number is not finite; Error(kInterrupted). After an error the state is
  /// not usable.
  void run(model::SequenceState& state, const StepRequest& request);

  size_t rows() const { return rows_; }                        // of the pass at hand
  const TimeByKind& time() const { return clock_.seconds(); }  // of all passes

 private:
  // The pass (step.cpp).
  void embed();
  void begin_layer();
  void mix(model::Role norm, model::Role proj, model::Role input_norm);
  void add_to_prefix();
  void output(const StepRequest& request);
  // Attention (step_attention.cpp).
  void kda(model::SequenceState& state);
  void mla(model::SequenceState& state);
  void absorb_queries();
  void attend(model::SequenceState& state, uint32_t mla_layer);
  void expand_values();
  // Feed-forward (step_ffn.cpp).
  void dense();
  void moe();
  void gated_hidden(RowBuffer gate, RowBuffer up, size_t width);
  void choose_experts();
  void group_by_expert();
  void run_experts();
  void run_expert(const weights::ExpertView& expert, std::span<const uint32_t> uses);

  // Weights, waited for.
  weights::ChunkView next_chunk();
  weights::ExpertView next_expert();

  // Products.
  struct Product {
    kernels::WeightView weights;
    size_t row_begin;    // of the chunk in its matrix
    size_t matrix_rows;  // of the whole matrix
  };
  Product next_product(model::Role role);
  decltype(kernels::Kernels::matmul_bf16) matmul_of(kernels::Encoding encoding) const;
  /// y = W x over all chunks of the matrix; every result is tested for finiteness.
  void project(model::Role role, const kernels::PackedColumns& x, const kernels::ColumnsOut& y,
               WorkClock::Kind kind = &TimeByKind::trunk);
  void multiply(const kernels::WeightView& w, const kernels::PackedColumns& x,
                const kernels::ColumnsOut& y);
  void pack_rows(RowBuffer from, size_t width, RowBuffer to);
  void check_finite(std::string_view operation);
  void note_finite(const float* x, size_t n);
  /// x is about to be normed, also as a source of a mixture: tests the sum of its squares too,
  /// which would make the norm zero if it overflowed.
  void note_normable(const float* x, size_t n);
  void note(bool finite);

  /// Calls body(first, count) on blocks of at most `most` rows, so that whatever takes long is
  /// interrupted between two of them: Error(kInterrupted).
  static constexpr size_t kBlockRows = 512;  // of products: half a second at the released shape
  template <typename Body>
  void in_blocks(size_t rows, size_t most, Body&& body) {
    for (size_t first = 0; first < rows; first += most) {
      throw_if_interrupted();
      body(first, std::min(most, rows - first));
    }
  }
  void throw_if_interrupted() const;

  template <typename Body>
  void each_row(Body&& body) {
    p_.pool.parallel_for(rows_, 1, [&](size_t begin, size_t end) {
      for (size_t r = begin; r < end; ++r) body(r);
    });
  }
  float* source(size_t snapshot, size_t row) const;
  float* prefix(size_t row) const { return source(snapshots_, row); }

  Parts p_;
  SmallTensors small_;
  WorkClock clock_;
  // Of the pass at hand.
  std::span<const uint32_t> ids_;
  size_t rows_ = 0;
  uint32_t layer_ = 0;
  uint32_t kda_layer_ = 0, mla_layer_ = 0;
  size_t snapshots_ = 0;       // the running sum is the source after them
  bool prefix_empty_ = false;  // a block has begun and nothing was added yet
  size_t chosen_count_ = 0;    // experts that the rows at hand use in this layer
  std::atomic<bool> not_finite_{false};
};

}  // namespace k3::engine
