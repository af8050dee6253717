// The division of the budget: pure arithmetic over what each owner says it needs.
//
// Memory is spent in the order of what a byte saves: first what the run cannot do without, then
// ring and expert slots until the drive is kept busy, then prompt rows (each pass saved saves a
// whole read of the trunk), then pinned trunk (each byte saves one byte a token), then, when all of
// the trunk is pinned, further expert slots.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "engine/activations.h"
#include "k3/plan.h"
#include "model/config.h"
#include "weights/trunk_format.h"

namespace k3::engine {

struct PlanInput {
  const model::Config& config;
  std::span<const weights::ChunkRecord> chunks;  // stored sizes
  size_t head_chunk_rows;
  Bytes expert_slot;     // one slot
  Bytes expert_payload;  // one expert
  Bytes embedding_buffer;
  Bytes embedding_row;     // one row, as stored
  Bytes process;           // resident before anything is allocated
  Bytes index, tokenizer;  // of it, for the report
  uint64_t threads;
  uint64_t context;
  uint64_t prompt_rows;  // that want to go through together
  std::optional<uint64_t> batch_rows;
  bool prompt_logits;
  bool undo = false;            // a copy of the states is wanted where it fits
  std::optional<Bytes> budget;  // given by the user
  Bytes safe_budget;            // taken otherwise
};

/// Error(kBudget) with the least budget that would do, or the largest context that fits, when the
/// budget is too small.
Plan make_plan(const PlanInput& input);

/// The step that a plan allows.
StepShape step_shape(const PlanInput& input, const Plan& plan);

/// What the arena must hold for a plan: state, buffers, ring, experts, pinned.
Bytes arena_bytes(const Plan& plan);

}  // namespace k3::engine
