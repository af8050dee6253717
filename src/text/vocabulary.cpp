#include "text/vocabulary.h"

#include <algorithm>
#include <bit>
#include <span>

#include "base/hash.h"

namespace k3::text {

Vocabulary::Vocabulary(uint32_t count, size_t pool_bytes)
    : spans_(count), slots_(std::bit_ceil(size_t{count} * 3 / 2 + 1), kNone) {
  pool_.reserve(pool_bytes);
}

std::optional<uint32_t> Vocabulary::set(uint32_t rank, std::string_view bytes) {
  const size_t slot = slot_of(bytes);
  if (slots_[slot] != kNone) return slots_[slot];
  slots_[slot] = rank;
  spans_[rank] = {static_cast<uint32_t>(pool_.size()), static_cast<uint32_t>(bytes.size())};
  pool_.append(bytes);
  longest_ = std::max(longest_, bytes.size());
  return std::nullopt;
}

uint32_t Vocabulary::rank_of(std::string_view bytes) const {
  return bytes.size() > longest_ ? kNone : slots_[slot_of(bytes)];
}

size_t Vocabulary::slot_of(std::string_view wanted) const {
  const size_t mask = slots_.size() - 1;
  size_t slot = checksum(std::as_bytes(std::span(wanted))) & mask;
  while (slots_[slot] != kNone && bytes(slots_[slot]) != wanted) slot = (slot + 1) & mask;
  return slot;
}

Bytes Vocabulary::memory() const {
  return Bytes{pool_.capacity() + spans_.capacity() * sizeof(Span) +
               slots_.capacity() * sizeof(uint32_t)};
}

}  // namespace k3::text
