// The manifest of a trunk file as arrays, and its place in bytes: one definition for the writer and
// the reader.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "weights/trunk_format.h"

namespace k3::weights {

/// Where each array starts in the manifest, and where the manifest ends.
struct ManifestOffsets {
  uint64_t shards;
  uint64_t tensors;
  uint64_t chunks;
  uint64_t segments;
  uint64_t experts;
  uint64_t expert_checksums;
  uint64_t embedding_checksums;
  uint64_t strings;
  uint64_t end;
};
/// Whether the counts are small enough for manifest_offsets() not to overflow.
bool countable(const ManifestHeader& header);
/// The header must be countable.
ManifestOffsets manifest_offsets(const ManifestHeader& header);
/// Bytes of one row of the embedding table.
uint64_t embedding_row_bytes(const ManifestHeader& header);

struct Manifest {
  ManifestHeader header{};  // counts are filled in by serialize()
  std::vector<ShardRecord> shards;
  std::vector<TensorRecord> tensors;
  std::vector<ChunkRecord> chunks;
  std::vector<SegmentRecord> segments;
  std::vector<ExpertRecord> experts;
  std::vector<uint64_t> expert_checksums;
  std::vector<uint64_t> embedding_checksums;
  std::string strings;

  /// Appends a name to the strings and returns its offset.
  uint32_t add_string(std::string_view text);
};

/// Fills in the counts.
void count_records(Manifest& manifest);
/// The bytes of the file; the counts must be right.
std::vector<std::byte> serialize(const Manifest& manifest);

/// The header of a file with this manifest at this offset.
FileHeader make_file_header(uint64_t manifest_offset, std::span<const std::byte> manifest);
uint64_t file_header_checksum(const FileHeader& header);

constexpr uint64_t align_up(uint64_t value, uint64_t alignment) {
  return (value + alignment - 1) / alignment * alignment;
}

}  // namespace k3::weights
