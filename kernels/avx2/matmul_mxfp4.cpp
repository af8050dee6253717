#include "kernels/avx2/functions.h"
#include "kernels/avx2/vector.h"
#include "kernels/far_rows.h"
#include "kernels/formats.h"
#include "kernels/tiles.h"

namespace k3::kernels::avx2 {
namespace {

// The eight weights of eight lanes as bf16, two in a register: weight k in the lower halves, weight
// k + 2 in the upper.
struct Octets {
  __m256i w02, w13, w46, w57;
};

// Word j holds the eight weights of lane j, weight k in bits 4k..4k+3. The even nibbles are looked
// up at once, and the odd ones; a byte shuffle gives the upper bytes of their bf16, another the
// lower ones. Interleaving puts the bytes together two words at a time, and a shuffle the words in
// order.
struct Bf16Pairs {
  __m256i first;   // nibbles 0 and 2 of each word (or 1 and 3)
  __m256i second;  // 4 and 6 (or 5 and 7)
};

inline Bf16Pairs look_up(__m256i nibbles) {
  const __m256i upper_bytes = _mm256_broadcastsi128_si256(
      _mm_setr_epi8(0x00, 0x3F, 0x3F, 0x3F, 0x40, 0x40, 0x40, 0x40, -0x80, -0x41, -0x41, -0x41,
                    -0x40, -0x40, -0x40, -0x40));
  const __m256i lower_bytes = _mm256_broadcastsi128_si256(
      _mm_setr_epi8(0x00, 0x00, -0x80, -0x40, 0x00, 0x40, -0x80, -0x40, 0x00, 0x00, -0x80, -0x40,
                    0x00, 0x40, -0x80, -0x40));
  const __m256i upper = _mm256_shuffle_epi8(upper_bytes, nibbles);
  const __m256i lower = _mm256_shuffle_epi8(lower_bytes, nibbles);
  const __m256 words01 = _mm256_castsi256_ps(_mm256_unpacklo_epi8(lower, upper));
  const __m256 words23 = _mm256_castsi256_ps(_mm256_unpackhi_epi8(lower, upper));
  return {_mm256_castps_si256(_mm256_shuffle_ps(words01, words23, 0x88)),
          _mm256_castps_si256(_mm256_shuffle_ps(words01, words23, 0xDD))};
}

inline Octets decode_words(__m256i words) {
  const __m256i low_nibbles = _mm256_set1_epi8(15);
  const Bf16Pairs even = look_up(_mm256_and_si256(words, low_nibbles));
  const Bf16Pairs odd = look_up(_mm256_and_si256(_mm256_srli_epi16(words, 4), low_nibbles));
  return {even.first, odd.first, even.second, odd.second};
}

template <size_t kWeight>
inline __m256 weight(const Octets& octets) {
  const __m256i pair = kWeight % 2 == 0 ? (kWeight < 4 ? octets.w02 : octets.w46)
                                        : (kWeight < 4 ? octets.w13 : octets.w57);
  if constexpr (kWeight % 4 < 2) return _mm256_castsi256_ps(_mm256_slli_epi32(pair, 16));
  return _mm256_castsi256_ps(_mm256_and_si256(pair, _mm256_set1_epi32(-0x10000)));
}

// The scales of lanes 0..7 or 8..15 from the four of a block, lowest byte first.
inline __m256 decode_scales(__m256i scales, int first) {
  const int select = first << 24 | 0x00FFFFFF;
  const __m256i to_top_byte =
      _mm256_setr_epi32(select, select, select, select, select + (1 << 24), select + (1 << 24),
                        select + (1 << 24), select + (1 << 24));
  const __m256i exponent = _mm256_srli_epi32(_mm256_shuffle_epi8(scales, to_top_byte), 1);
  return _mm256_castsi256_ps(_mm256_max_epu32(exponent, _mm256_set1_epi32(0x00400000)));
}

inline Lanes decode_scales(const std::byte* from) {
  int32_t bytes;
  std::memcpy(&bytes, from, sizeof bytes);
  const __m256i scales = _mm256_set1_epi32(bytes);
  return {decode_scales(scales, 0), decode_scales(scales, 2)};
}

struct Block {
  const std::byte* weights;
  const std::byte* scales;
};

struct Padding {
  std::byte weights[kOctetBlock / 2];
  std::byte scales[kOctetBlock / kScaleGroup];
};

// `block` itself, or a copy where only `left` elements remain: zeros under the scale 1 at its end.
inline Block whole_block(const Block& block, size_t left, Padding& padding) {
  if (left >= kOctetBlock) return block;
  std::memset(padding.scales, std::to_integer<int>(kE8m0One), sizeof padding.scales);
  std::memcpy(padding.scales, block.scales, left / kScaleGroup);
  return {avx2::whole_block(block.weights, left / 2, padding.weights), padding.scales};
}

inline __m256i load_words(const std::byte* from) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
}

inline __m256 multiply_words(__m256i words, const float* x) {
  const Octets octets = decode_words(words);
  __m256 p = _mm256_mul_ps(weight<0>(octets), _mm256_loadu_ps(x));
  p = _mm256_fmadd_ps(weight<1>(octets), _mm256_loadu_ps(x + 1 * kLanes), p);
  p = _mm256_fmadd_ps(weight<2>(octets), _mm256_loadu_ps(x + 2 * kLanes), p);
  p = _mm256_fmadd_ps(weight<3>(octets), _mm256_loadu_ps(x + 3 * kLanes), p);
  p = _mm256_fmadd_ps(weight<4>(octets), _mm256_loadu_ps(x + 4 * kLanes), p);
  p = _mm256_fmadd_ps(weight<5>(octets), _mm256_loadu_ps(x + 5 * kLanes), p);
  p = _mm256_fmadd_ps(weight<6>(octets), _mm256_loadu_ps(x + 6 * kLanes), p);
  return _mm256_fmadd_ps(weight<7>(octets), _mm256_loadu_ps(x + 7 * kLanes), p);
}

inline Lanes add_block(const Block& block, const float* x, const Lanes& acc) {
  const Lanes p{multiply_words(load_words(block.weights), x),
                multiply_words(load_words(block.weights + 32), x + 8)};
  return fma(decode_scales(block.scales), p, acc);
}

void multiply_rows(const WeightView& w, const size_t (&numbers)[kStreams], const float* x,
                   float* y) {
  Block rows[kStreams];
  Lanes acc[kStreams];
  for (size_t s = 0; s < kStreams; ++s) {
    rows[s] = {w.data + numbers[s] * w.cols / 2, w.scales + numbers[s] * w.cols / kScaleGroup};
    acc[s] = zero_lanes();
  }
  size_t i = 0;
  for (; i + kOctetBlock <= w.cols; i += kOctetBlock) {
    for (size_t s = 0; s < kStreams; ++s) {
      __builtin_prefetch(rows[s].weights + i / 2 + kPrefetchBytes);
      acc[s] =
          add_block({rows[s].weights + i / 2, rows[s].scales + i / kScaleGroup}, x + i, acc[s]);
    }
  }
  for (size_t s = 0; i < w.cols && s < kStreams; ++s) {
    Padding padding;
    const Block rest{rows[s].weights + i / 2, rows[s].scales + i / kScaleGroup};
    acc[s] = add_block(whole_block(rest, w.cols - i, padding), x + i, acc[s]);
  }
  for (size_t s = 0; s < kStreams; ++s) y[numbers[s]] = reduce(acc[s]);
}

struct Mxfp4Rows : PlainRows {
  static constexpr size_t kBits = 4;
  template <class V>
  using Steps = OctetSteps<V>;
  using Decoded = DecodedRows<Vector::kTileRows>;

