#include "kernels/avx512/functions.h"
#include "kernels/avx512/vector.h"
#include "kernels/far_rows.h"
#include "kernels/formats.h"
#include "kernels/tiles.h"

namespace k3::kernels::avx512 {
namespace {

// Word j of a block holds the eight weights of lane j, weight k in bits 4k..4k+3. A look-up by
// words reads the lowest four bits, which gives weights 0..3 of the word shifted right by 4k; one
// by half-words, upper halves only, gives weights 4..7 of the same shifted word as upper halves of
// floats (an E2M1 value has no lower half): eight weights for three shifts and eight look-ups. The
// latter reads five bits, hence the table twice.
struct Tables {
  __m512 words = _mm512_loadu_ps(kE2m1);
  __m512i halves = [this] {
    const __m512i upper = _mm512_srli_epi32(_mm512_castps_si512(words), 16);
    const __m256i table = _mm512_cvtepi32_epi16(upper);
    return _mm512_broadcast_i64x4(table);
  }();
};

constexpr __mmask32 kUpperHalves = 0xAAAAAAAA;

template <size_t kWeight>
inline __m512 decode_weight(__m512i words, const Tables& tables) {
  const __m512i shifted = _mm512_srli_epi32(words, 4 * (kWeight % 4));
  if constexpr (kWeight < 4) return _mm512_permutexvar_ps(shifted, tables.words);
  return _mm512_castsi512_ps(_mm512_maskz_permutexvar_epi16(kUpperHalves, shifted, tables.halves));
}

// The scale of each lane from the four of a block, lowest byte first.
inline __m512 decode_scales(uint32_t scales) {
  const __m512i to_top_byte =
      _mm512_set_epi32(0x03FFFFFF, 0x03FFFFFF, 0x03FFFFFF, 0x03FFFFFF, 0x02FFFFFF, 0x02FFFFFF,
                       0x02FFFFFF, 0x02FFFFFF, 0x01FFFFFF, 0x01FFFFFF, 0x01FFFFFF, 0x01FFFFFF,
                       0x00FFFFFF, 0x00FFFFFF, 0x00FFFFFF, 0x00FFFFFF);
  const __m512i top = _mm512_shuffle_epi8(_mm512_set1_epi32(static_cast<int>(scales)), to_top_byte);
  const __m512i exponent = _mm512_srli_epi32(top, 1);
  return _mm512_castsi512_ps(_mm512_max_epu32(exponent, _mm512_set1_epi32(0x00400000)));
}

// The block of a row that begins at element i. Past the end of the row: zeros under the scale 1.
struct BlockSource {
  const std::byte* weights;
  const std::byte* scales;

  BlockSource(const WeightView& w, size_t row, size_t first)
      : weights(w.data + (row * w.cols + first) / 2),
        scales(w.scales + (row * w.cols + first) / kScaleGroup) {}

  template <bool kWhole>
  __m512i load_words(size_t i, size_t end) const {
    if (kWhole) return _mm512_loadu_si512(weights + i / 2);
    return _mm512_maskz_loadu_epi32(first_lanes((end - i) / kOctet), weights + i / 2);
  }

