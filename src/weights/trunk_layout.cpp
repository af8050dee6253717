#include "weights/trunk_layout.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"
#include "k3/error.h"
#include "weights/trunk_manifest.h"

namespace k3::weights {
namespace {

// Runs of rows are cut in multiples of this where they are long enough, so that two threads and
// kernels that take several rows at once find even work.
constexpr uint64_t kRowGrain = 16;
// Lengths inside a chunk are 32-bit in the file.
constexpr uint64_t kChunkBytesMax = uint64_t{1} << 31;

uint64_t row_bytes(const TrunkTensor& tensor, DType dtype) {
  K3_CHECK(tensor.rows > 0 && tensor.cols > 0);
  if (tensor.cols > kChunkBytesMax / dtype_bytes(dtype)) {
    throw Error(ErrorKind::kCheckpoint,
                fmt::format("{}: a row of {} columns does not fit a chunk of a trunk file (at most "
                            "{} bytes)",
                            tensor.name, tensor.cols, kChunkBytesMax));
  }
  return tensor.cols * dtype_bytes(dtype);
}

/// Builds the layout chunk by chunk.
class Builder {
 public:
  void open_chunk() {
    ChunkRecord chunk{};
    chunk.segment_begin = static_cast<uint32_t>(layout_.segments.size());
    chunk.codec = static_cast<uint8_t>(Codec::kRaw);
    layout_.chunks.push_back(chunk);
    end_ = 0;
  }

  void add_rows(uint32_t tensor, uint64_t row_begin, uint64_t row_count, uint64_t bytes_per_row,
                const std::string& name) {
    const uint64_t offset = align_up(end_, kSegmentAlignment);
    end_ = offset + row_count * bytes_per_row;
    if (end_ > kChunkBytesMax) {
      throw Error(ErrorKind::kCheckpoint,
                  fmt::format("{}: the small tensors of its layer exceed {} bytes, the most that "
                              "one chunk of a trunk file holds",
                              name, kChunkBytesMax));
    }
    layout_.segments.push_back({tensor, static_cast<uint32_t>(row_begin),
                                static_cast<uint32_t>(row_count), static_cast<uint32_t>(offset)});
    ++layout_.chunks.back().segment_count;
    layout_.chunks.back().raw_bytes += row_count * bytes_per_row;
    layout_.chunks.back().stored_bytes = end_;
  }

  TrunkLayout take() { return std::move(layout_); }

 private:
  TrunkLayout layout_;
  uint64_t end_ = 0;  // of the last segment, in the open chunk
};

/// Rows of every chunk of a matrix but the last: even shares, not full chunks and a small rest.
uint64_t rows_per_chunk(uint64_t rows, uint64_t bytes_per_row, uint64_t chunk_bytes) {
  const uint64_t most = std::max<uint64_t>(1, chunk_bytes / bytes_per_row);
  const uint64_t chunks = (rows + most - 1) / most;
  const uint64_t even = (rows + chunks - 1) / chunks;
  const uint64_t grained = align_up(even, kRowGrain);
  return grained <= most ? grained : even;
}

}  // namespace

TrunkLayout lay_out_trunk(const std::vector<TrunkTensor>& tensors, const std::vector<DType>& dtypes,
                          uint64_t chunk_bytes) {
  K3_CHECK(tensors.size() == dtypes.size());
  Builder builder;
  uint32_t open_group = 0;
  for (uint32_t i = 0; i < tensors.size(); ++i) {
    const TrunkTensor& tensor = tensors[i];
    const uint64_t bytes_per_row = row_bytes(tensor, dtypes[i]);
    K3_CHECK(tensor.rows <= UINT32_MAX);
    if (tensor.group != 0) {
      if (tensor.group != open_group) builder.open_chunk();
      builder.add_rows(i, 0, tensor.rows, bytes_per_row, tensor.name);
    } else {
      const uint64_t step = rows_per_chunk(tensor.rows, bytes_per_row, chunk_bytes);
      for (uint64_t row = 0; row < tensor.rows; row += step) {
        builder.open_chunk();
        builder.add_rows(i, row, std::min(step, tensor.rows - row), bytes_per_row, tensor.name);
      }
    }
    open_group = tensor.group;
  }
  return builder.take();
}

}  // namespace k3::weights