  static void decode_half(__m256i words, Decoded& to, size_t plane, size_t r, size_t half) {
    const Octets octets = decode_words(words);
    auto* planes = &to.weights[plane];
    _mm256_store_ps(planes[0][r] + half, weight<0>(octets));
    _mm256_store_ps(planes[1][r] + half, weight<1>(octets));
    _mm256_store_ps(planes[2][r] + half, weight<2>(octets));
    _mm256_store_ps(planes[3][r] + half, weight<3>(octets));
    _mm256_store_ps(planes[4][r] + half, weight<4>(octets));
    _mm256_store_ps(planes[5][r] + half, weight<5>(octets));
    _mm256_store_ps(planes[6][r] + half, weight<6>(octets));
    _mm256_store_ps(planes[7][r] + half, weight<7>(octets));
  }

  static void decode(const WeightView& w, size_t row, size_t first, size_t count, Decoded& to,
                     size_t r) {
    const size_t begin = row * w.cols + first;
    for (size_t i = 0; i < count; i += kOctetBlock) {
      Padding padding;
      const Block stored{w.data + (begin + i) / 2, w.scales + (begin + i) / kScaleGroup};
      const Block block = whole_block(stored, count - i, padding);
      decode_half(load_words(block.weights), to, i / kLanes, r, 0);
      decode_half(load_words(block.weights + 32), to, i / kLanes, r, 8);
      store_lanes(to.scales[i / kOctetBlock][r], decode_scales(block.scales));
    }
  }
};

}  // namespace

void matmul_mxfp4(const WeightView& w, Range rows, const PackedColumns& x, const ColumnsOut& y) {
  if (x.count != 1) return multiply_tiles<Vector, Mxfp4Rows>(w, rows, x, y);
  for_far_rows(
      rows, [&](const size_t(&numbers)[kStreams]) { multiply_rows(w, numbers, x.data, y.data); });
}

}  // namespace k3::kernels::avx2
