// An opened trunk file: the manifest, checked, in memory (a few MB at the full shape).
#pragma once

#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "k3/units.h"
#include "weights/checkpoint_index.h"
#include "weights/trunk_format.h"

namespace k3::weights {

struct Manifest;

class TrunkFile {
 public:
  /// Reads header and manifest, checks magic, version, checksums, and that every record lies inside
  /// the file and refers to what exists. Error(kCheckpoint) naming what differs.
  static TrunkFile open(const std::filesystem::path& path);
  /// The same from a manifest in memory, of chunks that end before `end`: for weights that are made
  /// up while they are read. `path` is where reads will go.
  static TrunkFile in_memory(const std::filesystem::path& path, const Manifest& manifest,
                             uint64_t end);

  const std::filesystem::path& path() const { return path_; }
  const ManifestHeader& header() const { return *header_; }
  std::span<const ShardRecord> shards() const { return shards_; }
  std::span<const TensorRecord> tensors() const { return tensors_; }
  std::span<const ChunkRecord> chunks() const { return chunks_; }
  std::span<const SegmentRecord> segments() const { return segments_; }
  std::span<const SegmentRecord> segments(const ChunkRecord& chunk) const {
    return segments_.subspan(chunk.segment_begin, chunk.segment_count);
  }
  const ExpertRecord& expert(size_t layer_rank, uint32_t expert) const {
    return experts_[layer_rank * header_->experts_per_layer + expert];
  }
  /// Checksum of an expert's bytes (its six parts in ExpertPart order); null if none were recorded.
  const uint64_t* expert_checksum(size_t layer_rank, uint32_t expert) const;
  /// Of each row of the embedding table.
  std::span<const uint64_t> embedding_checksums() const { return embedding_checksums_; }
  std::string_view name(const ShardRecord& shard) const;
  std::string_view name(const TensorRecord& tensor) const;
  /// What is in a chunk, for messages: "model.layers.3.self_attn.q_proj.weight rows 0..291".
  std::string describe(const ChunkRecord& chunk) const;

  /// Bytes of the whole file, of all chunks as stored (without padding) and as in the checkpoint.
  Bytes file_bytes() const { return file_bytes_; }
  Bytes stored_bytes() const;
  Bytes raw_bytes() const;
  /// Heap held by the manifest, for the plan.
  Bytes manifest_bytes() const { return Bytes{manifest_.size()}; }

  /// Compares every shard's name, size and sampled blocks (and its header, when `headers`) with the
  /// files in `directory`. Error(kCheckpoint) listing all that is missing or differs.
  void check_shards(const std::filesystem::path& directory, bool headers) const;

 private:
  /// Points the spans into manifest_; Error(kCheckpoint) when the counts do not fit its size.
  void bind_records();

  std::filesystem::path path_;
  Bytes file_bytes_;
  std::vector<std::byte> manifest_;
  const ManifestHeader* header_ = nullptr;
  std::span<const ShardRecord> shards_;
  std::span<const TensorRecord> tensors_;
  std::span<const ChunkRecord> chunks_;
  std::span<const SegmentRecord> segments_;
  std::span<const ExpertRecord> experts_;
  std::span<const uint64_t> expert_checksums_;
  std::span<const uint64_t> embedding_checksums_;
  std::string_view strings_;
};

}  // namespace k3::weights