  template <bool kWhole>
  __m512 load_scales(size_t i, size_t end) const {
    uint32_t bytes = 0x7F7F7F7F;
    std::memcpy(&bytes, scales + i / kScaleGroup, kWhole ? 4 : (end - i) / kScaleGroup);
    return decode_scales(bytes);
  }
};

template <size_t kWeight>
inline __m512 add_weight(__m512i words, const float* x, const Tables& tables, __m512 p) {
  const __m512 input = _mm512_loadu_ps(x + kWeight * kLanes);
  const __m512 weight = decode_weight<kWeight>(words, tables);
  return kWeight == 0 ? _mm512_mul_ps(weight, input) : _mm512_fmadd_ps(weight, input, p);
}

inline __m512 multiply_words(__m512i words, const float* x, const Tables& tables) {
  __m512 p = add_weight<0>(words, x, tables, _mm512_setzero_ps());
  p = add_weight<1>(words, x, tables, p);
  p = add_weight<2>(words, x, tables, p);
  p = add_weight<3>(words, x, tables, p);
  p = add_weight<4>(words, x, tables, p);
  p = add_weight<5>(words, x, tables, p);
  p = add_weight<6>(words, x, tables, p);
  return add_weight<7>(words, x, tables, p);
}

void multiply_rows(const WeightView& w, const size_t (&numbers)[kStreams], const float* x,
                   float* y) {
  const Tables tables;
  const BlockSource rows[kStreams] = {{w, numbers[0], 0}, {w, numbers[1], 0}};
  __m512 acc[kStreams] = {_mm512_setzero_ps(), _mm512_setzero_ps()};
  size_t i = 0;
  for (; i + kOctetBlock <= w.cols; i += kOctetBlock) {
    for (size_t s = 0; s < kStreams; ++s) {
      __builtin_prefetch(rows[s].weights + i / 2 + kPrefetchBytes);
      const __m512 p = multiply_words(rows[s].load_words<true>(i, w.cols), x + i, tables);
      acc[s] = _mm512_fmadd_ps(rows[s].load_scales<true>(i, w.cols), p, acc[s]);
    }
  }
  for (size_t s = 0; i < w.cols && s < kStreams; ++s) {
    const __m512 p = multiply_words(rows[s].load_words<false>(i, w.cols), x + i, tables);
    acc[s] = _mm512_fmadd_ps(rows[s].load_scales<false>(i, w.cols), p, acc[s]);
  }
  for (size_t s = 0; s < kStreams; ++s) y[numbers[s]] = reduce(acc[s]);
}

struct Mxfp4Rows : PlainRows {
  using Decoded = DecodedRows<Vector::kTileRows>;
  static constexpr size_t kBits = 4;
  template <class V>
  using Steps = OctetSteps<V>;

  template <bool kWhole>
  static void decode_block(const BlockSource& from, size_t i, size_t count, const Tables& tables,
                           Decoded& to, size_t r) {
    const __m512i words = from.load_words<kWhole>(i, count);
    auto* planes = &to.weights[i / kLanes];
    _mm512_store_ps(planes[0][r], decode_weight<0>(words, tables));
    _mm512_store_ps(planes[1][r], decode_weight<1>(words, tables));
    _mm512_store_ps(planes[2][r], decode_weight<2>(words, tables));
    _mm512_store_ps(planes[3][r], decode_weight<3>(words, tables));
    _mm512_store_ps(planes[4][r], decode_weight<4>(words, tables));
    _mm512_store_ps(planes[5][r], decode_weight<5>(words, tables));
    _mm512_store_ps(planes[6][r], decode_weight<6>(words, tables));
    _mm512_store_ps(planes[7][r], decode_weight<7>(words, tables));
    _mm512_store_ps(to.scales[i / kOctetBlock][r], from.load_scales<kWhole>(i, count));
  }

  static void decode(const WeightView& w, size_t row, size_t first, size_t count, Decoded& to,
                     size_t r) {
    const Tables tables;
    const BlockSource from(w, row, first);
    size_t i = 0;
    for (; i + kOctetBlock <= count; i += kOctetBlock) {
      decode_block<true>(from, i, count, tables, to, r);
    }
    if (i < count) decode_block<false>(from, i, count, tables, to, r);
  }
};

}  // namespace

void matmul_mxfp4(const WeightView& w, Range rows, const PackedColumns& x, const ColumnsOut& y) {
  if (x.count != 1) return multiply_tiles<Vector, Mxfp4Rows>(w, rows, x, y);
  for_far_rows(
      rows, [&](const size_t(&numbers)[kStreams]) { multiply_rows(w, numbers, x.data, y.data); });
}

}  // namespace k3::kernels::avx512
