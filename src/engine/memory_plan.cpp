#include "engine/memory_plan.h"

#include <fmt/format.h>

#include <algorithm>

#include "io/arena.h"
#include "io/io_thread.h"
#include "k3/error.h"
#include "model/state.h"
#include "weights/expert_cache.h"
#include "weights/trunk_stream.h"

namespace k3::engine {
namespace {

// Enough for the drive: a ring of 64 MB holds 16 chunks of 4 MiB, and 18 slots hold the experts of
// a token while the next layer's first ones arrive.
constexpr Bytes kRingComfort{64'000'000};
constexpr uint64_t kSlotsComfort = 18;
constexpr uint64_t kReadsWanted = 16;
constexpr uint64_t kPieceBytes = io::IoThread::Options{}.piece_bytes;
// Thread stacks, the allocator's growth while running, I/O rings; and page tables with their like,
// which the kernel charges to a memory cgroup: 8 bytes a page, and a few more.
constexpr Bytes kSlackFixed{6u << 20};
constexpr Bytes kSlackPerThread{256u << 10};
constexpr uint64_t kPagesShare = 256;
// An id in the result: copies of it, a JSON value, its digits twice (5.2 MB at 131,000 ids).
constexpr Bytes kSlackPerPosition{48};
// What is resident at start differs by this much from run to run; a least budget that is told to
// somebody holds for the next run.
constexpr Bytes kProcessVaries{1u << 20};

Bytes floats(uint64_t count) {
  return io::Arena::padded(Bytes{4} * count);
}

/// Everything that depends on how many rows go through together and on ring and slots.
struct Division {
  uint64_t rows;
  Bytes ring;
  uint64_t slots;
  Bytes pinned;
  bool undo = false;
};

class Planner {
 public:
  explicit Planner(const PlanInput& input) : in_(input) {}

  Plan plan() {
    const Bytes least = total(floor_division(), in_.context);
    const Bytes budget = in_.budget.value_or(in_.safe_budget);
    if (budget < least) refuse(budget, least);
    Plan plan = describe(divide(budget));
    plan.budget = budget;
    plan.budget_given = in_.budget.has_value();
    plan.least_budget = usable(least);
    return plan;
  }

 private:
  StepShape shape(uint64_t rows) const {
    return {rows, in_.prompt_logits ? rows : 1, in_.head_chunk_rows, in_.threads};
  }
  Bytes state(uint64_t context) const {
    return floats(model::SequenceState::kda_floats(in_.config)) +
           floats(model::SequenceState::conv_floats(in_.config)) + cache(context);
  }
  Bytes undo(const Division& d) const {
    if (!d.undo) return Bytes{};
    return floats(model::SequenceState::kda_floats(in_.config) +
                  model::SequenceState::conv_floats(in_.config));
  }
  Bytes cache(uint64_t context) const {
    return floats(model::SequenceState::cache_floats(in_.config, context));
  }
  Bytes buffers(uint64_t rows) const {
    return Activations::bytes_needed(in_.config, shape(rows)) +
           io::Arena::padded(in_.embedding_buffer) + floats(in_.config.vocab_size);
  }
  Bytes slots(uint64_t count) const { return io::Arena::padded(in_.expert_slot * count); }
  Bytes slack(Bytes arena, uint64_t context) const {
    return kSlackFixed + kSlackPerThread * in_.threads + kSlackPerPosition * context +
           Bytes{arena.value / kPagesShare};
  }
  Bytes arena(const Division& d, uint64_t context) const {
    return state(context) + undo(d) + buffers(d.rows) + d.ring + slots(d.slots) + d.pinned;
  }
  Bytes total(const Division& d, uint64_t context) const {
    const Bytes in_arena = arena(d, context);
    return in_.process + in_arena + slack(in_arena, context);
  }

