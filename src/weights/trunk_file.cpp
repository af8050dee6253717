#include "weights/trunk_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <system_error>

#include "base/hash.h"
#include "io/direct_file.h"
#include "k3/error.h"
#include "weights/safetensors.h"
#include "weights/shard_identity.h"
#include "weights/trunk_codec.h"
#include "weights/trunk_manifest.h"

namespace k3::weights {
namespace {

constexpr const char* kPackAgain = "make it again with `k3 pack --force`";

[[noreturn]] void refuse(const std::filesystem::path& path, const std::string& what) {
  throw Error(ErrorKind::kCheckpoint, fmt::format("{}: {}; {}", path.string(), what, kPackAgain));
}

/// Whatever is wrong with the first 4096 bytes, in the order in which it would mislead.
void check_file_header(const std::filesystem::path& path, const FileHeader& header,
                       std::span<const std::byte> block, uint64_t file_bytes) {
  if (std::memcmp(header.magic, kTrunkMagic, sizeof(kTrunkMagic)) != 0) {
    throw Error(ErrorKind::kCheckpoint,
                fmt::format("{}: not a trunk file (it does not start with K3TRUNK); name the file "
                            "that `k3 pack` wrote",
                            path.string()));
  }
  if (header.version != kTrunkVersion) {
    refuse(path, fmt::format("trunk format version {}, this program reads version {}",
                             header.version, kTrunkVersion));
  }
  const auto rest = block.subspan(sizeof(FileHeader));
  if (header.header_bytes != sizeof(FileHeader) ||
      header.header_checksum != file_header_checksum(header) ||
      std::any_of(rest.begin(), rest.end(), [](std::byte b) { return b != std::byte{0}; })) {
    refuse(path, "the file header is damaged (its checksum does not fit)");
  }
  const uint64_t end = header.manifest_offset + header.manifest_bytes;
  if (header.manifest_offset < kTrunkAlignment || end < header.manifest_offset ||
      header.manifest_bytes < sizeof(ManifestHeader) || end != file_bytes) {
    refuse(path, fmt::format("the file has {} bytes, expected {}: cut short or extended",
                             file_bytes, end));
  }
}

template <typename Record>
std::span<const Record> records(std::span<const std::byte> manifest, uint64_t offset,
                                uint64_t count) {
  return {reinterpret_cast<const Record*>(manifest.data() + offset), count};
}

/// Checks that the records of a manifest refer to what exists: after the checksum this is about
/// files made by a faulty or hostile writer, and it is what lets everybody else trust them.
class RecordChecker {
 public:
  RecordChecker(const TrunkFile& trunk, uint64_t manifest_offset, uint64_t string_bytes)
      : trunk_(trunk), manifest_offset_(manifest_offset), string_bytes_(string_bytes) {}

  void check() {
    check_names();
    check_tensors();
    for (const ChunkRecord& chunk : trunk_.chunks()) check_chunk(chunk);
    require(next_segment_ == trunk_.segments().size(), "segments outside all chunks");
    require(row_ == 0 && tensor_ == trunk_.tensors().size(), "rows of the trunk are missing");
    check_experts();
    check_embedding();
  }

 private:
  void require(bool holds, const char* what) const {
    if (!holds) refuse(trunk_.path(), fmt::format("the manifest contradicts itself: {}", what));
  }

  void check_names() const {
    auto inside = [this](uint64_t offset, uint64_t bytes) {
      return bytes > 0 && offset + bytes <= string_bytes_;
    };
    for (const ShardRecord& shard : trunk_.shards()) {
      require(inside(shard.name_offset, shard.name_bytes), "name of a shard");
      const std::string_view name = trunk_.name(shard);
      require(name.find('/') == name.npos && name.find('\0') == name.npos && name != "..",
              "a shard outside the model directory");
    }
    for (const TensorRecord& tensor : trunk_.tensors()) {
      require(inside(tensor.name_offset, tensor.name_bytes), "name of a tensor");
    }
  }

  void check_tensors() const {
    for (const TensorRecord& tensor : trunk_.tensors()) {
      require(tensor.dtype <= static_cast<uint8_t>(DType::kF32), "type of a tensor");
      require(tensor.rows > 0 && tensor.rows <= UINT32_MAX && tensor.cols > 0 &&
                  tensor.cols <= UINT32_MAX,
              "shape of a tensor");
    }
  }

