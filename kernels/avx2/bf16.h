// 32 stored bf16 weights as the 16 even and the 16 odd ones.
#pragma once

#include "kernels/avx2/vector.h"

namespace k3::kernels::avx2 {
namespace {

// 32 stored weights: the even ones are the lower halves of 16 words, the odd ones the upper.
struct Group {
  Lanes even;
  Lanes odd;
};

inline __m256 lower_halves(__m256i words) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(words, 16));
}

inline __m256 upper_halves(__m256i words) {
  return _mm256_castsi256_ps(_mm256_and_si256(words, _mm256_set1_epi32(-0x10000)));
}

inline Group load_group(const std::byte* from) {
  const __m256i low = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
  const __m256i high = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + 32));
  return {{lower_halves(low), lower_halves(high)}, {upper_halves(low), upper_halves(high)}};
}

// The same with `left` weights before the end of the row.
inline Group load_group(const std::byte* from, size_t left) {
  std::byte block[64];
  return load_group(whole_block(from, left * 2, block));
}

}  // namespace
}  // namespace k3::kernels::avx2
