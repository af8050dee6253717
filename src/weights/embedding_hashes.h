// Checksums of the rows of the embedding, which stay in their shard: recorded when a trunk file is
// made, compared at every read of a row (embedding.h) and, all of them, by `k3 verify`.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>

#include "k3/units.h"
#include "weights/ordered_work.h"
#include "weights/trunk_file.h"

namespace k3::weights {

/// XXH3-64 of every row of the table that `header` describes, a block of rows at a time.
/// `read(item, offset, out)` fills `out` from the shard, on several threads; `take(row, sums)` gets
/// those of rows [row, row + sums.size()), in order, on the calling one. What they throw ends it.
void hash_embedding(
    const ManifestHeader& header,
    const std::function<void(const WorkItem&, uint64_t offset, std::span<std::byte>)>& read,
    const std::function<void(uint64_t row, std::span<const uint64_t> sums)>& take);

/// Reads the table from the shard in `directory` and compares it with what the trunk file has: what
/// is wrong, in one line; empty if nothing is. Error(kRead) as io::read_exactly.
std::string embedding_damage(const TrunkFile& trunk, const std::filesystem::path& directory,
                             const std::function<void(Bytes done, Bytes total)>& progress);

}  // namespace k3::weights
