#include "weights/trunk_codec.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "base/check.h"
#include "kernels/dispatch.h"
#include "kernels/packed.h"
#include "weights/dtype.h"

namespace k3::weights {
namespace {

using kernels::kPackedBlock;
using kernels::kPairGroup;

constexpr size_t kExponents = 256;
constexpr size_t kCodes[] = {3, 4};

uint16_t word_at(std::span<const std::byte> bf16, size_t index) {
  uint16_t word;
  std::memcpy(&word, bf16.data() + 2 * index, sizeof word);
  return word;
}

size_t exponent_of(uint16_t word) {
  return word >> 7 & 0xff;
}

/// What stays of a weight beside its exponent.
std::byte kept_of(uint16_t word) {
  return static_cast<std::byte>((word >> 8 & 0x80) | (word & 0x7f));
}

struct Window {
  uint8_t base;
  uint8_t escapes;
};

/// How often the weights of one block have each exponent.
class Histogram {
 public:
  explicit Histogram(std::span<const std::byte> block) : weights_(block.size() / 2) {
    for (size_t i = 0; i < weights_; ++i) {
      const size_t exponent = exponent_of(word_at(block, i));
      ++counts_[exponent];
      low_ = std::min(low_, exponent);
      high_ = std::max(high_, exponent);
    }
  }

  /// The `width` exponents in a row that cover the most weights, the highest among equals. One
  /// weight is always covered, so the escapes fit a byte.
  Window best(size_t width) const {
    size_t base = std::min(low_, kExponents - width);
    size_t sum = 0;
    for (size_t e = base; e < base + width; ++e) sum += counts_[e];
    Window best{static_cast<uint8_t>(base), 0};
    size_t covered = sum;
    for (; base + width <= high_; ++base) {
      sum += size_t{counts_[base + width]} - counts_[base];
      if (sum < covered) continue;
      covered = sum;
      best.base = static_cast<uint8_t>(base + 1);
    }
    best.escapes = static_cast<uint8_t>(weights_ - covered);
    return best;
  }

 private:
  size_t weights_;
  size_t low_ = kExponents - 1;
  size_t high_ = 0;
  std::array<uint16_t, kExponents> counts_{};
};

/// Bit k of each of eight bytes, as one byte.
std::byte gather_bits(uint64_t bytes, size_t k) {
  return static_cast<std::byte>((bytes >> k & 0x0101010101010101) * 0x0102040810204080 >> 56);
}

/// Writes one view; every block once, in order.
class Packer {
 public:
  Packer(std::span<const std::byte> bf16, size_t planes, std::byte* out)
      : bf16_(bf16),
        planes_(planes),
        at_(kernels::packed_layout(bf16.size() / 2, planes)),
        out_(out),
        escape_(out + at_.escapes) {}

  void add_block(size_t block, Window window) {
    if (block % kernels::kBlocksPerStart == 0) {
      std::memcpy(out_ + at_.starts + block / kernels::kBlocksPerStart * 4, &escapes_, 4);
    }
    const std::byte head[] = {std::byte{window.base}, std::byte{window.escapes}};
    std::memcpy(out_ + at_.heads + 2 * block, head, sizeof head);
    escapes_ += window.escapes;
    const size_t begin = block * kPackedBlock;
    const size_t end = std::min(begin + kPackedBlock, bf16_.size() / 2);
    for (size_t i = begin; i < end; i += kPairGroup) {
      add_group(i, std::min(end, i + kPairGroup), begin, window.base);
    }
  }

 private:
  void add_group(size_t begin, size_t end, size_t block, uint8_t base) {
    std::byte* group = out_ + begin / kPairGroup * kernels::packed_group_bytes(planes_);
    std::array<uint8_t, kPairGroup> codes{};
    std::array<std::byte, kPairGroup> kept{};
    for (size_t i = begin; i < end; ++i) {
      const uint16_t word = word_at(bf16_, i);
      const size_t code = exponent_of(word) - base;  // wraps below the base
      kept[i - begin] = kept_of(word);
      if (code >> planes_ == 0) {
        codes[i - begin] = static_cast<uint8_t>(code);
      } else {
        *escape_++ = static_cast<std::byte>(i - block);
        *escape_++ = static_cast<std::byte>(exponent_of(word) ^ base);
      }
    }
    std::memcpy(group, kept.data(), kept.size());
    for (size_t part = 0; part < kPairGroup / 8; ++part) {
      uint64_t eight;
      std::memcpy(&eight, codes.data() + 8 * part, sizeof eight);
      for (size_t k = 0; k < planes_; ++k) {
        group[kPairGroup + 4 * k + part] = gather_bits(eight, k);
      }
    }
  }

