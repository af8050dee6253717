#include "weights/trunk_manifest.h"

#include <cstring>

#include "base/check.h"
#include "base/hash.h"
#include "weights/dtype.h"

namespace k3::weights {
namespace {

template <typename Record>
void put(std::vector<std::byte>& bytes, uint64_t offset, const std::vector<Record>& records) {
  if (!records.empty()) {
    std::memcpy(bytes.data() + offset, records.data(), records.size() * sizeof(Record));
  }
}

}  // namespace

bool countable(const ManifestHeader& header) {
  constexpr uint32_t kExpertCountMax = 1u << 24;
  return header.expert_layer_count <= kExpertCountMax &&
         header.experts_per_layer <= kExpertCountMax && header.embedding_rows <= UINT32_MAX;
}

ManifestOffsets manifest_offsets(const ManifestHeader& header) {
  const uint64_t experts = uint64_t{header.expert_layer_count} * header.experts_per_layer;
  ManifestOffsets at{};
  at.shards = align_up(sizeof(ManifestHeader), 8);
  at.tensors = at.shards + uint64_t{header.shard_count} * sizeof(ShardRecord);
  at.chunks = at.tensors + uint64_t{header.tensor_count} * sizeof(TensorRecord);
  at.segments = at.chunks + uint64_t{header.chunk_count} * sizeof(ChunkRecord);
  at.experts = at.segments + uint64_t{header.segment_count} * sizeof(SegmentRecord);
  at.expert_checksums = at.experts + experts * sizeof(ExpertRecord);
  at.embedding_checksums =
      at.expert_checksums + uint64_t{header.expert_checksum_count} * sizeof(uint64_t);
  at.strings = at.embedding_checksums + header.embedding_rows * sizeof(uint64_t);
  at.end = at.strings + header.string_bytes;
  return at;
}
static_assert(sizeof(ShardRecord) % 8 == 0 && sizeof(TensorRecord) % 8 == 0 &&
              sizeof(ChunkRecord) % 8 == 0 && sizeof(SegmentRecord) % 8 == 0 &&
              sizeof(ExpertRecord) % 8 == 0);  // so that every array starts at a multiple of 8

uint64_t embedding_row_bytes(const ManifestHeader& header) {
  return header.embedding_cols * dtype_bytes(static_cast<DType>(header.embedding_dtype));
}

uint32_t Manifest::add_string(std::string_view text) {
  const auto offset = static_cast<uint32_t>(strings.size());
  strings += text;
  return offset;
}

void count_records(Manifest& manifest) {
  ManifestHeader& header = manifest.header;
  header.shard_count = static_cast<uint32_t>(manifest.shards.size());
  header.tensor_count = static_cast<uint32_t>(manifest.tensors.size());
  header.chunk_count = static_cast<uint32_t>(manifest.chunks.size());
  header.segment_count = static_cast<uint32_t>(manifest.segments.size());
  header.expert_checksum_count = static_cast<uint32_t>(manifest.expert_checksums.size());
  header.string_bytes = static_cast<uint32_t>(manifest.strings.size());
  K3_CHECK(manifest.experts.size() ==
           uint64_t{header.expert_layer_count} * header.experts_per_layer);
  K3_CHECK(manifest.embedding_checksums.size() == header.embedding_rows);
}

std::vector<std::byte> serialize(const Manifest& manifest) {
  const ManifestOffsets at = manifest_offsets(manifest.header);
  std::vector<std::byte> bytes(at.end);
  std::memcpy(bytes.data(), &manifest.header, sizeof(ManifestHeader));
  put(bytes, at.shards, manifest.shards);
  put(bytes, at.tensors, manifest.tensors);
  put(bytes, at.chunks, manifest.chunks);
  put(bytes, at.segments, manifest.segments);
  put(bytes, at.experts, manifest.experts);
  put(bytes, at.expert_checksums, manifest.expert_checksums);
  put(bytes, at.embedding_checksums, manifest.embedding_checksums);
  if (!manifest.strings.empty()) {
    std::memcpy(bytes.data() + at.strings, manifest.strings.data(), manifest.strings.size());
  }
  return bytes;
}

FileHeader make_file_header(uint64_t manifest_offset, std::span<const std::byte> manifest) {
  FileHeader header{};
  std::memcpy(header.magic, kTrunkMagic, sizeof(kTrunkMagic));
  header.version = kTrunkVersion;
  header.header_bytes = sizeof(FileHeader);
  header.manifest_offset = manifest_offset;
  header.manifest_bytes = manifest.size();
  header.manifest_checksum = checksum(manifest);
  header.header_checksum = file_header_checksum(header);
  return header;
}

uint64_t file_header_checksum(const FileHeader& header) {
  return checksum(
      std::as_bytes(std::span(&header, 1)).first(offsetof(FileHeader, header_checksum)));
}

}  // namespace k3::weights