  /// As many as keep kReadsWanted reads in flight, or all experts of a token: two of the released
  /// model, since an expert is read in pieces; more where experts are small and cost little.
  uint64_t slots_minimum() const {
    if (in_.expert_slot.value == 0) return 0;
    const uint64_t wanted = std::min<uint64_t>(kReadsWanted, in_.config.experts_per_token);
    const uint64_t pieces = std::max<uint64_t>(1, in_.expert_payload.value / kPieceBytes);
    return std::max<uint64_t>(weights::ExpertCache::kSlotsMinimum, (wanted + pieces - 1) / pieces);
  }
  Division floor_division() const {
    return {1, weights::TrunkStream::ring_minimum(in_.chunks), slots_minimum(), Bytes{}};
  }

  uint64_t rows_wanted() const {
    return std::max<uint64_t>(1,
                              std::min(in_.prompt_rows, in_.batch_rows.value_or(in_.prompt_rows)));
  }

  /// The largest value of [low, high] for which the division fits; `low` does.
  template <typename Set>
  uint64_t grow(uint64_t low, uint64_t high, Bytes budget, Division base, Set set) const {
    while (low < high) {
      const uint64_t middle = low + (high - low + 1) / 2;
      Division tried = base;
      set(tried, middle);
      if (total(tried, in_.context) <= budget) {
        low = middle;
      } else {
        high = middle - 1;
      }
    }
    return low;
  }

  Division divide(Bytes budget) const {
    Division d = floor_division();
    const auto set_ring = [](Division& x, uint64_t blocks) { x.ring = Bytes{blocks * 4096}; };
    const auto set_slots = [](Division& x, uint64_t n) { x.slots = n; };
    const auto set_rows = [](Division& x, uint64_t n) { x.rows = n; };
    const auto set_pinned = [](Division& x, uint64_t blocks) { x.pinned = Bytes{blocks * 4096}; };
    const uint64_t trunk_blocks = trunk_padded() / 4096;

    d.undo = in_.undo;
    if (total(d, in_.context) > budget) d.undo = false;

    const uint64_t ring_most = std::max(d.ring.value, std::min(kRingComfort.value, trunk_padded()));
    // Ring and slots share a small budget, so that neither stays at its minimum.
    const Bytes least = total(d, in_.context);
    const Bytes half = least + Bytes{(budget - least).value / 2};
    set_ring(d, grow(d.ring.value / 4096, ring_most / 4096, half, d, set_ring));
    const uint64_t slots_most =
        slots_minimum() == 0 ? 0 : std::max(slots_minimum(), comfort_slots());
    d.slots = grow(slots_minimum(), slots_most, budget, d, set_slots);
    set_ring(d, grow(d.ring.value / 4096, ring_most / 4096, budget, d, set_ring));

    d.rows = grow(1, rows_wanted(), budget, d, set_rows);
    // As few passes as that allows, of about equal size.
    const uint64_t passes = (in_.prompt_rows + d.rows - 1) / std::max<uint64_t>(1, d.rows);
    if (passes > 0) d.rows = std::max<uint64_t>(1, (in_.prompt_rows + passes - 1) / passes);

    set_pinned(d, grow(0, trunk_blocks, budget, d, set_pinned));
    if (d.pinned.value / 4096 == trunk_blocks && d.slots > 0) {
      d.slots = grow(d.slots, all_experts(), budget, d, set_slots);
    }
    return d;
  }

  uint64_t comfort_slots() const {
    return std::min<uint64_t>(all_experts(),
                              std::max<uint64_t>(kSlotsComfort, in_.config.experts_per_token + 2));
  }
  uint64_t all_experts() const {
    return std::max<uint64_t>(weights::ExpertCache::kSlotsMinimum,
                              uint64_t{in_.config.moe_layers()} * in_.config.num_experts);
  }
  uint64_t trunk_padded() const {
    uint64_t sum = 0;
    for (const auto& chunk : in_.chunks) sum += weights::padded_bytes(chunk);
    return sum;
  }