  std::span<const std::byte> bf16_;
  size_t planes_;
  kernels::PackedLayout at_;
  std::byte* out_;
  std::byte* escape_;
  uint32_t escapes_ = 0;
};

bool all_zero(std::span<const std::byte> bytes) {
  return bytes[0] == std::byte{0} && std::equal(bytes.begin() + 1, bytes.end(), bytes.begin());
}

size_t planes_of(Codec codec) {
  return codec == Codec::kPacked4 ? 4 : 3;
}

}  // namespace

bool can_be_packed(uint8_t dtype, uint64_t cols) {
  return static_cast<DType>(dtype) == DType::kBf16 && cols <= kernels::kPackedColsMax;
}

Packed pack_weights(std::span<const std::byte> bf16, std::span<std::byte> out) {
  const size_t weights = bf16.size() / 2;
  const Packed raw{Codec::kRaw, bf16.size()};
  if (all_zero(bf16)) return raw;
  const size_t blocks = kernels::packed_layout(weights, 3).blocks;
  std::vector<Window> windows[std::size(kCodes)];
  uint64_t bytes[std::size(kCodes)];
  for (size_t c = 0; c < std::size(kCodes); ++c) {
    windows[c].reserve(blocks);
    bytes[c] = kernels::packed_layout(weights, kCodes[c]).escapes;
  }
  for (size_t begin = 0; begin < weights; begin += kPackedBlock) {
    const size_t count = std::min(kPackedBlock, weights - begin);
    const Histogram histogram(bf16.subspan(2 * begin, 2 * count));
    for (size_t c = 0; c < std::size(kCodes); ++c) {
      windows[c].push_back(histogram.best(size_t{1} << kCodes[c]));
      bytes[c] += 2 * windows[c].back().escapes;
    }
  }
  const size_t best = bytes[1] < bytes[0] ? 1 : 0;
  if (bytes[best] >= bf16.size()) return raw;
  K3_CHECK(out.size() >= bf16.size());
  Packer packer(bf16, kCodes[best], out.data());
  for (size_t block = 0; block < blocks; ++block) packer.add_block(block, windows[best][block]);
  return {best == 0 ? Codec::kPacked3 : Codec::kPacked4, bytes[best]};
}

uint64_t packed_bytes_min(Codec codec, uint64_t weights) {
  return kernels::packed_layout(weights, planes_of(codec)).escapes;
}

bool is_sound(Codec codec, std::span<const std::byte> stored, uint64_t weights) {
  return codec == Codec::kRaw ||
         kernels::packed_is_sound(stored.data(), stored.size(), weights, planes_of(codec));
}

kernels::Encoding encoding_of(uint8_t codec, uint8_t dtype) {
  switch (static_cast<Codec>(codec)) {
    case Codec::kPacked3:
      return kernels::Encoding::kPacked3;
    case Codec::kPacked4:
      return kernels::Encoding::kPacked4;
    case Codec::kRaw:
      break;
  }
  return static_cast<DType>(dtype) == DType::kF32 ? kernels::Encoding::kF32
                                                  : kernels::Encoding::kBf16;
}

void unpack_weights(Codec codec, std::span<const std::byte> stored, std::span<std::byte> out) {
  const size_t weights = out.size() / 2;
  const kernels::Kernels& table =
      kernels::table(kernels::best_isa().value_or(kernels::Isa::kScalar));
  const kernels::WeightView view{encoding_of(static_cast<uint8_t>(codec), 0), stored.data(),
                                 nullptr, 1, weights};
  std::byte scratch[kernels::unpack_scratch_bytes(4096)];
  for (size_t begin = 0; begin < weights; begin += 4096) {
    const size_t count = std::min<size_t>(4096, weights - begin);
    std::memcpy(out.data() + 2 * begin, table.unpack(view, begin, count, scratch), 2 * count);
  }
}

}  // namespace k3::weights
