#include "weights/embedding.h"

#include <fmt/format.h>

#include "base/check.h"
#include "base/hash.h"
#include "k3/error.h"

namespace k3::weights {
namespace {
std::string describe_row(const io::ReadJob& job) {
  return fmt::format("embedding of token {}", job.context_id);
}
}  // namespace

uint64_t EmbeddingReader::buffer_stride(uint64_t row_bytes) {
  return io::block_ceil(row_bytes) + io::kBlockSize;  // a row may straddle one block more
}

Bytes EmbeddingReader::bytes_needed(uint64_t row_bytes) {
  return Bytes{buffer_stride(row_bytes)} * kWindow;
}

EmbeddingReader::EmbeddingReader(const EmbeddingTable& table, io::IoThread& io,
                                 std::span<std::byte> memory)
    : table_(table), io_(io), memory_(memory), jobs_(kWindow) {
  K3_CHECK(memory.size() >= bytes_needed(table.row_bytes()).value);
  K3_CHECK(table.checksums.size() == table.rows);
}

EmbeddingReader::~EmbeddingReader() {
  for (io::ReadJob& job : jobs_) io_.settle(job);
}

void EmbeddingReader::request(std::span<const uint32_t> ids) {
  for (size_t i = 0; i < ids.size(); ++i) {
    io::ReadJob& job = jobs_[i];
    io_.settle(job);  // an error may have ended the reading before
    job.file = table_.shard;
    job.offset = table_.offset + ids[i] * table_.row_bytes();
    job.length = table_.row_bytes();
    job.buffer = memory_.data() + i * buffer_stride(table_.row_bytes());
    job.what = describe_row;
    job.context_id = ids[i];
    io_.request(job, io::Lane::kUrgent);
  }
}

const std::byte* EmbeddingReader::finish(size_t i) {
  io::ReadJob& job = jobs_[i];
  const std::span<const std::byte> row(job.payload(), job.length);
  for (int attempt = 0;; ++attempt) {
    io_.wait(job);
    if (checksum(row) == table_.checksums[job.context_id]) break;
    if (attempt > 0) {
      throw Error(ErrorKind::kRead,
                  fmt::format("{}: the bytes at {} ({} bytes, {}) do not match the checksum that "
                              "was recorded when packing, read twice; check the drive and download "
                              "the shard again",
                              io_.path(job).string(), job.offset, job.length, describe_row(job)));
    }
    ++checksum_retries_;
    io_.request(job, io::Lane::kUrgent);
  }
  read_bytes_ += job.length;
  return row.data();
}

}  // namespace k3::weights
