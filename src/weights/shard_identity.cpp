#include "weights/shard_identity.h"

#include <fcntl.h>

#include <algorithm>
#include <array>
#include <cstddef>

#include "base/hash.h"
#include "io/direct_file.h"

namespace k3::weights {

uint64_t sample_hash(const std::filesystem::path& shard, uint64_t bytes) {
  constexpr uint64_t kBlock = io::kBlockSize;
  const io::DirectFile file = io::DirectFile::open_buffered(shard);
  ::posix_fadvise(file.fd(), 0, 0, POSIX_FADV_RANDOM);
  const uint64_t blocks = (bytes + kBlock - 1) / kBlock;
  const uint64_t samples = std::min<uint64_t>(blocks, kSampleBlocks);
  Checksum hash;
  std::array<std::byte, kBlock> block;
  for (uint64_t i = 0; i < samples; ++i) {
    const uint64_t at = samples == 1 ? 0 : i * (blocks - 1) / (samples - 1) * kBlock;
    const std::span<std::byte> piece(block.data(), std::min(kBlock, bytes - at));
    io::read_exactly(file.fd(), at, piece, shard, "a sample by which the shard is known");
    hash.update(piece);
    ::posix_fadvise(file.fd(), static_cast<off_t>(at), kBlock, POSIX_FADV_DONTNEED);
  }
  return hash.digest();
}

}  // namespace k3::weights
