#include "kernels/accumulate_tiles.h"

#include "kernels/avx2/functions.h"
#include "kernels/avx2/vector.h"
#include "kernels/packed.h"

namespace k3::kernels::avx2 {

void accumulate_rows(const WeightView& w, Range rows, const RowBatch& batch) {
  if (is_packed(w.encoding)) return accumulate_strips(w, rows, batch, unpack, accumulate_rows);
  accumulate<Vector>(w, rows, batch);
}

}  // namespace k3::kernels::avx2
