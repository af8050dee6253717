#include "kernels/packed.h"

#include "kernels/scalar/functions.h"

namespace k3::kernels::scalar {
namespace {

/// Weight j of a group, with the exponent base + code.
template <size_t kPlanes>
uint16_t rebuilt(const std::byte* group, size_t j, unsigned base) {
  const auto kept = std::to_integer<unsigned>(group[j]);
  unsigned exponent = base;
  for (size_t k = 0; k < kPlanes; ++k) {
    exponent += (load_u32(group + kPairGroup + 4 * k) >> j & 1) << k;
  }
  return static_cast<uint16_t>(((kept & 0x80) << 8 | (kept & 0x7f)) + (exponent << 7));
}

template <size_t kPlanes>
const std::byte* unpack(const WeightView& w, size_t begin, size_t count, std::byte* scratch) {
  return unpack_blocks<kPlanes>(
      w, begin, count, scratch,
      [](const std::byte* groups, size_t group_count, unsigned base, std::byte* out) {
        for (size_t g = 0; g < group_count; ++g) {
          for (size_t j = 0; j < kPairGroup; ++j, out += 2) {
            const uint16_t word =
                rebuilt<kPlanes>(groups + g * packed_group_bytes(kPlanes), j, base);
            std::memcpy(out, &word, sizeof word);
          }
        }
      });
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
