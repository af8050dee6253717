#include <cmath>

#include "kernels/scalar/functions.h"
#include "kernels/scalar/lanewise.h"
#include "kernels/transcendental.h"

namespace k3::kernels::scalar {

static float exp_of(float x) {
  return kernels::exp(Vec{x}).value;
}

/// The maximum of what was seen before and of the tile; + 0 makes a -0 a +0, so that its sign does
/// not depend on the order of comparisons.
static float new_maximum(const AttentionTile& tile, size_t head) {
  const float* dots = tile.dots + head * tile.dot_stride;
  float maximum = tile.maximum[head];
  for (size_t p = 0; p < tile.positions; ++p) {
    const float score = dots[p] * tile.scale;
    maximum = score > maximum ? score : maximum;
  }
  return maximum + 0.0F;
}

static void attend_head(const AttentionTile& tile, size_t head) {
  const float maximum = new_maximum(tile, head);
  const float rescale = exp_of(tile.maximum[head] - maximum);  // +0 in the first tile: exp(-inf)
  float* sums = tile.sums + head * tile.width;
  float total = tile.total[head] * rescale;
  for (size_t c = 0; c < tile.width; ++c) sums[c] = sums[c] * rescale;
  for (size_t p = 0; p < tile.positions; ++p) {
    const float e = exp_of(tile.dots[head * tile.dot_stride + p] * tile.scale - maximum);
    total = total + e;
    for (size_t c = 0; c < tile.width; ++c) {
      sums[c] = std::fma(e, tile.rows[p * tile.row_stride + c], sums[c]);
    }
  }
  tile.maximum[head] = maximum;
  tile.total[head] = total;
}

void attend_tile(const AttentionTile& tile) {
  for (size_t head = 0; head < tile.heads; ++head) attend_head(tile, head);
}

}  // namespace k3::kernels::scalar
