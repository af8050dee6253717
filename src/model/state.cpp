#include "model/state.h"

#include <algorithm>

#include "base/check.h"

namespace k3::model {

uint64_t SequenceState::kda_floats(const Config& c) {
  return uint64_t{c.kda_layers()} * c.kda_heads * c.kda_head_dim * c.kda_head_dim;
}

uint64_t SequenceState::conv_floats(const Config& c) {
  return uint64_t{c.kda_layers()} * 3 * (c.conv_kernel - 1) * c.kda_width();
}

uint64_t SequenceState::cache_floats(const Config& c, uint64_t positions) {
  return (Bytes{uint64_t{c.mla_layers()} * c.cache_width()} * positions).value;
}

SequenceState::SequenceState(const Config& config, uint64_t capacity, Memory memory)
    : config_(config), capacity_(capacity), memory_(memory) {
  K3_CHECK(memory.kda.size() == kda_floats(config));
  K3_CHECK(memory.conv.size() == conv_floats(config));
  K3_CHECK(memory.cache.size() == cache_floats(config, capacity));
}

void SequenceState::reset() {
  std::ranges::fill(memory_.kda, 0.0f);
  std::ranges::fill(memory_.conv, 0.0f);
  position_ = 0;  // cache rows at and beyond the position are never read
}

void SequenceState::advance(uint64_t tokens) {
  set_position(position_ + tokens);
}

void SequenceState::set_position(uint64_t position) {
  K3_CHECK(position <= capacity_);
  position_ = position;
}

float* SequenceState::kda(uint32_t kda_layer, uint32_t head) const {
  const uint64_t per_head = uint64_t{config_.kda_head_dim} * config_.kda_head_dim;
  return memory_.kda.data() + (uint64_t{kda_layer} * config_.kda_heads + head) * per_head;
}

float* SequenceState::conv_tail(uint32_t kda_layer, uint32_t which) const {
  const uint64_t per_tail = uint64_t{config_.conv_kernel - 1} * config_.kda_width();
  return memory_.conv.data() + (uint64_t{kda_layer} * 3 + which) * per_tail;
}

float* SequenceState::cache_row(uint32_t mla_layer, uint64_t position) const {
  return memory_.cache.data() +
         (uint64_t{mla_layer} * capacity_ + position) * config_.cache_width();
}

}  // namespace k3::model
