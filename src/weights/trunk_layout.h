// What goes into a trunk file, as data handed down by the model: the order of use, and how tensors
// are cut into chunks. Knows nothing of what the tensors mean.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "weights/dtype.h"
#include "weights/trunk_format.h"

namespace k3::weights {

/// Rows taken from a stored tensor: row i of the trunk tensor is stored row
/// (i / take) * period + begin + i % take. The identity is {take = period = rows, begin = 0}.
struct RowPattern {
  uint64_t take;
  uint64_t period;
  uint64_t begin;
};

/// One tensor of the trunk. Two may share a source (kv_b_proj as W_UK and as W_UV).
struct TrunkTensor {
  std::string name;  // in the checkpoint
  uint16_t layer;    // kNoLayer for the output tensors
  uint16_t role;     // opaque here
  uint64_t rows;     // in the trunk
  uint64_t cols;
  uint64_t source_rows;  // the checkpoint tensor is [source_rows, cols], or longer (`at_least`)
  bool at_least;         // 1-D tensor that may be longer than needed; the first ones count (A_log)
  RowPattern pattern;
  uint32_t group;  // tensors with equal consecutive non-zero group share one chunk; 0: alone
};

/// Every row of every tensor once, in order. Chunks are at most chunk_bytes (one row at least) and
/// hold even shares of a matrix; group chunks are never cut. `dtypes[i]` is the type of tensors[i]
/// in the checkpoint. Error(kCheckpoint) when a row or a group is beyond what a chunk can hold.
struct TrunkLayout {
  std::vector<ChunkRecord> chunks;  // as stored raw: codec and sizes; offset and checksum still 0
  std::vector<SegmentRecord> segments;
};
inline constexpr uint64_t kChunkBytes = 4u << 20;
TrunkLayout lay_out_trunk(const std::vector<TrunkTensor>& tensors, const std::vector<DType>& dtypes,
                          uint64_t chunk_bytes = kChunkBytes);

}  // namespace k3::weights
