#include "kernels/avx512/packed_vbmi2.h"

#include <utility>

#include "kernels/avx512/bf16.h"
#include "kernels/avx512/vector.h"
#include "kernels/far_rows.h"
#include "kernels/packed.h"

namespace k3::kernels::avx512 {
namespace {

/// The codes of a block. code<u>() has those of unit u in the lower bits of its bytes; what stands
/// above them is of no meaning.
template <size_t kCodeBits>
struct Codes;

template <>
struct Codes<3> {
  __m512i lower;
  __m512i upper;  // bit u of a byte belongs to unit u

  explicit Codes(const std::byte* codes) : lower(_mm512_loadu_si512(codes)) {
    const __m256i both = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(codes + kPackedUnit));
    upper = _mm512_inserti64x4(_mm512_castsi256_si512(both), _mm256_srli_epi16(both, 4), 1);
  }

  template <size_t u>
  __m512i code() const {
    constexpr int kMaskSelects = 0xCA;
    const __m512i low = u == 0 ? lower : _mm512_srli_epi16(lower, 2 * u);
    const __m512i high = u < 2    ? _mm512_slli_epi16(upper, u < 2 ? 2 - u : 0)
                         : u == 2 ? upper
                                  : _mm512_srli_epi16(upper, u > 2 ? u - 2 : 0);
    return _mm512_ternarylogic_epi64(_mm512_set1_epi8(3), low, high, kMaskSelects);
  }
};

template <>
struct Codes<4> {
  const std::byte* codes;

  explicit Codes(const std::byte* at) : codes(at) {}

  template <size_t u>
  __m512i code() const {
    const __m512i two = _mm512_loadu_si512(codes + u / 2 * kPackedUnit);
    return u % 2 == 0 ? two : _mm512_srli_epi16(two, 4);
  }
};

/// The numbers 0 .. 63, as far as `mask` lets them.
inline __m512i masked_numbers(char mask) {
  alignas(64) static constexpr uint8_t kNumbers[64] = {
      0,  1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21,
      22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32, 33, 34, 35, 36, 37, 38, 39, 40, 41, 42, 43,
      44, 45, 46, 47, 48, 49, 50, 51, 52, 53, 54, 55, 56, 57, 58, 59, 60, 61, 62, 63};
  return _mm512_and_si512(_mm512_load_si512(kNumbers), _mm512_set1_epi8(mask));
}

struct Words {
  __m512i low;  // the first group of a unit
  __m512i high;
};

/// Rebuilds the units of a block in their order.
template <size_t kCodeBits>
class BlockReader {
 public:
  explicit BlockReader(const PackedCursor& at)
      : kept_(at.block),
        codes_(at.block + kPackedBlock),
        exponents_(_mm512_add_epi8(masked_numbers(kCodeMask),
                                   _mm512_set1_epi8(std::to_integer<char>(*at.base)))),
        escapes_(at.escapes) {}

  template <size_t u>
  Words unit() {
    const __m512i code = codes_.template code<u>();
    const __mmask64 escaped = _mm512_testn_epi8_mask(code, _mm512_set1_epi8(kCodeMask));
    const __m512i exponent = _mm512_mask_expand_epi8(_mm512_permutexvar_epi8(code, exponents_),
                                                     escaped, _mm512_loadu_si512(escapes_));
    escapes_ += __builtin_popcountll(escaped);
    const __m512i kept = _mm512_loadu_si512(kept_ + u * kPackedUnit);
    return {rotated(_mm512_unpacklo_epi8(kept, exponent)),
            rotated(_mm512_unpackhi_epi8(kept, exponent))};
  }

 private:
  static constexpr char kCodeMask = (1 << kCodeBits) - 1;

  static __m512i rotated(__m512i words) { return _mm512_shrdi_epi16(words, words, 1); }

  const std::byte* kept_;
  Codes<kCodeBits> codes_;
  __m512i exponents_;
  const std::byte* escapes_;
};

inline __m512 add_unit(const Words& words, const float* x, __m512 acc) {
  return add_group(words.high, x + kPairGroup, add_group(words.low, x, acc));
}

/// Calls use.operator()<u>() for every unit of a block.
template <class Use>
inline void for_units(Use use) {
  [&]<size_t... u>(std::index_sequence<u...>) {
    (use.template operator()<u>(), ...);
  }
  (std::make_index_sequence<kUnits>());
}

template <size_t kCodeBits>
inline void ask_ahead(const PackedCursor& at) {
  for (size_t line = 0; line < packed_block_bytes(kCodeBits); line += 64) {
    __builtin_prefetch(at.block + kPrefetchBytes + line);
  }
  __builtin_prefetch(at.escapes + 64);
}

template <size_t kCodeBits>
const std::byte* unpack(const WeightView& w, size_t begin, size_t count, std::byte* scratch) {
  return unpack_blocks<kCodeBits>(
      w, begin, count, scratch, [](const PackedCursor& at, std::byte* out) {
        BlockReader<kCodeBits> block(at);
        for_units([&]<size_t u>() {
          const Words words = block.template unit<u>();
          _mm512_storeu_si512(out + 2 * u * kPackedUnit, words.low);
          _mm512_storeu_si512(out + 2 * (u * kPackedUnit + kPairGroup), words.high);
        });
      });
}

template <size_t kCodeBits>
void matvec(const WeightView& w, Range rows, const float* x, float* y) {
  const size_t blocks = w.cols / kPackedBlock;
  for_far_rows(rows, [&](const size_t(&numbers)[kStreams]) {
    PackedCursor a(w, numbers[0] * blocks);
    PackedCursor b(w, numbers[1] * blocks);
    __m512 sum_a = _mm512_setzero_ps();
    __m512 sum_b = _mm512_setzero_ps();
    for (size_t i = 0; i < w.cols; i += kPackedBlock) {
      ask_ahead<kCodeBits>(a);
      ask_ahead<kCodeBits>(b);
      BlockReader<kCodeBits> block_a(a);
      BlockReader<kCodeBits> block_b(b);
      for_units([&]<size_t u>() {
        sum_a = add_unit(block_a.template unit<u>(), x + i + u * kPackedUnit, sum_a);
        sum_b = add_unit(block_b.template unit<u>(), x + i + u * kPackedUnit, sum_b);
      });
      a.advance(kCodeBits);
      b.advance(kCodeBits);
    }
    y[numbers[0]] = reduce(sum_a);
    y[numbers[1]] = reduce(sum_b);
  });
}

}  // namespace

const std::byte* unpack_vbmi2(const WeightView& w, size_t begin, size_t count, std::byte* scratch) {
  return w.encoding == Encoding::kPacked3 ? unpack<3>(w, begin, count, scratch)
                                          : unpack<4>(w, begin, count, scratch);
}

void matvec_packed_vbmi2(const WeightView& w, Range rows, const float* x, float* y) {
  if (w.encoding == Encoding::kPacked3) return matvec<3>(w, rows, x, y);
  matvec<4>(w, rows, x, y);
}

}  // namespace k3::kernels::avx512
