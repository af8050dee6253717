#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <span>

#include "base/hash.h"
#include "k3/error.h"
#include "weights/embedding_hashes.h"
#include "weights/ordered_work.h"
#include "weights/trunk_codec.h"
#include "weights/trunk_file.h"
#include "weights/trunk_source.h"
#include "weights/trunk_writer.h"

namespace k3::weights {
namespace {

[[noreturn]] void refuse(const std::filesystem::path& trunk, const std::string& what) {
  throw Error(ErrorKind::kCheckpoint,
              fmt::format("{}: {}; make it again with `k3 pack --force`", trunk.string(), what));
}

/// The trunk file must hold these tensors and no others, in this order; row by row is checked when
/// it is opened.
void check_tensors(const TrunkFile& trunk, const CheckpointIndex& index,
                   const std::vector<TrunkTensor>& tensors) {
  if (trunk.tensors().size() != tensors.size()) {
    refuse(trunk.path(),
           fmt::format("holds {} tensors, expected {}", trunk.tensors().size(), tensors.size()));
  }
  for (size_t i = 0; i < tensors.size(); ++i) {
    const TensorRecord& found = trunk.tensors()[i];
    const TrunkTensor& expected = tensors[i];
    const bool same = trunk.name(found) == expected.name && found.layer == expected.layer &&
                      found.role == expected.role && found.rows == expected.rows &&
                      found.cols == expected.cols &&
                      found.dtype == static_cast<uint8_t>(index.tensor(i).dtype);
    if (same) continue;
    refuse(trunk.path(),
           fmt::format("tensor {} is {} [{}, {}], expected {} [{}, {}]", i, trunk.name(found),
                       found.rows, found.cols, expected.name, expected.rows, expected.cols));
  }
}

class ContentVerifier {
 public:
  ContentVerifier(const TrunkFile& trunk, const std::filesystem::path& directory,
                  const CheckpointIndex& index, const std::vector<TrunkTensor>& tensors)
      : trunk_(trunk),
        file_(io::DirectFile::open_buffered(trunk.path())),
        sources_{TrunkSource(directory, index, tensors), TrunkSource(directory, index, tensors)} {
    uint64_t largest = 0;
    for (const ChunkRecord& chunk : trunk.chunks())
      largest = std::max(largest, content_bytes(chunk));
    for (Buffers& buffers : buffers_) {
      buffers.stored.resize(largest);
      buffers.unpacked.resize(largest);
      buffers.expected.resize(largest);
    }
  }

  void run(const std::function<void(Bytes, Bytes)>& progress) {
    Bytes done;
    const Bytes total = trunk_.raw_bytes();
    auto make = [this](const WorkItem& item) {
      compare(trunk_.chunks()[item.index], item.index, sources_[item.thread],
              buffers_[item.thread]);
    };
    auto take = [&](const WorkItem& item) {
      done += Bytes{trunk_.chunks()[item.index].raw_bytes};
      if (progress) progress(done, total);
    };
    run_in_order(0, trunk_.chunks().size(), make, take);
  }

 private:
  struct Buffers {
    std::vector<std::byte> stored;
    std::vector<std::byte> unpacked;
    std::vector<std::byte> expected;
  };

  void compare(const ChunkRecord& chunk, uint64_t number, TrunkSource& source, Buffers& buffers) {
    const auto stored = std::span(buffers.stored).first(chunk.stored_bytes);
    const auto expected = std::span(buffers.expected).first(content_bytes(chunk));
    read_keeping_holes(file_, trunk_.path(), chunk.offset, stored, trunk_.describe(chunk));
    source.read_chunk(trunk_.segments(chunk), expected);
    const auto content = content_of(chunk, number, stored, buffers.unpacked);
    if (std::memcmp(content.data(), expected.data(), expected.size()) != 0) {
      report_difference(chunk, number, content, expected);
    }
    if (checksum(stored) != chunk.checksum) {
      refuse(trunk_.path(), fmt::format("chunk {} is right but its checksum is not", number));
    }
  }

  /// Bytes of a chunk as it would be stored raw.
  static uint64_t content_bytes(const ChunkRecord& chunk) {
    return is_packed(chunk) ? chunk.raw_bytes : chunk.stored_bytes;
  }

  static bool is_packed(const ChunkRecord& chunk) {
    return static_cast<Codec>(chunk.codec) != Codec::kRaw;
  }

  std::span<const std::byte> content_of(const ChunkRecord& chunk, uint64_t number,
                                        std::span<const std::byte> stored,
                                        std::span<std::byte> unpacked) const {
    if (!is_packed(chunk)) return stored;
    const auto codec = static_cast<Codec>(chunk.codec);
    if (!is_sound(codec, stored, chunk.raw_bytes / 2)) {
      refuse(trunk_.path(),
             fmt::format("packed chunk {} of {} contradicts itself", number,
                         trunk_.name(trunk_.tensors()[trunk_.segments(chunk).front().tensor])));
    }
    const auto content = unpacked.first(chunk.raw_bytes);
    unpack_weights(codec, stored, content);
    return content;
  }

  [[noreturn]] void report_difference(const ChunkRecord& chunk, uint64_t number,
                                      std::span<const std::byte> stored,
                                      std::span<const std::byte> expected) const {
    const auto at = static_cast<uint64_t>(
        std::mismatch(stored.begin(), stored.end(), expected.begin()).first - stored.begin());
    const std::string place = is_packed(chunk)
                                  ? fmt::format("packed at byte {} of the file", chunk.offset)
                                  : fmt::format("byte {} of the file", chunk.offset + at);
    for (const SegmentRecord& segment : trunk_.segments(chunk)) {
      const TensorRecord& tensor = trunk_.tensors()[segment.tensor];
      const uint64_t row_bytes = tensor.cols * dtype_bytes(static_cast<DType>(tensor.dtype));
      if (at < segment.offset || at >= segment.offset + segment.row_count * row_bytes) continue;
      refuse(trunk_.path(),
             fmt::format("tensor {}, row {} differs from the checkpoint (chunk {}, {})",
                         trunk_.name(tensor), segment.row_begin + (at - segment.offset) / row_bytes,
                         number, place));
    }
    refuse(trunk_.path(), fmt::format("chunk {} is not zero between its tensors (byte {} of the "
                                      "file)",
                                      number, chunk.offset + at));
  }

  const TrunkFile& trunk_;
  io::DirectFile file_;
  std::array<TrunkSource, kWorkThreads> sources_;
  std::array<Buffers, kWorkThreads> buffers_;
};

}  // namespace

void verify_trunk_content(const std::filesystem::path& trunk_path,
                          const std::filesystem::path& directory, const CheckpointIndex& index,
                          const std::vector<TrunkTensor>& tensors,
                          const std::function<void(Bytes done, Bytes total)>& progress) {
  const TrunkFile trunk = TrunkFile::open(trunk_path);
  check_tensors(trunk, index, tensors);
  ContentVerifier(trunk, directory, index, tensors).run(progress);
  const std::string damage = embedding_damage(trunk, directory, [](Bytes, Bytes) {});
  if (!damage.empty()) throw Error(ErrorKind::kCheckpoint, damage);
}

}  // namespace k3::weights
