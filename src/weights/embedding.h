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
  DType dtype;  // kBf16 or kF32
};

class EmbeddingReader {
 public:
  static Bytes bytes_needed(const EmbeddingTable& table);

  EmbeddingReader(const EmbeddingTable& table, io::IoThread& io, std::span<std::byte> memory);
  ~EmbeddingReader();
  EmbeddingReader(const EmbeddingReader&) = delete;
  EmbeddingReader& operator=(const EmbeddingReader&) = delete;

  /// Calls use(i, row bytes as stored) for each id in order. Error(kRead) when a row cannot be
  /// read. Ids are inside the table (checked by the caller).
  template <typename Use>
  void read(std::span<const uint32_t> ids, Use&& use) {
    for (size_t begin = 0; begin < ids.size(); begin += kWindow) {
      const auto window = ids.subspan(begin, std::min(kWindow, ids.size() - begin));
      request(window);
      for (size_t i = 0; i < window.size(); ++i) use(begin + i, wait(i));
    }
  }

  const EmbeddingTable& table() const { return table_; }
  uint64_t read_bytes() const { return read_bytes_; }

 private:
  static constexpr size_t kWindow = 16;  // rows asked for at once
  static uint64_t row_bytes(const EmbeddingTable& table);
  static uint64_t buffer_stride(const EmbeddingTable& table);
  void request(std::span<const uint32_t> ids);
  const std::byte* wait(size_t i);

  EmbeddingTable table_;
  io::IoThread& io_;
  std::span<std::byte> memory_;
  std::vector<io::ReadJob> jobs_;
  uint64_t read_bytes_ = 0;
};

}  // namespace k3::weights
