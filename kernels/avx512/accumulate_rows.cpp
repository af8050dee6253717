#include "kernels/accumulate_tiles.h"

#include "kernels/avx512/functions.h"
#include "kernels/avx512/vector.h"

namespace k3::kernels::avx512 {

void accumulate_rows(const WeightView& w, Range rows, const RowBatch& batch) {
  accumulate<Vector>(w, rows, batch);
}

}  // namespace k3::kernels::avx512
