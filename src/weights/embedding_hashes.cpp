#include "weights/embedding_hashes.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <vector>

#include "base/hash.h"
#include "weights/trunk_layout.h"
#include "weights/trunk_manifest.h"
#include "weights/trunk_source.h"

namespace k3::weights {

void hash_embedding(
    const ManifestHeader& header,
    const std::function<void(const WorkItem&, uint64_t offset, std::span<std::byte>)>& read,
    const std::function<void(uint64_t row, std::span<const uint64_t> sums)>& take) {
  const uint64_t row_bytes = embedding_row_bytes(header);
  const uint64_t step = std::max<uint64_t>(1, kChunkBytes / row_bytes);  // rows read at once
  std::array<std::vector<std::byte>, kWorkThreads> rows;
  std::array<std::vector<uint64_t>, kWorkSlots> sums;
  const auto make_sums = [&](const WorkItem& item) {
    const uint64_t begin = item.index * step;
    const uint64_t count = std::min(step, header.embedding_rows - begin);
    std::vector<std::byte>& bytes = rows[item.thread];
    bytes.resize(count * row_bytes);
    read(item, header.embedding_offset + begin * row_bytes, bytes);
    sums[item.slot].resize(count);
    for (uint64_t i = 0; i < count; ++i) {
      sums[item.slot][i] = checksum(std::span(bytes).subspan(i * row_bytes, row_bytes));
    }
  };
  const auto take_sums = [&](const WorkItem& item) { take(item.index * step, sums[item.slot]); };
  run_in_order(0, (header.embedding_rows + step - 1) / step, make_sums, take_sums);
}

std::string embedding_damage(const TrunkFile& trunk, const std::filesystem::path& directory,
                             const std::function<void(Bytes done, Bytes total)>& progress) {
  const ManifestHeader& header = trunk.header();
  const uint64_t row_bytes = embedding_row_bytes(header);
  const auto shard = directory / trunk.name(trunk.shards()[header.embedding_shard]);
  const io::DirectFile file = io::DirectFile::open_buffered(shard);
  uint64_t damaged = 0, first = 0;
  const auto read = [&](const WorkItem&, uint64_t offset, std::span<std::byte> out) {
    read_keeping_holes(file, shard, offset, out, "rows of the embedding");
  };
  const auto compare = [&](uint64_t row, std::span<const uint64_t> sums) {
    for (const uint64_t sum : sums) {
      if (sum != trunk.embedding_checksums()[row] && damaged++ == 0) first = row;
      ++row;
    }
    progress(Bytes{row * row_bytes}, Bytes{header.embedding_rows * row_bytes});
  };
  hash_embedding(header, read, compare);
  if (damaged == 0) return "";
  return fmt::format(
      "{}: {} of the {} rows of the embedding do not fit the checksums that were recorded when "
      "packing, the first is that of token {} ({} bytes at {}); download this shard again",
      shard.string(), damaged, header.embedding_rows, first, row_bytes,
      header.embedding_offset + first * row_bytes);
}

}  // namespace k3::weights
