// The small tensors of the layer at hand (norms, taps, biases), widened to fp32 when their chunk
// comes by.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "kernels/table.h"
#include "model/trunk_order.h"
#include "weights/trunk_stream.h"

namespace k3::engine {

class SmallTensors {
 public:
  SmallTensors(const kernels::Kernels& kernels, const weights::TrunkFile& file,
               std::span<float> memory)
      : kernels_(kernels), file_(file), memory_(memory) {}

  /// Takes a chunk of small tensors in. The tensors of the chunk before are gone. Convolution taps
  /// are stored [channel, tap] and kept [tap, channel].
  void load(const weights::ChunkView& chunk);

  /// A tensor of the chunk; asking for one that it does not hold is our mistake (K3_CHECK).
  const float* operator[](model::Role role) const;

 private:
  static constexpr size_t kRoles = 128;
  void widen(const weights::TensorRecord& tensor, const std::byte* bytes, float* out) const;

  const kernels::Kernels& kernels_;
  const weights::TrunkFile& file_;
  std::span<float> memory_;
  std::array<const float*, kRoles> tensors_{};
};

}  // namespace k3::engine
