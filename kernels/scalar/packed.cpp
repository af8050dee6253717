#include "kernels/packed.h"

#include "kernels/scalar/functions.h"

namespace k3::kernels::scalar {
namespace {

/// The code of byte b of unit u; `codes` are those of the block.
template <size_t kCodeBits>
unsigned code_of(const std::byte* codes, size_t u, size_t b) {
  if constexpr (kCodeBits == 4) {
    return std::to_integer<unsigned>(codes[u / 2 * kPackedUnit + b]) >> u % 2 * 4 & 15;
  } else {
    const unsigned lower = std::to_integer<unsigned>(codes[b]) >> 2 * u & 3;
    const unsigned upper = std::to_integer<unsigned>(codes[kPackedUnit + b % 32]);
    return lower | (upper >> (u + b / 32 * 4) & 1) << 2;
  }
}

template <size_t kCodeBits>
void rebuild(const PackedCursor& at, std::byte* out) {
  const std::byte* escape = at.escapes;
  for (size_t u = 0; u < kUnits; ++u) {
    for (size_t b = 0; b < kPackedUnit; ++b) {
      const unsigned code = code_of<kCodeBits>(at.block + kPackedBlock, u, b);
      const unsigned exponent = code == 0 ? std::to_integer<unsigned>(*escape++)
                                          : ((std::to_integer<unsigned>(*at.base) + code) & 0xff);
      const auto kept = std::to_integer<unsigned>(at.block[u * kPackedUnit + b]);
      const auto word = static_cast<uint16_t>((kept & 1) << 15 | exponent << 7 | kept >> 1);
      std::memcpy(out + 2 * (u * kPackedUnit + place_in_unit(b)), &word, sizeof word);
    }
  }
}

template <size_t kCodeBits>
const std::byte* unpack(const WeightView& w, size_t begin, size_t count, std::byte* scratch) {
  return unpack_blocks<kCodeBits>(w, begin, count, scratch, rebuild<kCodeBits>);
}

}  // namespace

const std::byte* unpack(const WeightView& w, size_t begin, size_t count, std::byte* scratch) {
  return w.encoding == Encoding::kPacked3 ? unpack<3>(w, begin, count, scratch)
                                          : unpack<4>(w, begin, count, scratch);
}

void matmul_packed(const WeightView& w, Range rows, const PackedColumns& x, const ColumnsOut& y) {
  multiply_strips(w, rows, x, y, unpack, matmul_bf16);
}

}  // namespace k3::kernels::scalar
