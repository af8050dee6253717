#include <cmath>

#include "kernels/formats.h"
#include "kernels/packed.h"
#include "kernels/scalar/functions.h"

namespace k3::kernels::scalar {
namespace {

float weight_at(const WeightView& w, size_t index) {
  return w.encoding == Encoding::kBf16 ? bf16_value(w.data + 2 * index)
                                       : f32_value(w.data + 4 * index);
}

}  // namespace

void accumulate_rows(const WeightView& w, Range rows, const RowBatch& batch) {
  if (is_packed(w.encoding)) return accumulate_strips(w, rows, batch, unpack, accumulate_rows);
  for (size_t b = 0; b < batch.count; ++b) {
    float* y = batch.y + b * batch.y_stride;
    for (size_t i = rows.begin; i < rows.end; ++i) {
      const float x = batch.x[b * batch.x_stride + i - rows.begin];
      for (size_t c = 0; c < w.cols; ++c) y[c] = std::fma(x, weight_at(w, i * w.cols + c), y[c]);
    }
  }
}

}  // namespace k3::kernels::scalar
