#include "weights/trunk_codec.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <vector>

#include "base/all_zero.h"
#include "base/check.h"
#include "kernels/dispatch.h"
#include "kernels/packed.h"
#include "weights/dtype.h"

namespace k3::weights {
namespace {

using kernels::kPackedBlock;
using kernels::kPackedUnit;

constexpr size_t kExponents = 256;
constexpr size_t kCodeBits[] = {3, 4};

/// Code 0 is an escape.
constexpr size_t window_of(size_t code_bits) {
  return (size_t{1} << code_bits) - 1;
}

/// The weights of one block, taken apart. Loops over whole blocks, so that compilers vectorize
/// them.
struct Block {
  size_t count;
  std::array<uint8_t, kPackedBlock> exponents;
  std::array<uint8_t, kPackedBlock> kept;

  explicit Block(std::span<const std::byte> bf16) : count(bf16.size() / 2) {
    std::array<uint16_t, kPackedBlock> words;
    if (count < kPackedBlock) words.fill(0);
    std::memcpy(words.data(), bf16.data(), bf16.size());
    for (size_t i = 0; i < kPackedBlock; ++i) {
      const auto rotated = static_cast<uint16_t>(words[i] << 1 | words[i] >> 15);
      exponents[i] = static_cast<uint8_t>(rotated >> 8);
      kept[i] = static_cast<uint8_t>(rotated);
    }
  }
};

struct Window {
  uint8_t base;
  uint8_t escapes;
};

/// How often the weights of one block have each exponent.
class Histogram {
 public:
  explicit Histogram(const Block& block) : weights_(block.count) {
    // Equal exponents follow each other often; several tables keep them from waiting for another.
    std::array<std::array<uint8_t, kExponents>, kTables> tables{};
    for (size_t i = 0; i < weights_; ++i) ++tables[i % kTables][block.exponents[i]];
    for (size_t e = 0; e < kExponents; ++e) {
      for (const auto& table : tables) counts_[e] = static_cast<uint16_t>(counts_[e] + table[e]);
    }
    uint8_t low = kExponents - 1;
    uint8_t high = 0;
    for (size_t i = 0; i < weights_; ++i) {
      low = std::min(low, block.exponents[i]);
      high = std::max(high, block.exponents[i]);
    }
    low_ = low;
    high_ = high;
  }

  /// The `width` exponents in a row that cover the most weights, the highest among equals. One
  /// weight is always covered, so the escapes fit a byte.
  Window best(size_t width) const {
    size_t first = std::min(low_, kExponents - width);
    size_t sum = 0;
    for (size_t e = first; e < first + width; ++e) sum += counts_[e];
    size_t best = first;
    size_t covered = sum;
    for (; first + width <= high_; ++first) {
      sum += size_t{counts_[first + width]} - counts_[first];
      if (sum < covered) continue;
      covered = sum;
      best = first + 1;
    }
    return {static_cast<uint8_t>(best - 1), static_cast<uint8_t>(weights_ - covered)};
  }

 private:
  static constexpr size_t kTables = 4;

  size_t weights_;
  size_t low_;
  size_t high_;
  std::array<uint16_t, kExponents> counts_{};
};

/// The bytes of a block in the order of the file.
std::array<uint8_t, kPackedBlock> placed(const std::array<uint8_t, kPackedBlock>& bytes) {
  std::array<uint8_t, kPackedBlock> out;
  for (size_t b = 0; b < kPackedBlock; b += 8) {
    const size_t unit = b / kPackedUnit * kPackedUnit;
    std::memcpy(&out[b], &bytes[unit + kernels::place_in_unit(b - unit)], 8);
  }
  return out;
}

/// Codes of 3 or 4 bits, one a byte, as the file has them.
void write_codes(const std::array<uint8_t, kPackedBlock>& codes, size_t code_bits, std::byte* out) {
  const auto code = [&](size_t u, size_t b) { return codes[u * kPackedUnit + b]; };
  for (size_t b = 0; b < kPackedUnit; ++b) {
    if (code_bits == 4) {
      out[b] = static_cast<std::byte>(code(0, b) | code(1, b) << 4);
      out[kPackedUnit + b] = static_cast<std::byte>(code(2, b) | code(3, b) << 4);
    } else {
      out[b] = static_cast<std::byte>((code(0, b) & 3) | (code(1, b) & 3) << 2 |
                                      (code(2, b) & 3) << 4 | (code(3, b) & 3) << 6);
    }
  }
  if (code_bits == 4) return;
  for (size_t b = 0; b < kPackedUnit / 2; ++b) {
    unsigned bits = 0;
    for (size_t u = 0; u < kernels::kUnits; ++u) {
      bits |= unsigned{code(u, b)} >> 2 << u | unsigned{code(u, b + 32)} >> 2 << (u + 4);
    }
    out[kPackedUnit + b] = static_cast<std::byte>(bits);
  }
}

/// Writes one view; every block once, in order.
class Packer {
 public:
  Packer(std::span<const std::byte> bf16, size_t code_bits, size_t escapes, std::byte* out)
      : bf16_(bf16),
        code_bits_(code_bits),
        at_(kernels::packed_layout(bf16.size() / 2)),
        out_(out),
        escape_(out + at_.escapes),
        block_(out + at_.body(escapes)) {
    std::fill(escape_ + escapes, block_, std::byte{0});
  }

