#include "kernels/avx512/bf16.h"
#include "kernels/avx512/functions.h"
#include "kernels/avx512/vector.h"
#include "kernels/far_rows.h"
#include "kernels/tiles.h"

namespace k3::kernels::avx512 {
namespace {

struct Bf16Rows : PlainRows {
  static constexpr size_t kBits = 16;
  template <class V>
  using Steps = PairSteps<V>;

  static void decode(const WeightView& w, size_t row, size_t first, size_t count,
                     DecodedRows<Vector::kTileRows>& to, size_t r) {
    const std::byte* from = w.data + (row * w.cols + first) * 2;
    for (size_t i = 0; i < count; i += kPairGroup) {
      const __m512i words = load_words(from + 2 * i, count - i);
      _mm512_store_ps(to.weights[i / kLanes][r], even_weights(words));
      _mm512_store_ps(to.weights[i / kLanes + 1][r], odd_weights(words));
    }
  }
};

void multiply_rows(const WeightView& w, const size_t (&numbers)[kStreams], const float* x,
                   float* y) {
  const std::byte* rows[kStreams];
  __m512 acc[kStreams];
  for (size_t s = 0; s < kStreams; ++s) {
    rows[s] = w.data + numbers[s] * w.cols * 2;
    acc[s] = _mm512_setzero_ps();
  }
  size_t i = 0;
  for (; i + kPairGroup <= w.cols; i += kPairGroup) {
    for (size_t s = 0; s < kStreams; ++s) {
      __builtin_prefetch(rows[s] + 2 * i + kPrefetchBytes);
      acc[s] = add_group(_mm512_loadu_si512(rows[s] + 2 * i), x + i, acc[s]);
    }
  }
  for (size_t s = 0; i < w.cols && s < kStreams; ++s) {
    acc[s] = add_group(load_words(rows[s] + 2 * i, w.cols - i), x + i, acc[s]);
  }
  for (size_t s = 0; s < kStreams; ++s) y[numbers[s]] = reduce(acc[s]);
}

}  // namespace

void matmul_bf16(const WeightView& w, Range rows, const PackedColumns& x, const ColumnsOut& y) {
  if (x.count != 1) return multiply_tiles<Vector, Bf16Rows>(w, rows, x, y);
  for_far_rows(
      rows, [&](const size_t(&numbers)[kStreams]) { multiply_rows(w, numbers, x.data, y.data); });
}

}  // namespace k3::kernels::avx512
