#include "kernels/avx512/functions.h"
#include "kernels/avx512/vector.h"
#include "kernels/tiles.h"

namespace k3::kernels::avx512 {
namespace {

struct F32Rows : PlainRows {
  static constexpr size_t kBits = 32;
  template <class V>
  using Steps = PairSteps<V>;

  static void decode(const WeightView& w, size_t row, size_t first, size_t count,
                     DecodedRows<Vector::kTileRows>& to, size_t r) {
    const std::byte* from = w.data + (row * w.cols + first) * 4;
    for (size_t i = 0; i < count; i += kPairGroup) {
      const size_t left = count - i;
      const __m512 low = _mm512_maskz_loadu_ps(first_lanes(left), from + 4 * i);
      const __m512 high = _mm512_maskz_loadu_ps(first_lanes(left > kLanes ? left - kLanes : 0),
                                                from + 4 * (i + kLanes));
      _mm512_store_ps(to.weights[i / kLanes][r], even_elements(low, high));
      _mm512_store_ps(to.weights[i / kLanes + 1][r], odd_elements(low, high));
    }
  }
};

}  // namespace

// Weights of fp32 are rows of the latent cache seen by many heads; one column takes the same way.
void matmul_f32(const WeightView& w, Range rows, const PackedColumns& x, const ColumnsOut& y) {
  multiply_tiles<Vector, F32Rows>(w, rows, x, y);
}

}  // namespace k3::kernels::avx512
