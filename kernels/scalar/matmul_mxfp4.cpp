#include "kernels/formats.h"
#include "kernels/scalar/functions.h"
#include "kernels/scalar/products.h"

namespace k3::kernels::scalar {
namespace {

// Eight weights under one scale times eight inputs, then the scale, once.
float add_octet(const std::byte* weights, float scale, const float* packed, size_t first,
                float sum) {
  float p = e2m1_value(weights, first) * packed[octets_position(first)];
  for (size_t i = first + 1; i < first + kOctet; ++i) {
    p = std::fma(e2m1_value(weights, i), packed[octets_position(i)], p);
  }
  return std::fma(scale, p, sum);
}

float dot_octets(const std::byte* weights, const std::byte* scales, size_t n, const float* packed) {
  float lanes[kLanes] = {};
  for (size_t first = 0; first < n; first += kOctet) {
    float& lane = lanes[first / kOctet % kLanes];
    lane = add_octet(weights, e8m0_value(scales[first / kScaleGroup]), packed, first, lane);
  }
  // The lanes that the last block does not fill: zero weights and inputs under the scale 1.
  for (size_t j = n % kOctetBlock / kOctet; j > 0 && j < kLanes; ++j) {
    lanes[j] = std::fma(1.0F, 0.0F, lanes[j]);
  }
  return reduce_lanes(lanes);
}

}  // namespace

void matmul_mxfp4(const WeightView& w, Range rows, const PackedColumns& x, const ColumnsOut& y) {
  for_each_product(rows, x, y, [&w](size_t r, const float* packed) {
    return dot_octets(w.data + r * w.cols / 2, w.scales + r * w.cols / kScaleGroup, w.cols, packed);
  });
}

}  // namespace k3::kernels::scalar
