#include "kernels/packed.h"

#include "kernels/avx2/bf16.h"
#include "kernels/avx2/functions.h"
#include "kernels/avx2/vector.h"
#include "kernels/tiles.h"

namespace k3::kernels::avx2 {
namespace {

// Groups further on are asked for while these are rebuilt.
constexpr size_t kAhead = 3072;

/// The bytes of `plane` that hold the bits of bytes 0..31, as 0 or -1.
inline __m256i spread_bits(uint32_t plane) {
  const __m256i place =
      _mm256_setr_epi64x(0, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303);
  const __m256i bits = _mm256_set1_epi64x(static_cast<int64_t>(0x8040201008040201));
  const __m256i bytes = _mm256_shuffle_epi8(_mm256_set1_epi32(static_cast<int>(plane)), place);
  return _mm256_cmpeq_epi8(_mm256_and_si256(bytes, bits), bits);
}

/// The exponents of a group, one a byte.
template <size_t kPlanes>
inline __m256i exponents(const std::byte* group, __m256i base) {
  __m256i negative = spread_bits(load_u32(group + kPairGroup + 4 * (kPlanes - 1)));
  for (size_t k = kPlanes - 1; k-- > 0;) {
    const __m256i bits = spread_bits(load_u32(group + kPairGroup + 4 * k));
    negative = _mm256_add_epi8(_mm256_add_epi8(negative, negative), bits);
  }
  return _mm256_sub_epi8(base, negative);
}

/// Words from bytes of sign and mantissa and bytes of exponents.
inline __m256i joined(__m128i kept, __m128i exponents) {
  const __m256i fields =
      _mm256_and_si256(_mm256_cvtepi8_epi16(kept), _mm256_set1_epi16(int16_t(0x807f)));
  return _mm256_or_si256(fields, _mm256_slli_epi16(_mm256_cvtepu8_epi16(exponents), 7));
}

template <size_t kPlanes>
inline void rebuild(const std::byte* group, __m256i base, std::byte* out) {
  const __m256i exponent = exponents<kPlanes>(group, base);
  const auto* kept = reinterpret_cast<const __m128i*>(group);
  auto* words = reinterpret_cast<__m256i*>(out);
  _mm256_storeu_si256(words, joined(_mm_loadu_si128(kept), _mm256_castsi256_si128(exponent)));
  _mm256_storeu_si256(words + 1,
                      joined(_mm_loadu_si128(kept + 1), _mm256_extracti128_si256(exponent, 1)));
}

template <size_t kPlanes>
const std::byte* unpack(const WeightView& w, size_t begin, size_t count, std::byte* scratch) {
  return unpack_blocks<kPlanes>(
      w, begin, count, scratch,
      [](const std::byte* groups, size_t group_count, unsigned base, std::byte* out) {
        const __m256i bases = _mm256_set1_epi8(static_cast<char>(base));
        for (size_t g = 0; g < group_count; ++g) {
          const std::byte* group = groups + g * packed_group_bytes(kPlanes);
          __builtin_prefetch(group + kAhead);
          rebuild<kPlanes>(group, bases, out + g * 2 * kPairGroup);
        }
      });
}

template <size_t kPlanes>
struct PackedRows {
  static constexpr size_t kBits = 8 + kPlanes;
  template <class V>
  using Steps = PairSteps<V>;

  static void decode(const WeightView& w, size_t row, size_t first, size_t count,
                     DecodedRows<Vector::kTileRows>& to, size_t r) {
    alignas(64) std::byte scratch[unpack_scratch_bytes(kTileElements)];
    const std::byte* from = unpack<kPlanes>(w, row * w.cols + first, count, scratch);
    for (size_t i = 0; i < count; i += kPairGroup) {
      const Group group = load_group(from + 2 * i, count - i);
      store_lanes(to.weights[i / kLanes][r], group.even);
      store_lanes(to.weights[i / kLanes + 1][r], group.odd);
    }
  }
};

}  // namespace

const std::byte* unpack(const WeightView& w, size_t begin, size_t count, std::byte* scratch) {
  return w.encoding == Encoding::kPacked3 ? unpack<3>(w, begin, count, scratch)
                                          : unpack<4>(w, begin, count, scratch);
}

void matmul_packed(const WeightView& w, Range rows, const PackedColumns& x, const ColumnsOut& y) {
  if (x.count == 1) return multiply_strips(w, rows, x, y, unpack, matmul_bf16);
  if (w.encoding == Encoding::kPacked3) return multiply_tiles<Vector, PackedRows<3>>(w, rows, x, y);
  multiply_tiles<Vector, PackedRows<4>>(w, rows, x, y);
}

}  // namespace k3::kernels::avx2
