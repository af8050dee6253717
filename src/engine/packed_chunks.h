// Packed trunk chunks for measurements: weights as models have them, normal with rows of varying
// scale. How fast packed weights are depends on their escapes.
#pragma once

#include <cstddef>
#include <span>

#include "kernels/table.h"

namespace k3::engine {

class PackedChunks {
 public:
  static constexpr size_t kRows = 288;
  static constexpr size_t kCols = 7168;
  static constexpr size_t kWeights = kRows * kCols;

  PackedChunks() = default;
  /// Packs one chunk and repeats it in `memory` for `raw_bytes` of weights, at least once. `memory`
  /// has three quarters of raw_bytes, and room for one chunk.
  PackedChunks(std::span<std::byte> memory, size_t raw_bytes);

  size_t count() const { return count_; }
  /// Stored bytes of one.
  size_t chunk_bytes() const { return chunk_bytes_; }
  kernels::WeightView view(size_t chunk) const;

 private:
  const std::byte* data_ = nullptr;
  size_t count_ = 0;
  size_t chunk_bytes_ = 0;
  size_t stride_ = 0;
  kernels::Encoding encoding_ = kernels::Encoding::kBf16;
};

}  // namespace k3::engine
