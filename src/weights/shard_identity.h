// A cheap fingerprint of a shard's content: a hash of fixed sampled 4 KiB blocks. Same shapes give
// the same headers, and a trunk of one model with the experts of another would be fluent nonsense.
#pragma once

#include <cstdint>
#include <filesystem>

namespace k3::weights {

inline constexpr uint32_t kSampleBlocks = 16;

/// XXH3-64 over kSampleBlocks blocks of 4096 bytes at evenly spread block-aligned offsets, the
/// first and the last block among them (all of a file that is smaller). Buffered reads; the pages
/// are dropped. Error(kCheckpoint) on failure.
uint64_t sample_hash(const std::filesystem::path& shard, uint64_t bytes);

}  // namespace k3::weights
