#include "kernels/avx2/functions.h"
#include "kernels/avx2/vector.h"

namespace k3::kernels::avx2 {
namespace {

void pack_pair_group(const float* x, float* out) {
  const Lanes low = load_lanes(x);
  const Lanes high = load_lanes(x + kLanes);
  store_lanes(out, {even_elements(low.low, low.high), even_elements(high.low, high.high)});
  store_lanes(out + kLanes, {odd_elements(low.low, low.high), odd_elements(high.low, high.high)});
}

// Elements 8j .. 8j+7 of eight lanes become element j of eight planes: a transposition, by pairs of
// rows, then fours, then eights.
void pack_eight_lanes(const float* x, float* out) {
  __m256 pairs[8];
  for (size_t i = 0; i < 4; ++i) {
    const __m256 a = _mm256_loadu_ps(x + 16 * i);
    const __m256 b = _mm256_loadu_ps(x + 16 * i + 8);
    pairs[2 * i] = _mm256_unpacklo_ps(a, b);      // elements 0 and 1 | 4 and 5 of both rows
    pairs[2 * i + 1] = _mm256_unpackhi_ps(a, b);  // 2 and 3 | 6 and 7
  }
  for (size_t k = 0; k < 4; ++k) {
    const size_t which = k / 2;
    const auto four = [&pairs, which, k](size_t i) {
      return k % 2 == 0 ? _mm256_shuffle_ps(pairs[i + which], pairs[i + which + 2], 0x44)
                        : _mm256_shuffle_ps(pairs[i + which], pairs[i + which + 2], 0xEE);
    };
    const __m256 low = four(0);   // element k | k + 4 of rows 0..3
    const __m256 high = four(4);  // of rows 4..7
    _mm256_storeu_ps(out + k * kLanes, _mm256_permute2f128_ps(low, high, 0x20));
    _mm256_storeu_ps(out + (k + 4) * kLanes, _mm256_permute2f128_ps(low, high, 0x31));
  }
}

void pack_octet_block(const float* x, float* out) {
  pack_eight_lanes(x, out);
  pack_eight_lanes(x + kOctetBlock / 2, out + 8);
}

template <size_t kGroup, class PackGroup>
void pack_groups(const float* x, size_t n, float* out, PackGroup pack_group) {
  size_t i = 0;
  for (; i + kGroup <= n; i += kGroup) pack_group(x + i, out + i);
  if (i == n) return;
  float rest[kGroup] = {};
  std::memcpy(rest, x + i, (n - i) * sizeof(float));
  pack_group(rest, out + i);
}

}  // namespace

void pack_pairs(const float* x, size_t n, float* out) {
  pack_groups<kPairGroup>(x, n, out, pack_pair_group);
}

void pack_octets(const float* x, size_t n, float* out) {
  pack_groups<kOctetBlock>(x, n, out, pack_octet_block);
}

}  // namespace k3::kernels::avx2
