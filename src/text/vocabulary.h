// The tokens of a byte-level BPE vocabulary, held compactly: all bytes in one pool, one span per
// rank and an open-addressing table of ranks. The released vocabulary (163,584 tokens, 1.1 MB of
// bytes) takes about 4 MB; a map of strings would take five times that.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "k3/units.h"

namespace k3::text {

class Vocabulary {
 public:
  static constexpr uint32_t kNone = UINT32_MAX;  // no rank

  /// Ranks 0 to count - 1, none of them set; `pool_bytes` is how many bytes they may have together.
  Vocabulary(uint32_t count, size_t pool_bytes);

  /// Gives a rank that is not set its bytes (not empty). When another rank has the same bytes,
  /// nothing changes and that rank is returned.
  std::optional<uint32_t> set(uint32_t rank, std::string_view bytes);
  bool is_set(uint32_t rank) const { return spans_[rank].size > 0; }

  uint32_t size() const { return static_cast<uint32_t>(spans_.size()); }
  std::string_view bytes(uint32_t rank) const {
    return std::string_view(pool_).substr(spans_[rank].begin, spans_[rank].size);
  }
  /// The rank of these bytes, or kNone. Looks at no bytes when they are more than the longest
  /// token's.
  uint32_t rank_of(std::string_view bytes) const;

  Bytes memory() const;  // heap held

 private:
  struct Span {
    uint32_t begin = 0;
    uint32_t size = 0;
  };
  /// The slot that holds these bytes, or the empty one where they would go.
  size_t slot_of(std::string_view bytes) const;

  std::string pool_;
  std::vector<Span> spans_;      // by rank
  std::vector<uint32_t> slots_;  // rank or kNone; a power of two, at most two thirds full
  size_t longest_ = 0;
};

}  // namespace k3::text
