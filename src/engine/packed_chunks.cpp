#include "engine/packed_chunks.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "base/check.h"
#include "weights/trunk_codec.h"
#include "weights/trunk_format.h"

namespace k3::engine {
namespace {

std::vector<uint16_t> normal_rows() {
  std::mt19937 engine(1);
  std::normal_distribution<float> normal;
  std::vector<uint16_t> words;
  words.reserve(PackedChunks::kWeights);
  for (size_t r = 0; r < PackedChunks::kRows; ++r) {
    const float scale = 0.02F * std::exp(0.5F * normal(engine));
    for (size_t c = 0; c < PackedChunks::kCols; ++c) {
      words.push_back(static_cast<uint16_t>(std::bit_cast<uint32_t>(scale * normal(engine)) >> 16));
    }
  }
  return words;
}

}  // namespace

PackedChunks::PackedChunks(std::span<std::byte> memory, size_t raw_bytes)
    : data_(memory.data()), count_(std::max<size_t>(1, raw_bytes / (2 * kWeights))) {
  const std::vector<uint16_t> words = normal_rows();
  std::vector<std::byte> chunk(2 * words.size());
  const weights::Packed packed = weights::pack_weights(std::as_bytes(std::span(words)), chunk);
  encoding_ = weights::encoding_of(static_cast<uint8_t>(packed.codec), 0);
  K3_CHECK(kernels::is_packed(encoding_));
  chunk_bytes_ = packed.bytes;
  stride_ = (chunk_bytes_ + weights::kTrunkAlignment - 1) / weights::kTrunkAlignment *
            weights::kTrunkAlignment;
  K3_CHECK(count_ * stride_ <= memory.size());
  for (size_t c = 0; c < count_; ++c) {
    std::copy_n(chunk.begin(), chunk_bytes_, memory.begin() + static_cast<ptrdiff_t>(c * stride_));
  }
}

kernels::WeightView PackedChunks::view(size_t chunk) const {
  return {encoding_, data_ + chunk * stride_, nullptr, kRows, kCols};
}

}  // namespace k3::engine
