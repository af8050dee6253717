// What is done with steps: take a prompt in, continue it, score a text.
#pragma once

#include <span>
#include <vector>

#include "base/thread_pool.h"
#include "engine/snapshot.h"
#include "engine/step.h"
#include "k3/engine.h"

namespace k3::engine {

class Sequencer {
 public:
  Sequencer(Step& step, Sequence& sequence, ThreadPool& pool, const kernels::Kernels& kernels,
            uint64_t batch_rows, RunStats& stats);

  /// As Engine::generate and Engine::score.
  FinishReason generate(std::span<const uint32_t> prompt, const GenerateOptions& options,
                        const GenerateHooks& hooks);
  std::vector<double> score(std::span<const uint32_t> ids);

 private:
  void check_ids(std::span<const uint32_t> ids, uint64_t new_tokens) const;
  void prefill(std::span<const uint32_t> prompt, bool another_follows);
  void pass(std::span<const uint32_t> ids, size_t logit_rows, bool another_follows,
            const LogitsSink* sink);
  void keep_states();
  void undo_step();

  Step& step_;
  Sequence& sequence_;
  ThreadPool& pool_;
  const kernels::Kernels& kernels_;
  uint64_t batch_rows_;
  RunStats& stats_;
  LogitsSink keep_logits_;
};

}  // namespace k3::engine
