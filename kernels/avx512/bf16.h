// 32 stored bf16 weights in one register of words.
#pragma once

#include <immintrin.h>

#include "kernels/lanes.h"

namespace k3::kernels::avx512 {
namespace {

// The even ones are the lower halves of 16 words of 32 bits, the odd ones the upper.
inline __m512 even_weights(__m512i words) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(words, 16));
}

inline __m512 odd_weights(__m512i words) {
  return _mm512_castsi512_ps(_mm512_and_si512(words, _mm512_set1_epi32(-0x10000)));
}

/// With `left` weights before the end of the row; the missing ones are zero.
inline __m512i load_words(const std::byte* from, size_t left) {
  if (left >= kPairGroup) return _mm512_loadu_si512(from);
  return _mm512_maskz_loadu_epi16((1U << left) - 1, from);
}

/// A sum goes on by a group of weights; x has it as two planes.
inline __m512 add_group(__m512i words, const float* x, __m512 acc) {
  acc = _mm512_fmadd_ps(even_weights(words), _mm512_loadu_ps(x), acc);
  return _mm512_fmadd_ps(odd_weights(words), _mm512_loadu_ps(x + kLanes), acc);
}

}  // namespace
}  // namespace k3::kernels::avx512
