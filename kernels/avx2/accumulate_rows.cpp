#include "kernels/accumulate_tiles.h"

#include "kernels/avx2/functions.h"
#include "kernels/avx2/vector.h"

namespace k3::kernels::avx2 {

void accumulate_rows(const WeightView& w, Range rows, const RowBatch& batch) {
  accumulate<Vector>(w, rows, batch);
}

}  // namespace k3::kernels::avx2
