#include "text/bpe.h"

#include <algorithm>
#include <functional>

namespace k3::text {
namespace {

constexpr uint64_t heap_key(uint32_t rank, uint32_t at) {
  return uint64_t{rank} << 32 | at;
}

}  // namespace

void BpeMerger::encode(std::string_view match, std::vector<uint32_t>& ids) {
  if (const uint32_t whole = vocabulary_.rank_of(match); whole != Vocabulary::kNone) {
    ids.push_back(whole);
    return;
  }
  split(match);
  while (!heap_.empty()) {
    const auto at = static_cast<uint32_t>(heap_.front());
    const auto rank = static_cast<uint32_t>(heap_.front() >> 32);
    std::ranges::pop_heap(heap_, std::greater());
    heap_.pop_back();
    if (parts_[at].pair_rank == rank) merge(match, at);
  }
  for (uint32_t at = 0; at < match.size(); at = parts_[at].end) ids.push_back(parts_[at].rank);
}

void BpeMerger::split(std::string_view match) {
  const auto size = static_cast<uint32_t>(match.size());
  parts_.resize(size);
  heap_.clear();
  for (uint32_t at = 0; at < size; ++at) {
    const uint32_t previous = at == 0 ? 0 : at - 1;
    parts_[at] = {previous, at + 1, vocabulary_.rank_of(match.substr(at, 1)), Vocabulary::kNone};
  }
  for (uint32_t at = 0; at + 1 < size; ++at) {
    parts_[at].pair_rank = pair_rank(match, at);
    if (parts_[at].pair_rank != Vocabulary::kNone) {
      heap_.push_back(heap_key(parts_[at].pair_rank, at));
    }
  }
  std::ranges::make_heap(heap_, std::greater());
}

void BpeMerger::merge(std::string_view match, uint32_t at) {
  Part& part = parts_[at];
  Part& absorbed = parts_[part.end];
  part.rank = part.pair_rank;
  part.end = absorbed.end;
  absorbed.pair_rank = Vocabulary::kNone;
  if (part.end < match.size()) parts_[part.end].previous = at;
  refresh_pair(match, at);
  if (part.previous != at) refresh_pair(match, part.previous);
}

uint32_t BpeMerger::pair_rank(std::string_view match, uint32_t at) {
  const uint32_t middle = parts_[at].end;
  if (middle == match.size()) return Vocabulary::kNone;
  ++pairs_inspected_;
  return vocabulary_.rank_of(match.substr(at, parts_[middle].end - at));
}

void BpeMerger::refresh_pair(std::string_view match, uint32_t at) {
  const uint32_t rank = pair_rank(match, at);
  parts_[at].pair_rank = rank;
  if (rank == Vocabulary::kNone) return;
  heap_.push_back(heap_key(rank, at));
  std::ranges::push_heap(heap_, std::greater());
}

}  // namespace k3::text
