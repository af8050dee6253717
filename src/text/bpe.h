// Byte-pair merging by rank: starting from single bytes, the adjacent pair whose concatenation is
// the token of lowest rank is merged, the leftmost of equals first, until no pair is a token.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "text/vocabulary.h"

namespace k3::text {

class BpeMerger {
 public:
  /// `vocabulary` outlives this object and has all 256 single bytes.
  explicit BpeMerger(const Vocabulary& vocabulary) : vocabulary_(vocabulary) {}

  /// Appends the ids of one match of the pattern (not empty): its own rank if the whole is a token,
  /// else the merged parts. Time n log n in its length n, whatever its bytes.
  void encode(std::string_view match, std::vector<uint32_t>& ids);

  /// Pairs that were looked up in the vocabulary so far: at most three for each byte.
  uint64_t pairs_inspected() const { return pairs_inspected_; }

 private:
  /// A part of the match, held at the index of its first byte.
  struct Part {
    uint32_t previous;   // index of the part before; the first one has itself
    uint32_t end;        // index of the part after
    uint32_t rank;       // of these bytes
    uint32_t pair_rank;  // of these bytes with the next part's, or kNone
  };

  void split(std::string_view match);
  void merge(std::string_view match, uint32_t at);
  uint32_t pair_rank(std::string_view match, uint32_t at);
  void refresh_pair(std::string_view match, uint32_t at);

  const Vocabulary& vocabulary_;
  std::vector<Part> parts_;
  // Pairs to merge, rank above index, smallest on top. A pair that changed since is left in and
  // skipped when its turn comes: its part says another rank by then.
  std::vector<uint64_t> heap_;
  uint64_t pairs_inspected_ = 0;
};

}  // namespace k3::text
