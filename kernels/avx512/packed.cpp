#include "kernels/packed.h"

#include "kernels/avx512/bf16.h"
#include "kernels/avx512/functions.h"
#include "kernels/avx512/vector.h"
#include "kernels/tiles.h"

namespace k3::kernels::avx512 {
namespace {

// Groups further on are asked for while these are rebuilt.
constexpr size_t kAhead = 3072;

/// 32 weights: sign and mantissa spread to words, the exponent added plane by plane.
template <size_t kPlanes>
inline __m512i rebuilt(const std::byte* group, __m512i base) {
  const __m256i kept = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(group));
  const __m512i fields =
      _mm512_and_si512(_mm512_cvtepi8_epi16(kept), _mm512_set1_epi16(int16_t(0x807f)));
  __m512i words = _mm512_add_epi16(fields, base);
  for (size_t k = 0; k < kPlanes; ++k) {
    const __mmask32 plane = load_u32(group + kPairGroup + 4 * k);
    words = _mm512_mask_add_epi16(words, plane, words, _mm512_set1_epi16(int16_t(128 << k)));
  }
  return words;
}

template <size_t kPlanes>
const std::byte* unpack(const WeightView& w, size_t begin, size_t count, std::byte* scratch) {
  return unpack_blocks<kPlanes>(
      w, begin, count, scratch,
      [](const std::byte* groups, size_t group_count, unsigned base, std::byte* out) {
        const __m512i bases = _mm512_set1_epi16(static_cast<int16_t>(base << 7));
        for (size_t g = 0; g < group_count; ++g) {
          const std::byte* group = groups + g * packed_group_bytes(kPlanes);
          __builtin_prefetch(group + kAhead);
          _mm512_storeu_si512(out + g * 2 * kPairGroup, rebuilt<kPlanes>(group, bases));
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
      const __m512i words = load_words(from + 2 * i, count - i);
      _mm512_store_ps(to.weights[i / kLanes][r], even_weights(words));
      _mm512_store_ps(to.weights[i / kLanes + 1][r], odd_weights(words));
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

}  // namespace k3::kernels::avx512
