// The special tokens: a block of ids after the ranks, each with a literal.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "k3/units.h"

namespace k3::text {

inline constexpr uint32_t kSpecialTokens = 256;  // ids of the block

class SpecialTokens {
 public:
  struct Match {
    uint32_t id = 0;
    size_t length = 0;  // bytes of the literal
  };

  /// literals[i] belongs to id first_id + i; none is empty.
  SpecialTokens(uint32_t first_id, std::vector<std::string> literals);

  /// Two ids with the same literal, if there are any.
  std::optional<std::pair<uint32_t, uint32_t>> find_repeated() const;

  uint32_t first_id() const { return first_id_; }
  uint32_t size() const { return static_cast<uint32_t>(literals_.size()); }
  std::string_view literal(uint32_t id) const { return literals_[id - first_id_]; }

  /// The longest literal that `text` starts with.
  std::optional<Match> match_start(std::string_view text) const;

  Bytes memory() const;  // heap held

 private:
  uint32_t first_id_;
  std::vector<std::string> literals_;  // by id
  std::vector<uint32_t> sorted_;       // indices of literals_, in the order of their bytes
};

}  // namespace k3::text
