// How the memory budget is divided: computed before anything is allocated, printed by `k3 plan`,
// and then what the engine allocates.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "k3/units.h"

namespace k3 {

struct PlanLine {
  std::string name;  // "KDA states", "trunk ring", ...
  Bytes bytes;
};

struct Plan {
  Bytes budget;
  bool budget_given = false;    // else chosen from what the host has free
  Bytes least_budget;           // the smallest budget that works with these options
  std::vector<PlanLine> lines;  // every use of memory; they sum to total()

  Bytes process;  // code, libraries, index, tokenizer: measured
  Bytes state;    // KDA states, convolution tails, latent cache
  Bytes buffers;  // activations of a step
  Bytes ring;     // trunk chunks on their way
  Bytes experts;  // expert slots
  Bytes pinned;   // trunk chunks that stay
  Bytes slack;    // stacks, page tables, allocator

  uint64_t context = 0;     // positions that the cache holds
  uint64_t batch_rows = 0;  // prompt rows that go through the layers together
  uint64_t passes = 0;      // passes over the trunk for the prompt
  uint64_t expert_slots = 0;
  uint64_t threads = 0;
  Bytes undo;          // of the state: the copy by which a failed step is undone, if it fits
  Bytes trunk_stored;  // trunk bytes of a pass with nothing pinned
  Bytes expert_bytes;  // of one expert
  uint64_t experts_per_token = 0;  // experts read for a token with nothing cached, all layers
  Bytes embedding_row;             // read for a token

  Bytes total() const { return process + state + buffers + ring + experts + pinned + slack; }
  /// Bytes read from the drive for one token, expert cache apart.
  Bytes trunk_per_token() const { return trunk_stored - pinned_stored; }
  Bytes experts_per_token_bytes() const { return expert_bytes * experts_per_token; }
  Bytes pinned_stored;  // stored bytes of the pinned chunks (pinned counts whole blocks)
};

}  // namespace k3
