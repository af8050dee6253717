#include "text/special_tokens.h"

#include <algorithm>
#include <numeric>

namespace k3::text {

SpecialTokens::SpecialTokens(uint32_t first_id, std::vector<std::string> literals)
    : first_id_(first_id), literals_(std::move(literals)), sorted_(literals_.size()) {
  std::iota(sorted_.begin(), sorted_.end(), 0);
  std::ranges::stable_sort(sorted_, {},
                           [this](uint32_t i) -> const std::string& { return literals_[i]; });
}

std::optional<std::pair<uint32_t, uint32_t>> SpecialTokens::find_repeated() const {
  const auto same = [this](uint32_t a, uint32_t b) { return literals_[a] == literals_[b]; };
  const auto found = std::ranges::adjacent_find(sorted_, same);
  if (found == sorted_.end()) return std::nullopt;
  return std::pair{first_id_ + found[0], first_id_ + found[1]};
}

/// Narrows the literals, byte by byte, to those that start as `text` does. The shortest of them is
/// the first, so a literal that is used up is a match.
std::optional<SpecialTokens::Match> SpecialTokens::match_start(std::string_view text) const {
  std::optional<Match> match;
  auto first = sorted_.begin();
  auto last = sorted_.end();
  for (size_t length = 0; first != last; ++length) {
    if (literals_[*first].size() == length) {
      match = Match{first_id_ + *first, length};
      ++first;
    }
    if (length == text.size()) break;
    const auto byte_at = [&](uint32_t i) { return static_cast<uint8_t>(literals_[i][length]); };
    const auto byte = static_cast<uint8_t>(text[length]);
    first = std::partition_point(first, last, [&](uint32_t i) { return byte_at(i) < byte; });
    last = std::partition_point(first, last, [&](uint32_t i) { return byte_at(i) == byte; });
  }
  return match;
}

Bytes SpecialTokens::memory() const {
  Bytes total{literals_.capacity() * sizeof(std::string) + sorted_.capacity() * sizeof(uint32_t)};
  for (const std::string& literal : literals_) total += Bytes{literal.capacity()};
  return total;
}

}  // namespace k3::text
