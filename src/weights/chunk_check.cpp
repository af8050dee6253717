#include "weights/chunk_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/hash.h"
#include "io/direct_file.h"
#include "k3/error.h"
#include "weights/ordered_work.h"
#include "weights/trunk_source.h"

namespace k3::weights {
namespace {

std::string describe_damage(const TrunkFile& trunk, uint64_t number, const std::string& found) {
  const ChunkRecord& chunk = trunk.chunks()[number];
  const SegmentRecord& first = trunk.segments(chunk).front();
  return fmt::format(
      "{}: chunk {} ({} bytes at {}: {}, rows from {}) {}; make the file again with `k3 pack "
      "--force`",
      trunk.path().string(), number, chunk.stored_bytes, chunk.offset,
      trunk.name(trunk.tensors()[first.tensor]), first.row_begin, found);
}

/// What is wrong with the bytes of a chunk; empty if nothing is.
std::string damage(const TrunkFile& trunk, const io::DirectFile& file, const ChunkRecord& chunk,
                   std::span<std::byte> buffer) {
  const auto bytes = buffer.first(chunk.stored_bytes);
  try {
    read_keeping_holes(file, trunk.path(), chunk.offset, bytes, trunk.describe(chunk));
  } catch (const Error& error) {
    return fmt::format("cannot be read: {}", error.what());
  }
  return checksum(bytes) == chunk.checksum ? "" : "does not fit its checksum";
}

}  // namespace

std::vector<std::string> damaged_chunks(const TrunkFile& trunk,
                                        const std::function<void(Bytes, Bytes)>& progress) {
  const std::span<const ChunkRecord> chunks = trunk.chunks();
  const io::DirectFile file = io::DirectFile::open_buffered(trunk.path());
  uint64_t largest = 0;
  for (const ChunkRecord& chunk : chunks) largest = std::max(largest, chunk.stored_bytes);
  std::array<std::vector<std::byte>, kWorkThreads> buffers;
  for (auto& buffer : buffers) buffer.resize(largest);
  std::array<std::string, kWorkSlots> found;

  std::vector<std::string> damaged;
  Bytes done;
  const Bytes total = trunk.stored_bytes();
  const auto make = [&](const WorkItem& item) {
    found[item.slot] = damage(trunk, file, chunks[item.index], buffers[item.thread]);
  };
  const auto take = [&](const WorkItem& item) {
    if (!found[item.slot].empty()) {
      damaged.push_back(describe_damage(trunk, item.index, found[item.slot]));
    }
    done += Bytes{chunks[item.index].stored_bytes};
    progress(done, total);
  };
  run_in_order(0, chunks.size(), make, take);
  return damaged;
}

}  // namespace k3::weights
