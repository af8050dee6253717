// The dot product of a weight row and a packed column, as the numeric contract defines it, and the
// loop over rows and columns that every product shares.
#pragma once

#include <cmath>

#include "kernels/lanes.h"
#include "kernels/table.h"

namespace k3::kernels::scalar {

/// dot(weights, inputs) in the order of pairs. weight(i) and input(i) give element i < n; what pads
/// the last group is zero and is computed: fma(0, 0, -0) is +0.
template <typename Weight, typename Input>
static float dot_pairs(size_t n, Weight weight, Input input) {
  float lanes[kLanes] = {};
  for (size_t group = 0; group < n; group += kPairGroup) {
    for (size_t j = 0; j < kLanes; ++j) {
      for (size_t i = group + 2 * j; i < group + 2 * j + 2; ++i) {
        lanes[j] = i < n ? std::fma(weight(i), input(i), lanes[j]) : std::fma(0.0F, 0.0F, lanes[j]);
      }
    }
  }
  return reduce_lanes(lanes);
}

/// Where pack_pairs puts element i.
static inline size_t pairs_position(size_t i) {
  return i / kPairGroup * kPairGroup + i % 2 * kLanes + i % kPairGroup / 2;
}

/// Where pack_octets puts element i.
static inline size_t octets_position(size_t i) {
  return i / kOctetBlock * kOctetBlock + i % kOctet * kLanes + i % kOctetBlock / kOctet;
}

/// y[r] of every column = row_dot(r, packed column).
template <typename RowDot>
static void for_each_product(Range rows, const PackedColumns& x, const ColumnsOut& y,
                             RowDot row_dot) {
  for (size_t column = 0; column < x.count; ++column) {
    const float* packed = x.data + column * x.stride;
    float* out = y.data + column * y.stride;
    for (size_t r = rows.begin; r < rows.end; ++r) out[r] = row_dot(r, packed);
  }
}

}  // namespace k3::kernels::scalar
