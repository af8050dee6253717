#include "kernels/avx2/bf16.h"
#include "kernels/avx2/functions.h"
#include "kernels/avx2/vector.h"
#include "kernels/far_rows.h"
#include "kernels/tiles.h"

namespace k3::kernels::avx2 {
namespace {

struct Bf16Rows : PlainRows {
  static constexpr size_t kBits = 16;
  template <class V>
  using Steps = PairSteps<V>;

  static void decode(const WeightView& w, size_t row, size_t first, size_t count,
                     DecodedRows<Vector::kTileRows>& to, size_t r) {
    const std::byte* from = w.data + (row * w.cols + first) * 2;
    for (size_t i = 0; i < count; i += kPairGroup) {
      const Group group = load_group(from + 2 * i, count - i);
      store_lanes(to.weights[i / kLanes][r], group.even);
      store_lanes(to.weights[i / kLanes + 1][r], group.odd);
    }
  }
};

inline Lanes add_group(const Group& group, const float* x, const Lanes& acc) {
  return fma(group.odd, load_lanes(x + kLanes), fma(group.even, load_lanes(x), acc));
}

void multiply_rows(const WeightView& w, const size_t (&numbers)[kStreams], const float* x,
                   float* y) {
  const std::byte* rows[kStreams];
  Lanes acc[kStreams];
  for (size_t s = 0; s < kStreams; ++s) {
    rows[s] = w.data + numbers[s] * w.cols * 2;
    acc[s] = zero_lanes();
  }
  size_t i = 0;
  for (; i + kPairGroup <= w.cols; i += kPairGroup) {
    for (size_t s = 0; s < kStreams; ++s) {
      __builtin_prefetch(rows[s] + 2 * i + kPrefetchBytes);
      acc[s] = add_group(load_group(rows[s] + 2 * i), x + i, acc[s]);
    }
  }
  for (size_t s = 0; i < w.cols && s < kStreams; ++s) {
    acc[s] = add_group(load_group(rows[s] + 2 * i, w.cols - i), x + i, acc[s]);
  }
  for (size_t s = 0; s < kStreams; ++s) y[numbers[s]] = reduce(acc[s]);
}

}  // namespace

void matmul_bf16(const WeightView& w, Range rows, const PackedColumns& x, const ColumnsOut& y) {
  if (x.count != 1) return multiply_tiles<Vector, Bf16Rows>(w, rows, x, y);
  for_far_rows(
      rows, [&](const size_t(&numbers)[kStreams]) { multiply_rows(w, numbers, x.data, y.data); });
}

}  // namespace k3::kernels::avx2
