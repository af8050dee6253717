#include "engine/small_tensors.h"

#include <cstring>

#include "base/check.h"

namespace k3::engine {
namespace {

bool is_convolution(uint16_t role) {
  return role >= static_cast<uint16_t>(model::Role::kConvQ) &&
         role <= static_cast<uint16_t>(model::Role::kConvV);
}

}  // namespace

void SmallTensors::load(const weights::ChunkView& chunk) {
  tensors_.fill(nullptr);
  float* out = memory_.data();
  for (const weights::SegmentRecord& segment : chunk.segments) {
    const weights::TensorRecord& tensor = file_.tensors()[segment.tensor];
    const uint64_t count = tensor.rows * tensor.cols;
    K3_CHECK(out + count <= memory_.data() + memory_.size() && tensor.role < kRoles);
    widen(tensor, chunk.bytes + segment.offset, out);
    tensors_[tensor.role] = out;
    out += count;
  }
}

void SmallTensors::widen(const weights::TensorRecord& tensor, const std::byte* bytes,
                         float* out) const {
  const bool wide = static_cast<weights::DType>(tensor.dtype) == weights::DType::kF32;
  const uint64_t value_bytes = wide ? 4 : 2;
  const auto copy = [&](const std::byte* from, uint64_t count, float* to) {
    if (wide) {
      std::memcpy(to, from, 4 * count);
    } else {
      kernels_.widen_bf16(from, count, to);
    }
  };
  if (!is_convolution(tensor.role)) return copy(bytes, tensor.rows * tensor.cols, out);
  for (uint64_t channel = 0; channel < tensor.rows; ++channel) {
    std::array<float, 8> taps{};
    K3_CHECK(tensor.cols <= taps.size());
    copy(bytes + channel * tensor.cols * value_bytes, tensor.cols, taps.data());
    for (uint64_t tap = 0; tap < tensor.cols; ++tap) out[tap * tensor.rows + channel] = taps[tap];
  }
}

const float* SmallTensors::operator[](model::Role role) const {
  const float* tensor = tensors_[static_cast<size_t>(role)];
  K3_CHECK(tensor != nullptr);
  return tensor;
}

}  // namespace k3::engine
