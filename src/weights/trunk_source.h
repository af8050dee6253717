// The trunk as it lies in the shards: chunks read row by row from a checkpoint, holes skipped, and
// checked for weights that are not finite.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string_view>
#include <vector>

#include "io/direct_file.h"
#include "weights/checkpoint_index.h"
#include "weights/trunk_layout.h"

namespace k3::weights {

/// Reads [offset, offset + out.size()); what lies in holes is not read but set to zero. Returns
/// false when all of it is one hole. What was read leaves the page cache. Error(kRead) as
/// io::read_exactly, with `what` is being read.
bool read_keeping_holes(const io::DirectFile& file, const std::filesystem::path& path,
                        uint64_t offset, std::span<std::byte> out, std::string_view what);

/// Bytes of [offset, offset + bytes) that are not in holes, in whole blocks.
uint64_t data_bytes(const io::DirectFile& file, uint64_t offset, uint64_t bytes);

/// Which rows of the checkpoint tensor follow each other: rows [row, row + count) of the trunk
/// tensor, cut where its pattern jumps.
struct RowRun {
  uint64_t trunk_row;
  uint64_t source_row;
  uint64_t count;
};
std::vector<RowRun> row_runs(const RowPattern& pattern, uint64_t row, uint64_t count);

/// Keeps the shard that it read last open. One per thread.
class TrunkSource {
 public:
  /// tensors[i] is index.tensor(i). All three outlive the source.
  TrunkSource(const std::filesystem::path& directory, const CheckpointIndex& index,
              const std::vector<TrunkTensor>& tensors)
      : directory_(directory), index_(index), tensors_(tensors) {}

  /// Fills `out` (chunk.stored_bytes of the layout, gaps zero) from the shards. Returns false when
  /// every row lies in a hole.
  bool read_chunk(std::span<const SegmentRecord> segments, std::span<std::byte> out);

  /// One part of an expert, or anything else of a shard; `what` is for messages.
  bool read(uint32_t shard, uint64_t offset, std::span<std::byte> out, std::string_view what);

  /// Error(kCheckpoint) naming tensor, row and column of the first weight that is not finite.
  void check_finite(std::span<const SegmentRecord> segments,
                    std::span<const std::byte> chunk) const;

  const io::DirectFile& shard(uint32_t number);

 private:
  std::filesystem::path shard_path(uint32_t number) const;
  uint64_t row_bytes(uint32_t tensor) const;

  const std::filesystem::path& directory_;
  const CheckpointIndex& index_;
  const std::vector<TrunkTensor>& tensors_;
  io::DirectFile open_;
  uint32_t open_shard_ = UINT32_MAX;
};

}  // namespace k3::weights
