// What one sequence carries from position to position, as spans over memory that the plan granted.
#pragma once

#include <cstdint>
#include <span>

#include "k3/units.h"
#include "model/config.h"

namespace k3::model {

class SequenceState {
 public:
  /// Floats of each part; the planner and snapshots use the same numbers.
  static uint64_t kda_floats(const Config& config);   // [kda layers, heads, D, D]
  static uint64_t conv_floats(const Config& config);  // [kda layers, 3, conv_kernel-1, kda_width]
  static uint64_t cache_floats(const Config& config, uint64_t positions);
  // [mla layers, positions, kv_lora_rank + qk_rope_head_dim]

  struct Memory {
    std::span<float> kda;
    std::span<float> conv;
    std::span<float> cache;
  };
  /// `capacity`: positions that the cache can hold.
  SequenceState(const Config& config, uint64_t capacity, Memory memory);

  /// Forgets everything: zero states and tails, position 0.
  void reset();

  uint64_t position() const { return position_; }  // tokens taken in so far
  uint64_t capacity() const { return capacity_; }
  void advance(uint64_t tokens);
  void set_position(uint64_t position);

  /// KDA layers and MLA layers are counted apart, from 0.
  float* kda(uint32_t kda_layer, uint32_t head) const;  // [D key rows, D value columns]
  /// The last conv_kernel-1 pre-convolution vectors of q, k or v (which = 0, 1, 2), oldest first.
  float* conv_tail(uint32_t kda_layer, uint32_t which) const;     // [conv_kernel-1, kda_width]
  float* cache_row(uint32_t mla_layer, uint64_t position) const;  // latent, then the shared key

  const Memory& memory() const { return memory_; }

 private:
  const Config& config_;
  uint64_t capacity_;
  Memory memory_;
  uint64_t position_ = 0;
};

}  // namespace k3::model
