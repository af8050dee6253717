#include "kernels/avx2/functions.h"
#include "kernels/avx2/vector.h"
#include "kernels/tiles.h"

namespace k3::kernels::avx2 {
namespace {

struct F32Rows : PlainRows {
  static constexpr size_t kBits = 32;
  template <class V>
  using Steps = PairSteps<V>;

  static void decode(const WeightView& w, size_t row, size_t first, size_t count,
                     DecodedRows<Vector::kTileRows>& to, size_t r) {
    const std::byte* from = w.data + (row * w.cols + first) * 4;
    for (size_t i = 0; i < count; i += kPairGroup) {
      std::byte block[kPairGroup * 4];
      const std::byte* group = whole_block(from + 4 * i, (count - i) * 4, block);
      const Lanes low = load_lanes(reinterpret_cast<const float*>(group));
      const Lanes high = load_lanes(reinterpret_cast<const float*>(group) + kLanes);
      store_lanes(to.weights[i / kLanes][r],
                  {even_elements(low.low, low.high), even_elements(high.low, high.high)});
      store_lanes(to.weights[i / kLanes + 1][r],
                  {odd_elements(low.low, low.high), odd_elements(high.low, high.high)});
    }
  }
};

}  // namespace

// Weights of fp32 are rows of the latent cache seen by many heads; one column takes the same way.
void matmul_f32(const WeightView& w, Range rows, const PackedColumns& x, const ColumnsOut& y) {
  multiply_tiles<Vector, F32Rows>(w, rows, x, y);
}

}  // namespace k3::kernels::avx2