  Plan describe(const Division& d) const {
    Plan plan;
    plan.process = in_.process;
    plan.state = state(in_.context) + undo(d);
    plan.undo = undo(d);
    plan.buffers = buffers(d.rows);
    plan.ring = d.ring;
    plan.experts = slots(d.slots);
    plan.pinned = d.pinned;
    plan.slack = slack(arena(d, in_.context), in_.context);
    plan.context = in_.context;
    plan.batch_rows = d.rows;
    plan.passes = (in_.prompt_rows + d.rows - 1) / d.rows;
    plan.expert_slots = d.slots;
    plan.threads = in_.threads;
    plan.expert_bytes = in_.expert_payload;
    plan.embedding_row = in_.embedding_row;
    plan.experts_per_token = uint64_t{in_.config.moe_layers()} * in_.config.experts_per_token;
    count_pinned(plan);
    const Bytes code = in_.process - in_.index - in_.tokenizer;
    plan.lines = {{"code and libraries", code},
                  {"index", in_.index},
                  {"tokenizer", in_.tokenizer},
                  {"KDA states", floats(model::SequenceState::kda_floats(in_.config))},
                  {"convolution tails", floats(model::SequenceState::conv_floats(in_.config))},
                  {"undo copy of the states", plan.undo},
                  {fmt::format("latent cache ({} positions)", in_.context), cache(in_.context)},
                  {fmt::format("activations ({} rows)", d.rows), plan.buffers},
                  {"trunk ring", plan.ring},
                  {fmt::format("expert slots ({})", d.slots), plan.experts},
                  {"pinned trunk", plan.pinned},
                  {"slack", plan.slack}};
    std::erase_if(plan.lines, [&](const PlanLine& line) {
      return plan.undo.value == 0 && line.name == "undo copy of the states";
    });
    return plan;
  }

  void count_pinned(Plan& plan) const {
    const std::vector<bool> pinned = weights::choose_pinned(in_.chunks, plan.pinned);
    for (size_t i = 0; i < in_.chunks.size(); ++i) {
      plan.trunk_stored += Bytes{in_.chunks[i].stored_bytes};
      if (pinned[i]) plan.pinned_stored += Bytes{in_.chunks[i].stored_bytes};
    }
  }

  [[noreturn]] void refuse(Bytes budget, Bytes least) const {
    const bool given = in_.budget.has_value();
    const std::string found = fmt::format(
        "a budget of {}{} cannot hold this run: {} is the least that would do",
        format_bytes(budget), given ? "" : ", all that is safe here,", format_bytes(usable(least)));
    if (total(floor_division(), 1) + kProcessVaries > budget) {
      throw Error(ErrorKind::kBudget,
                  found + (given ? "; give a larger --budget"
                                 : "; free memory, or raise the limit of this process (cgroup, "
                                   "ulimit -v)"));
    }
    uint64_t low = 1, high = in_.context;
    while (low < high) {
      const uint64_t middle = low + (high - low + 1) / 2;
      if (total(floor_division(), middle) + kProcessVaries <= budget) {
        low = middle;
      } else {
        high = middle - 1;
      }
    }
    throw Error(ErrorKind::kBudget,
                fmt::format("{} with a context of {}; the largest context that fits is {}", found,
                            in_.context, low));
  }

  /// What works as a budget when the run is started again: with what varies, and up to three
  /// digits, which is what messages show.
  static Bytes usable(Bytes least) {
    const Bytes bytes = least + kProcessVaries;
    uint64_t unit = 1;
    while (bytes.value / unit >= 1000) unit *= 10;
    return Bytes{(bytes.value + unit - 1) / unit * unit};
  }

  const PlanInput& in_;
};

}  // namespace

Plan make_plan(const PlanInput& input) {
  return Planner(input).plan();
}

StepShape step_shape(const PlanInput& input, const Plan& plan) {
  return {plan.batch_rows, input.prompt_logits ? plan.batch_rows : 1, input.head_chunk_rows,
          input.threads};
}

Bytes arena_bytes(const Plan& plan) {
  return plan.state + plan.buffers + plan.ring + plan.experts + plan.pinned;
}

}  // namespace k3::engine
