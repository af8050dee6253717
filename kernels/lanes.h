// Dot products over features: 16 lanes and one tree (docs/numeric-contract.md). The number of lanes
// belongs to the contract and not to a CPU, which is why every instruction set gives the same bits.
//
// Pairs (bf16 and fp32 weights): groups of 32 elements; lane j owns elements 2j and 2j+1.
// Octets (MXFP4 weights): blocks of 128 elements; lane j owns elements 8j .. 8j+7, under one scale.
// A packed vector holds "planes" of 16 floats: plane k of a group has element per_lane*j + k of
// lane j at j.
#pragma once

#include <cstddef>

namespace k3::kernels {

constexpr size_t kLanes = 16;
constexpr size_t kPairGroup = 2 * kLanes;
constexpr size_t kOctet = 8;
constexpr size_t kOctetBlock = kOctet * kLanes;
/// Consecutive weights of a row that share one E8M0 scale.
constexpr size_t kScaleGroup = 32;
constexpr size_t kLanesPerScale = kScaleGroup / kOctet;

/// The sum of 16 lanes: 16 -> 8 (j with j+8), 8 -> 4, 4 -> 2, 2 -> 1.
static inline float reduce_lanes(float (&lanes)[kLanes]) {
  for (size_t half = kLanes / 2; half > 0; half /= 2) {
    for (size_t j = 0; j < half; ++j) lanes[j] += lanes[j + half];
  }
  return lanes[0];
}

}  // namespace k3::kernels