  void check_chunk(const ChunkRecord& chunk) {
    if (chunk.codec > static_cast<uint8_t>(Codec::kPacked4)) {
      refuse(trunk_.path(), fmt::format("codec {} is not known to this program", chunk.codec));
    }
    require(chunk.offset % kTrunkAlignment == 0 && chunk.offset >= chunk_end_, "place of a chunk");
    require(chunk.stored_bytes > 0 && chunk.stored_bytes <= manifest_offset_ - chunk.offset &&
                chunk.offset < manifest_offset_,
            "size of a chunk");
    chunk_end_ = chunk.offset + chunk.stored_bytes;
    require(chunk.segment_begin == next_segment_ && chunk.segment_count > 0 &&
                chunk.segment_count <= trunk_.segments().size() - next_segment_,
            "segments of a chunk");
    next_segment_ += chunk.segment_count;
    uint64_t end = 0;
    uint64_t raw = 0;
    for (const SegmentRecord& segment : trunk_.segments(chunk)) raw += check_segment(segment, end);
    require(raw == chunk.raw_bytes, "length of a chunk");
    if (static_cast<Codec>(chunk.codec) == Codec::kRaw) {
      require(end == chunk.stored_bytes, "length of a chunk");
    } else {
      check_packed(chunk);
    }
  }

  void check_packed(const ChunkRecord& chunk) const {
    const SegmentRecord& segment = trunk_.segments(chunk).front();
    const TensorRecord& tensor = trunk_.tensors()[segment.tensor];
    require(
        chunk.segment_count == 1 && segment.offset == 0 && can_be_packed(tensor.dtype, tensor.cols),
        "a packed chunk that is not of one bf16 matrix");
    require(chunk.stored_bytes < chunk.raw_bytes &&
                chunk.stored_bytes >=
                    packed_bytes_min(static_cast<Codec>(chunk.codec), chunk.raw_bytes / 2),
            "length of a packed chunk");
  }

  /// Segments go through all tensors, row by row; returns the segment's bytes.
  uint64_t check_segment(const SegmentRecord& segment, uint64_t& end) {
    require(
        segment.tensor == tensor_ && tensor_ < trunk_.tensors().size() && segment.row_begin == row_,
        "order of the rows");
    const TensorRecord& tensor = trunk_.tensors()[tensor_];
    require(segment.row_count > 0 && segment.row_count <= tensor.rows - row_, "rows of a segment");
    require(segment.offset >= end && segment.offset % kSegmentAlignment == 0, "place of a segment");
    row_ += segment.row_count;
    if (row_ == tensor.rows) {
      row_ = 0;
      ++tensor_;
    }
    const uint64_t row_bytes = tensor.cols * dtype_bytes(static_cast<DType>(tensor.dtype));
    require(segment.row_count <= UINT32_MAX / row_bytes, "size of a segment");
    end = segment.offset + segment.row_count * row_bytes;
    return segment.row_count * row_bytes;
  }

  void check_experts() const {
    const ManifestHeader& header = trunk_.header();
    for (uint32_t layer = 0; layer < header.expert_layer_count; ++layer) {
      for (uint32_t expert = 0; expert < header.experts_per_layer; ++expert) {
        const ExpertRecord& record = trunk_.expert(layer, expert);
        require(record.shard < trunk_.shards().size(), "shard of an expert");
        for (size_t part = 0; part < kExpertParts; ++part) {
          require(inside_shard(record.shard, record.offset[part], header.expert_part_bytes[part]),
                  "place of an expert");
        }
      }
    }
  }

  void check_embedding() const {
    const ManifestHeader& header = trunk_.header();
    require(header.embedding_shard < trunk_.shards().size() &&
                header.embedding_dtype <= static_cast<uint32_t>(DType::kF32) &&
                header.embedding_cols <= UINT32_MAX / 4,
            "embedding table");
    require(inside_shard(header.embedding_shard, header.embedding_offset,
                         header.embedding_rows * embedding_row_bytes(header)),
            "place of the embedding table");
  }

  bool inside_shard(uint32_t shard, uint64_t offset, uint64_t bytes) const {
    const uint64_t size = trunk_.shards()[shard].bytes;
    return offset <= size && bytes <= size - offset;
  }

