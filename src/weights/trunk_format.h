// The trunk file, version 2, as bytes (docs/trunk-format.md is the page).
//
//   [FileHeader, 4096 bytes] [chunk 0] [chunk 1] ... [manifest]
//
// Chunks start at multiples of 4096, in the order in which a step uses them; the padding between
// them is zero. The manifest is an array of fixed-size records per kind, read with one read. All
// integers little-endian.
#pragma once

#include <cstdint>

namespace k3::weights {

inline constexpr char kTrunkMagic[8] = {'K', '3', 'T', 'R', 'U', 'N', 'K', '\n'};
inline constexpr uint32_t kTrunkVersion = 2;
inline constexpr uint32_t kTrunkAlignment = 4096;
inline constexpr uint32_t kSegmentAlignment = 64;

/// kPacked3 and kPacked4: a chunk of one bf16 matrix, lossless, exponents as codes of 3 or 4 bits
/// (kernels/packed.h has the bytes).
enum class Codec : uint8_t { kRaw = 0, kPacked3 = 1, kPacked4 = 2 };

/// At offset 0, the rest of the 4096 bytes zero.
struct FileHeader {
  char magic[8];
  uint32_t version;
  uint32_t header_bytes;  // sizeof(FileHeader)
  uint64_t manifest_offset;
  uint64_t manifest_bytes;
  uint64_t manifest_checksum;  // XXH3-64
  uint64_t header_checksum;    // XXH3-64 of the fields above
};
static_assert(sizeof(FileHeader) == 48);

/// The manifest starts with this; the arrays follow in the order of the counts, each starting at a
/// multiple of 8: shards, tensors, chunks, segments, experts, expert checksums, embedding checksums
/// (XXH3-64 of each row of the table), strings.
struct ManifestHeader {
  uint32_t shard_count;
  uint32_t tensor_count;
  uint32_t chunk_count;
  uint32_t segment_count;
  uint32_t expert_layer_count;  // experts are expert_layer_count * experts_per_layer records
  uint32_t experts_per_layer;
  uint32_t expert_checksum_count;  // 0, or one per expert
  uint32_t string_bytes;
  uint64_t config_fingerprint;    // model::Config::fingerprint()
  uint64_t expert_part_bytes[6];  // ExpertPart order
  uint32_t embedding_shard;
  uint32_t embedding_dtype;   // weights::DType
  uint64_t embedding_offset;  // of row 0 in the shard
  uint64_t embedding_rows;    // also the count of the embedding checksums
  uint64_t embedding_cols;
};
static_assert(sizeof(ManifestHeader) == 120);

/// One shard that the trunk was made from.
struct ShardRecord {
  uint32_t name_offset;  // into the strings
  uint32_t name_bytes;
  uint64_t bytes;
  uint64_t header_hash;  // XXH3-64 of the safetensors header
  uint64_t sample_hash;  // XXH3-64 of the sampled blocks (shard_identity.h)
};
static_assert(sizeof(ShardRecord) == 32);

/// A tensor of the trunk in the order of use; the reader knows it by its layer and role.
struct TensorRecord {
  uint16_t layer;  // kNoLayer for the output tensors
  uint16_t role;   // model::Role
  uint8_t dtype;   // DType: kBf16 or kF32
  uint8_t reserved[3];
  uint32_t name_offset;  // checkpoint name, for messages
  uint32_t name_bytes;
  uint64_t rows;
  uint64_t cols;
};
static_assert(sizeof(TensorRecord) == 32);
inline constexpr uint16_t kNoLayer = 0xffff;

/// What is read and used at once: one run of rows of one matrix, or several small tensors.
struct ChunkRecord {
  uint64_t offset;         // in the file, a multiple of kTrunkAlignment
  uint64_t stored_bytes;   // without the padding
  uint64_t raw_bytes;      // as in the checkpoint
  uint64_t checksum;       // XXH3-64 of the stored bytes
  uint32_t segment_begin;  // the segments of the chunk, [begin, begin + count)
  uint32_t segment_count;
  uint8_t codec;  // Codec
  uint8_t reserved[7];
};
static_assert(sizeof(ChunkRecord) == 48);

/// Rows of one tensor inside a chunk. For kRaw the rows start at offset bytes into the chunk, each
/// segment at a multiple of kSegmentAlignment, row-major, as in the checkpoint. A packed chunk has
/// one segment, at offset 0.
struct SegmentRecord {
  uint32_t tensor;
  uint32_t row_begin;
  uint32_t row_count;
  uint32_t offset;
};
static_assert(sizeof(SegmentRecord) == 16);

/// The six tensors of an expert (ExpertPart order), as offsets in one shard.
struct ExpertRecord {
  uint32_t shard;
  uint32_t reserved;
  uint64_t offset[6];
};
static_assert(sizeof(ExpertRecord) == 56);

}  // namespace k3::weights
