#include "weights/embedding.h"

#include <fmt/format.h>

#include "base/check.h"

namespace k3::weights {
namespace {
std::string describe_row(const io::ReadJob& job) {
  return fmt::format("embedding of token {}", job.context_id);
}
}  // namespace

uint64_t EmbeddingReader::row_bytes(const EmbeddingTable& table) {
  return table.cols * dtype_bytes(table.dtype);
}

uint64_t EmbeddingReader::buffer_stride(const EmbeddingTable& table) {
  return io::block_ceil(row_bytes(table)) + io::kBlockSize;  // a row may straddle one block more
}

Bytes EmbeddingReader::bytes_needed(const EmbeddingTable& table) {
  return Bytes{buffer_stride(table)} * kWindow;
}

EmbeddingReader::EmbeddingReader(const EmbeddingTable& table, io::IoThread& io,
                                 std::span<std::byte> memory)
    : table_(table), io_(io), memory_(memory), jobs_(kWindow) {
  K3_CHECK(memory.size() >= bytes_needed(table).value);
}

EmbeddingReader::~EmbeddingReader() {
  for (io::ReadJob& job : jobs_) io_.settle(job);
}

void EmbeddingReader::request(std::span<const uint32_t> ids) {
  for (size_t i = 0; i < ids.size(); ++i) {
    io::ReadJob& job = jobs_[i];
    io_.settle(job);  // an error may have ended the reading before
    job.file = table_.shard;
    job.offset = table_.offset + ids[i] * row_bytes(table_);
    job.length = row_bytes(table_);
    job.buffer = memory_.data() + i * buffer_stride(table_);
    job.what = describe_row;
    job.context_id = ids[i];
    io_.request(job, io::Lane::kUrgent);
  }
}

const std::byte* EmbeddingReader::wait(size_t i) {
  io_.wait(jobs_[i]);
  read_bytes_ += jobs_[i].length;
  return jobs_[i].payload();
}

}  // namespace k3::weights
