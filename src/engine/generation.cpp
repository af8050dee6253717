#include "engine/generation.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>

#include "k3/error.h"

namespace k3::engine {
namespace {

constexpr size_t kCopyGrain = 1u << 20;  // floats that a thread copies at least

/// Adds the time of a scope to a counter.
class Stopwatch {
 public:
  explicit Stopwatch(double& seconds) : seconds_(seconds), start_(Clock::now()) {}
  ~Stopwatch() { seconds_ += std::chrono::duration<double>(Clock::now() - start_).count(); }

 private:
  using Clock = std::chrono::steady_clock;
  double& seconds_;
  Clock::time_point start_;
};

bool contains(const std::vector<uint32_t>& ids, uint32_t id) {
  return std::find(ids.begin(), ids.end(), id) != ids.end();
}

/// log softmax of one wanted id over a vocabulary that arrives in pieces.
struct OnlineScore {
  float maximum = -std::numeric_limits<float>::infinity();
  double sum = 0;
  float wanted = 0;

  void add(const float* logits, size_t count) {
    const float most = *std::max_element(logits, logits + count);
    if (most > maximum) {
      sum *= std::exp(static_cast<double>(maximum) - most);
      maximum = most;
    }
    for (size_t i = 0; i < count; ++i) sum += std::exp(static_cast<double>(logits[i]) - maximum);
  }
  double log_likelihood() const { return static_cast<double>(wanted) - maximum - std::log(sum); }
};

}  // namespace

Sequencer::Sequencer(Step& step, Sequence& sequence, ThreadPool& pool,
                     const kernels::Kernels& kernels, uint64_t batch_rows, RunStats& stats)
    : step_(step),
      sequence_(sequence),
      pool_(pool),
      kernels_(kernels),
      batch_rows_(batch_rows),
      stats_(stats),
      keep_logits_([this](size_t begin, size_t count, kernels::ColumnsOut rows) {
        sequence_.has_logits = false;  // until all have come
        std::copy_n(rows.data, count, sequence_.logits.data() + begin);
      }) {}

void Sequencer::check_ids(std::span<const uint32_t> ids, uint64_t new_tokens) const {
  if (!sequence_.whole) {
    throw Error(ErrorKind::kUsage,
                "the sequence stopped inside a step that could not be undone; open the engine "
                "again");
  }
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] < sequence_.logits.size()) continue;
    throw Error(ErrorKind::kUsage, fmt::format("token id {} at place {} is outside the vocabulary; "
                                               "ids run from 0 to {}",
                                               ids[i], i, sequence_.logits.size() - 1));
  }
  if (ids.empty() && !sequence_.has_logits) {
    throw Error(ErrorKind::kUsage, "the prompt is empty; give at least one token");
  }
  const model::SequenceState& state = sequence_.state;
  const uint64_t room = state.capacity() - state.position();
  if (ids.size() > room || new_tokens > room - ids.size()) {
    throw Error(
        ErrorKind::kUsage,
        fmt::format("{} tokens and {} new ones do not fit the {} positions left of a context "
                    "of {}",
                    ids.size(), new_tokens, room, state.capacity()));
  }
}

FinishReason Sequencer::generate(std::span<const uint32_t> prompt, const GenerateOptions& options,
                                 const GenerateHooks& hooks) {
  check_ids(prompt, options.max_tokens);
  stats_.prompt_tokens += prompt.size();
  prefill(prompt, options.max_tokens > 1);
  if (hooks.on_prompt) hooks.on_prompt();
  const Stopwatch watch(stats_.decode_seconds);
  const std::span<const float> logits = sequence_.logits;
  for (uint64_t n = 1; n <= options.max_tokens; ++n) {
    const uint32_t id = static_cast<uint32_t>(kernels_.argmax(logits.data(), logits.size()));
    ++stats_.generated_tokens;
    if (hooks.on_token) hooks.on_token(id, logits);
    if (contains(options.stop_ids, id)) return FinishReason::kStop;
    if (contains(options.eos_ids, id)) return FinishReason::kEos;
    if (n < options.max_tokens) pass({&id, 1}, 1, n + 1 < options.max_tokens, &keep_logits_);
  }
  return FinishReason::kLength;
}

void Sequencer::prefill(std::span<const uint32_t> prompt, bool another_follows) {
  const Stopwatch watch(stats_.prefill_seconds);
  for (size_t begin = 0; begin < prompt.size(); begin += batch_rows_) {
    const auto ids = prompt.subspan(begin, std::min<size_t>(batch_rows_, prompt.size() - begin));
    const bool last = begin + ids.size() == prompt.size();
    pass(ids, last ? 1 : 0, !last || another_follows, &keep_logits_);
  }
}

void Sequencer::pass(std::span<const uint32_t> ids, size_t logit_rows, bool another_follows,
                     const LogitsSink* sink) {
  keep_states();
  try {
    step_.run(sequence_.state, {ids, logit_rows, another_follows, sink});
  } catch (...) {
    undo_step();
    throw;
  }
  sequence_.has_logits = sink == &keep_logits_ && logit_rows > 0;
  ++stats_.passes;
}

/// What a step changes in place; cache rows beyond the position count for nothing.
void Sequencer::keep_states() {
  if (sequence_.undo.empty()) return;
  const model::SequenceState::Memory& from = sequence_.state.memory();
  float* const to = sequence_.undo.data();
  pool_.parallel_for(from.kda.size(), kCopyGrain, [&](size_t begin, size_t end) {
    std::copy_n(from.kda.data() + begin, end - begin, to + begin);
  });
  std::ranges::copy(from.conv, to + from.kda.size());
}

void Sequencer::undo_step() {
  if (sequence_.undo.empty()) {
    sequence_.whole = false;
    return;
  }
  const model::SequenceState::Memory& to = sequence_.state.memory();
  std::ranges::copy(sequence_.undo.first(to.kda.size()), to.kda.begin());
  std::ranges::copy(sequence_.undo.last(to.conv.size()), to.conv.begin());
}

std::vector<double> Sequencer::score(std::span<const uint32_t> ids) {
  if (ids.empty()) throw Error(ErrorKind::kUsage, "there is nothing to score; give two tokens");
  check_ids(ids, 0);
  stats_.prompt_tokens += ids.size();
  const Stopwatch watch(stats_.prefill_seconds);
  std::vector<double> result;
  const size_t inputs = ids.size() - 1;  // the last id is only predicted
  for (size_t begin = 0; begin < inputs; begin += batch_rows_) {
    const size_t rows = std::min<size_t>(batch_rows_, inputs - begin);
    std::vector<OnlineScore> scores(rows);
    const LogitsSink sink = [&](size_t vocab, size_t count, kernels::ColumnsOut logits) {
      pool_.parallel_for(rows, 1, [&](size_t from, size_t to) {
        for (size_t r = from; r < to; ++r) {
          const float* row = logits.data + r * logits.stride;
          const uint32_t wanted = ids[begin + r + 1];
          scores[r].add(row, count);
          if (wanted >= vocab && wanted < vocab + count) scores[r].wanted = row[wanted - vocab];
        }
      });
    };
    pass(ids.subspan(begin, rows), rows, begin + rows < inputs, &sink);
    for (const OnlineScore& score : scores) result.push_back(score.log_likelihood());
  }
  return result;
}

}  // namespace k3::engine
