// Rows of the embedding table, read from the shard when a token needs them: the table (2.35 GB at
// the full shape) is never resident.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "io/io_thread.h"
#include "weights/dtype.h"

namespace k3::weights {

struct EmbeddingTable {
  io::FileId shard;
  uint64_t offset;  // of row 0
  uint64_t rows;
  uint64_t cols;
  DType dtype;                          // kBf16 or kF32
  std::span<const uint64_t> checksums;  // XXH3-64 of each row, from the trunk file

  uint64_t row_bytes() const { return cols * dtype_bytes(dtype); }
};

class EmbeddingReader {
 public:
  static Bytes bytes_needed(uint64_t row_bytes);

  EmbeddingReader(const EmbeddingTable& table, io::IoThread& io, std::span<std::byte> memory);
  ~EmbeddingReader();
  EmbeddingReader(const EmbeddingReader&) = delete;
  EmbeddingReader& operator=(const EmbeddingReader&) = delete;

  /// Calls use(i, row bytes as stored) for each id in order. A row that does not fit its checksum
  /// is read once more; Error(kRead) when it does not fit again, or cannot be read. Ids are inside
  /// the table (checked by the caller).
  template <typename Use>
  void read(std::span<const uint32_t> ids, Use&& use) {
    for (size_t begin = 0; begin < ids.size(); begin += kWindow) {
      const auto window = ids.subspan(begin, std::min(kWindow, ids.size() - begin));
      request(window);
      for (size_t i = 0; i < window.size(); ++i) use(begin + i, finish(i));
    }
  }

  const EmbeddingTable& table() const { return table_; }
  uint64_t read_bytes() const { return read_bytes_; }
  uint64_t checksum_retries() const { return checksum_retries_; }

 private:
  static constexpr size_t kWindow = 16;  // rows asked for at once
  static uint64_t buffer_stride(uint64_t row_bytes);
  void request(std::span<const uint32_t> ids);
  /// Waits for the i-th row of the window and checks it.
  const std::byte* finish(size_t i);

  EmbeddingTable table_;
  io::IoThread& io_;
  std::span<std::byte> memory_;
  std::vector<io::ReadJob> jobs_;
  uint64_t read_bytes_ = 0;
  uint64_t checksum_retries_ = 0;
};

}  // namespace k3::weights