  const TrunkFile& trunk_;
  uint64_t manifest_offset_;
  uint64_t string_bytes_;
  uint64_t chunk_end_ = kTrunkAlignment;
  uint64_t next_segment_ = 0;
  uint64_t tensor_ = 0;  // what the next segment must continue
  uint64_t row_ = 0;
};

/// What differs between a shard as recorded and as it is now; empty if nothing does.
std::string shard_difference(const std::filesystem::path& path, const ShardRecord& shard,
                             bool header) {
  std::error_code failure;
  const uint64_t bytes = std::filesystem::file_size(path, failure);
  if (failure) return fmt::format("missing or not readable ({})", failure.message());
  if (bytes != shard.bytes) return fmt::format("has {} bytes, expected {}", bytes, shard.bytes);
  if (sample_hash(path, bytes) != shard.sample_hash) return "has other content";
  if (header && read_safetensors(path, [](const TensorEntry&) {}).header_hash != shard.header_hash)
    return "has another header";
  return {};
}

}  // namespace

TrunkFile TrunkFile::open(const std::filesystem::path& path) {
  const io::DirectFile file = io::DirectFile::open_buffered(path);
  std::vector<std::byte> block(kTrunkAlignment);
  const auto present = std::min<uint64_t>(block.size(), file.size());
  io::read_exactly(file.fd(), 0, std::span(block).first(present), path, "the file header");
  FileHeader file_header;
  std::memcpy(&file_header, block.data(), sizeof(file_header));
  check_file_header(path, file_header, block, file.size());

  TrunkFile trunk;
  trunk.path_ = path;
  trunk.file_bytes_ = Bytes{file.size()};
  trunk.manifest_.resize(file_header.manifest_bytes);
  io::read_exactly(file.fd(), file_header.manifest_offset, trunk.manifest_, path, "the manifest");
  if (checksum(trunk.manifest_) != file_header.manifest_checksum) {
    refuse(path, "the manifest is damaged (its checksum does not fit)");
  }
  trunk.bind_records();
  RecordChecker(trunk, file_header.manifest_offset, trunk.strings_.size()).check();
  return trunk;
}

TrunkFile TrunkFile::in_memory(const std::filesystem::path& path, const Manifest& manifest,
                               uint64_t end) {
  TrunkFile trunk;
  trunk.path_ = path;
  trunk.manifest_ = serialize(manifest);
  trunk.file_bytes_ = Bytes{end + trunk.manifest_.size()};
  trunk.bind_records();
  RecordChecker(trunk, end, trunk.strings_.size()).check();
  return trunk;
}

void TrunkFile::bind_records() {
  header_ = reinterpret_cast<const ManifestHeader*>(manifest_.data());
  if (!countable(*header_) || manifest_offsets(*header_).end != manifest_.size()) {
    refuse(path_, "the manifest contradicts itself: its counts do not fit its size");
  }
  const ManifestOffsets at = manifest_offsets(*header_);
  const uint64_t experts = uint64_t{header_->expert_layer_count} * header_->experts_per_layer;
  if (header_->expert_checksum_count != 0 && header_->expert_checksum_count != experts) {
    refuse(path_, "the manifest contradicts itself: not one checksum per expert");
  }
  shards_ = records<ShardRecord>(manifest_, at.shards, header_->shard_count);
  tensors_ = records<TensorRecord>(manifest_, at.tensors, header_->tensor_count);
  chunks_ = records<ChunkRecord>(manifest_, at.chunks, header_->chunk_count);
  segments_ = records<SegmentRecord>(manifest_, at.segments, header_->segment_count);
  experts_ = records<ExpertRecord>(manifest_, at.experts, experts);
  expert_checksums_ =
      records<uint64_t>(manifest_, at.expert_checksums, header_->expert_checksum_count);
  embedding_checksums_ =
      records<uint64_t>(manifest_, at.embedding_checksums, header_->embedding_rows);
  strings_ = {reinterpret_cast<const char*>(manifest_.data() + at.strings), header_->string_bytes};
}

const uint64_t* TrunkFile::expert_checksum(size_t layer_rank, uint32_t expert) const {
  if (expert_checksums_.empty()) return nullptr;
  return &expert_checksums_[layer_rank * header_->experts_per_layer + expert];
}

std::string_view TrunkFile::name(const ShardRecord& shard) const {
  return strings_.substr(shard.name_offset, shard.name_bytes);
}

std::string_view TrunkFile::name(const TensorRecord& tensor) const {
  return strings_.substr(tensor.name_offset, tensor.name_bytes);
}

std::string TrunkFile::describe(const ChunkRecord& chunk) const {
  const auto parts = segments(chunk);
  const SegmentRecord& first = parts.front();
  const std::string_view tensor = name(tensors_[first.tensor]);
  if (parts.size() > 1)
    return fmt::format("{} and {} more small tensors", tensor, parts.size() - 1);
  return fmt::format("{} rows {}..{}", tensor, first.row_begin,
                     first.row_begin + first.row_count - 1);
}

Bytes TrunkFile::stored_bytes() const {
  uint64_t sum = 0;
  for (const ChunkRecord& chunk : chunks_) sum += chunk.stored_bytes;
  return Bytes{sum};
}

Bytes TrunkFile::raw_bytes() const {
  uint64_t sum = 0;
  for (const ChunkRecord& chunk : chunks_) sum += chunk.raw_bytes;
  return Bytes{sum};
}

void TrunkFile::check_shards(const std::filesystem::path& directory, bool headers) const {
  std::string differences;
  for (const ShardRecord& shard : shards_) {
    const std::string difference = shard_difference(directory / name(shard), shard, headers);
    if (difference.empty()) continue;
    differences += fmt::format("{}{} {}", differences.empty() ? "" : ", ", name(shard), difference);
  }
  if (differences.empty()) return;
  throw Error(ErrorKind::kCheckpoint,
              fmt::format("{} was not made from the checkpoint in {}: {}; use the trunk file of "
                          "this checkpoint, complete its shards, or run `k3 pack --force`",
                          path_.string(), directory.string(), differences));
}

}  // namespace k3::weights