  void add_block(size_t number, Window window) {
    out_[at_.bases + number] = std::byte{window.base};
    out_[at_.counts + number] = std::byte{window.escapes};
    const size_t begin = 2 * number * kPackedBlock;
    const Block block(bf16_.subspan(begin, std::min(2 * kPackedBlock, bf16_.size() - begin)));
    std::memcpy(block_, placed(block.kept).data(), kPackedBlock);
    write_codes(add_exponents(block, window.base), code_bits_, block_ + kPackedBlock);
    block_ += kernels::packed_block_bytes(code_bits_);
    const auto end = static_cast<uint32_t>(escape_ - (out_ + at_.escapes));
    std::memcpy(out_ + number / kernels::kBlocksPerEnd * sizeof end, &end, sizeof end);
  }

 private:
  /// Writes the escapes and returns the codes.
  std::array<uint8_t, kPackedBlock> add_exponents(const Block& block, uint8_t base) {
    std::array<uint8_t, kPackedBlock> codes = block.exponents;
    const auto most = static_cast<uint8_t>(window_of(code_bits_));
    for (uint8_t& code : codes) {
      code = static_cast<uint8_t>(code - base);
      code = code <= most ? code : uint8_t{0};
    }
    std::fill(codes.begin() + static_cast<ptrdiff_t>(block.count), codes.end(), uint8_t{1});
    codes = placed(codes);
    const auto exponents = placed(block.exponents);
    for (size_t b = 0; b < kPackedBlock; b += 8) {
      uint64_t eight;
      std::memcpy(&eight, &codes[b], sizeof eight);
      add_escapes(eight, &exponents[b]);
    }
    return codes;
  }

  /// The exponents that have code 0 among eight.
  void add_escapes(uint64_t codes, const uint8_t* exponents) {
    constexpr uint64_t kLower = 0x7f7f7f7f7f7f7f7f;
    uint64_t zeros = ~(((codes & kLower) + kLower) | codes | kLower);  // bit 7 of each
    for (; zeros != 0; zeros &= zeros - 1) {
      *escape_++ = std::byte{exponents[std::countr_zero(zeros) / 8]};
    }
  }

  std::span<const std::byte> bf16_;
  size_t code_bits_;
  kernels::PackedLayout at_;
  std::byte* out_;
  std::byte* escape_;
  std::byte* block_;
};

size_t code_bits_of(Codec codec) {
  return codec == Codec::kPacked4 ? 4 : 3;
}

}  // namespace

bool can_be_packed(uint8_t dtype, uint64_t cols) {
  return static_cast<DType>(dtype) == DType::kBf16 && cols <= kernels::kPackedColsMax;
}

Packed pack_weights(std::span<const std::byte> bf16, std::span<std::byte> out) {
  const Packed raw{Codec::kRaw, bf16.size()};
  if (all_zero(bf16)) return raw;
  const kernels::PackedLayout at = kernels::packed_layout(bf16.size() / 2);
  std::vector<Window> windows[std::size(kCodeBits)];
  size_t escapes[std::size(kCodeBits)] = {};
  for (auto& of_code : windows) of_code.reserve(at.blocks);
  for (size_t begin = 0; begin < bf16.size(); begin += 2 * kPackedBlock) {
    const Block block(bf16.subspan(begin, std::min(2 * kPackedBlock, bf16.size() - begin)));
    const Histogram histogram(block);
    for (size_t c = 0; c < std::size(kCodeBits); ++c) {
      windows[c].push_back(histogram.best(window_of(kCodeBits[c])));
      escapes[c] += windows[c].back().escapes;
    }
  }
  const auto bytes = [&](size_t c) { return at.bytes(escapes[c], kCodeBits[c]); };
  const size_t best = bytes(1) < bytes(0) ? 1 : 0;
  if (bytes(best) >= bf16.size()) return raw;
  K3_CHECK(out.size() >= bf16.size());
  Packer packer(bf16, kCodeBits[best], escapes[best], out.data());
  for (size_t block = 0; block < at.blocks; ++block) packer.add_block(block, windows[best][block]);
  return {best == 0 ? Codec::kPacked3 : Codec::kPacked4, bytes(best)};
}

uint64_t packed_bytes_min(Codec codec, uint64_t weights) {
  return kernels::packed_layout(weights).bytes(0, code_bits_of(codec));
}

bool is_sound(Codec codec, std::span<const std::byte> stored, uint64_t weights) {
  return codec == Codec::kRaw ||
         kernels::packed_is_sound(stored.data(), stored.size(), weights, code_bits_of(codec));
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
