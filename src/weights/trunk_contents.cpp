#include "weights/trunk_contents.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <span>
#include <string_view>

#include "base/check.h"
#include "base/hash.h"
#include "k3/error.h"
#include "weights/shard_identity.h"

namespace k3::weights {
namespace {

void add_shards(const PackInput& input, Manifest& manifest) {
  for (const ShardInfo& shard : input.index->shards()) {
    ShardRecord record{};
    record.name_offset = manifest.add_string(shard.name);
    record.name_bytes = static_cast<uint32_t>(shard.name.size());
    record.bytes = shard.bytes;
    record.header_hash = shard.header_hash;
    record.sample_hash = sample_hash(input.directory / shard.name, shard.bytes);
    manifest.shards.push_back(record);
  }
}

void check_size(const TrunkTensor& tensor, const TensorLocation& location) {
  const uint64_t expected = tensor.source_rows * tensor.cols * dtype_bytes(location.dtype);
  const bool fits = location.bytes == expected || (tensor.at_least && location.bytes > expected);
  const bool usable = location.dtype == DType::kBf16 || location.dtype == DType::kF32;
  if (fits && usable) return;
  throw Error(
      ErrorKind::kCheckpoint,
      fmt::format("tensor {} has {} bytes of {}, expected {} of BF16 or F32; the checkpoint "
                  "is not of this model",
                  tensor.name, location.bytes, dtype_name(location.dtype), expected));
}

std::vector<DType> add_tensors(const PackInput& input, Manifest& manifest) {
  std::vector<DType> dtypes;
  for (size_t i = 0; i < input.tensors->size(); ++i) {
    const TrunkTensor& tensor = (*input.tensors)[i];
    const TensorLocation& location = input.index->tensor(i);
    check_size(tensor, location);
    TensorRecord record{};
    record.layer = tensor.layer;
    record.role = tensor.role;
    record.dtype = static_cast<uint8_t>(location.dtype);
    record.name_offset = manifest.add_string(tensor.name);
    record.name_bytes = static_cast<uint32_t>(tensor.name.size());
    record.rows = tensor.rows;
    record.cols = tensor.cols;
    manifest.tensors.push_back(record);
    dtypes.push_back(location.dtype);
  }
  return dtypes;
}

void add_experts(const PackInput& input, Manifest& manifest) {
  manifest.header.expert_layer_count = input.expert_layer_count;
  manifest.header.experts_per_layer = input.experts_per_layer;
  std::copy_n(input.expert_part_bytes, kExpertParts, manifest.header.expert_part_bytes);
  manifest.experts.reserve(uint64_t{input.expert_layer_count} * input.experts_per_layer);
  for (size_t layer = 0; layer < input.expert_layer_count; ++layer) {
    for (uint32_t expert = 0; expert < input.experts_per_layer; ++expert) {
      const ExpertLocation& location = input.index->expert(layer, expert);
      ExpertRecord record{};
      record.shard = location.shard;
      std::copy_n(location.offset, kExpertParts, record.offset);
      manifest.experts.push_back(record);
    }
  }
}

void add_embedding(const PackInput& input, Manifest& manifest) {
  const TensorLocation& location = input.index->tensor(input.tensors->size());
  K3_CHECK(location.shape.size() == 2);
  manifest.header.embedding_shard = location.shard;
  manifest.header.embedding_dtype = static_cast<uint32_t>(location.dtype);
  manifest.header.embedding_offset = location.offset;
  manifest.header.embedding_rows = location.shape[0];
  manifest.header.embedding_cols = location.shape[1];
  manifest.embedding_checksums.resize(location.shape[0]);
}

template <typename Record>
bool same_records(std::span<const Record> a, const std::vector<Record>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size_bytes()) == 0;
}

std::string_view name_in(const Manifest& manifest, const ShardRecord& shard) {
  return std::string_view(manifest.strings).substr(shard.name_offset, shard.name_bytes);
}

/// The shards of the checkpoint that the trunk file does not know as they are.
std::string shards_that_differ(const TrunkFile& trunk, const Manifest& described) {
  std::string names;
  for (const ShardRecord& shard : described.shards) {
    const bool known =
        std::any_of(trunk.shards().begin(), trunk.shards().end(), [&](const ShardRecord& other) {
          return trunk.name(other) == name_in(described, shard) && other.bytes == shard.bytes &&
                 other.header_hash == shard.header_hash && other.sample_hash == shard.sample_hash;
        });
    if (!known) names += fmt::format(" {}", name_in(described, shard));
  }
  return names;
}

bool has_packed_chunks(const TrunkFile& trunk) {
  return std::any_of(trunk.chunks().begin(), trunk.chunks().end(), [](const ChunkRecord& chunk) {
    return static_cast<Codec>(chunk.codec) != Codec::kRaw;
  });
}

bool same_layout(const TrunkFile& trunk, const Manifest& described) {
  ManifestHeader a = trunk.header();
  ManifestHeader b = described.header;
  a.expert_checksum_count = b.expert_checksum_count = 0;
  return std::memcmp(&a, &b, sizeof(a)) == 0 && same_records(trunk.shards(), described.shards) &&
         same_records(trunk.tensors(), described.tensors) &&
         same_records(trunk.segments(), described.segments);
}

}  // namespace

Manifest describe_trunk(const PackInput& input, const PackOptions& options) {
  Manifest manifest;
  manifest.header.config_fingerprint = input.config_fingerprint;
  add_shards(input, manifest);
  const std::vector<DType> dtypes = add_tensors(input, manifest);
  TrunkLayout layout = lay_out_trunk(*input.tensors, dtypes, input.chunk_bytes);
  manifest.chunks = std::move(layout.chunks);
  manifest.segments = std::move(layout.segments);
  add_experts(input, manifest);
  if (options.expert_checksums) manifest.expert_checksums.resize(manifest.experts.size());
  add_embedding(input, manifest);
  count_records(manifest);
  return manifest;
}

uint64_t plan_checksum(const Manifest& described, CodecChoice codec) {
  std::vector<std::byte> plan = serialize(described);
  plan.push_back(static_cast<std::byte>(kTrunkVersion));
  plan.push_back(static_cast<std::byte>(codec));
  return checksum(plan);
}

std::string trunk_difference(const TrunkFile& trunk, const Manifest& described,
                             const PackOptions& options) {
  if (trunk.header().config_fingerprint != described.header.config_fingerprint) {
    return "it was made for another config.json";
  }
  if (const std::string shards = shards_that_differ(trunk, described); !shards.empty()) {
    return fmt::format("it was made from other shards than{}", shards);
  }
  if (!same_layout(trunk, described)) return "it is laid out differently";
  if (options.codec == CodecChoice::kRaw && has_packed_chunks(trunk)) {
    return "its matrices are packed, not raw";
  }
  if (!described.expert_checksums.empty() && trunk.header().expert_checksum_count == 0) {
    return "it has no expert checksums";
  }
  return {};
}

}  // namespace k3::weights
