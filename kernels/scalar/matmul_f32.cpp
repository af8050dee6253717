#include "kernels/formats.h"
#include "kernels/scalar/functions.h"
#include "kernels/scalar/products.h"

namespace k3::kernels::scalar {

void matmul_f32(const WeightView& w, Range rows, const PackedColumns& x, const ColumnsOut& y) {
  for_each_product(rows, x, y, [&w](size_t r, const float* packed) {
    const std::byte* row = w.data + r * w.cols * 4;
    return dot_pairs(
        w.cols, [row](size_t i) { return f32_value(row + 4 * i); },
        [packed](size_t i) { return packed[pairs_position(i)]; });
  });
}

}  // namespace k3::kernels::scalar
