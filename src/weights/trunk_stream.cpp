#include "weights/trunk_stream.h"

#include <fmt/format.h>

#include "base/check.h"
#include "base/hash.h"
#include "k3/error.h"
#include "weights/trunk_codec.h"

namespace k3::weights {
namespace {
constexpr uint64_t kNotPinned = ~uint64_t{0};
__extension__ typedef unsigned __int128 Uint128;

std::string describe_job(const io::ReadJob& job) {
  const auto& file = *static_cast<const TrunkFile*>(job.context);
  return file.describe(file.chunks()[job.context_id]);
}
}  // namespace

uint64_t padded_bytes(const ChunkRecord& chunk) {
  return io::block_ceil(chunk.stored_bytes);
}

std::vector<bool> choose_pinned(std::span<const ChunkRecord> chunks, Bytes capacity) {
  Uint128 total = 0;
  for (const ChunkRecord& chunk : chunks) total += padded_bytes(chunk);
  std::vector<bool> pinned(chunks.size());
  Uint128 seen = 0, taken = 0;
  for (size_t i = 0; i < chunks.size(); ++i) {
    const uint64_t size = padded_bytes(chunks[i]);
    seen += size;
    // Invariant: taken / seen <= capacity / total, so the pinned bytes keep pace with the pass and
    // never exceed the capacity.
    if ((taken + size) * total <= seen * capacity.value) {
      pinned[i] = true;
      taken += size;
    }
  }
  return pinned;
}

Bytes TrunkStream::ring_minimum(std::span<const ChunkRecord> chunks) {
  uint64_t largest = 0;
  for (const ChunkRecord& chunk : chunks) largest = std::max(largest, padded_bytes(chunk));
  return Bytes{2 * largest};
}

TrunkStream::TrunkStream(const TrunkFile& file, io::FileId id, io::IoThread& io, Memory memory,
                         std::vector<bool> pinned, Check check)
    : file_(file),
      id_(id),
      io_(io),
      memory_(memory),
      check_(check),
      pinned_offset_(file.chunks().size(), kNotPinned),
      resident_(file.chunks().size()),
      verified_(file.chunks().size()),
      entries_(kEntriesMax) {
  K3_CHECK(memory_.ring.size() >= ring_minimum(file.chunks()).value);
  uint64_t offset = 0;
  for (size_t i = 0; i < pinned.size(); ++i) {
    if (!pinned[i]) continue;
    pinned_offset_[i] = offset;
    offset += padded_bytes(file.chunks()[i]);
  }
  K3_CHECK(offset <= memory_.pinned.size());
}

TrunkStream::~TrunkStream() {
  settle();
}

void TrunkStream::begin_pass(bool another_follows) {
  if (in_use_) retire_front();
  if (front_ != pass_end_) abandon();
  const uint64_t count = file_.chunks().size();
  pass_end_ = front_ + count;
  limit_ = pass_end_ + (another_follows ? count : 0);
  read_ahead();
}

void TrunkStream::abandon() {
  settle();
  for (Entry& entry : entries_) entry.reading = false;
  front_ = ahead_ = pass_end_;
  ring_head_ = ring_used_ = 0;
}

void TrunkStream::settle() {
  for (uint64_t s = front_; s < ahead_; ++s) {
    Entry& entry = entries_[s % kEntriesMax];
    if (entry.reading) io_.settle(entry.job);
  }
}

ChunkView TrunkStream::next() {
  if (in_use_) retire_front();
  read_ahead();
  K3_CHECK(front_ < ahead_);
  Entry& entry = entries_[front_ % kEntriesMax];
  const ChunkRecord& chunk = file_.chunks()[entry.chunk];
  if (entry.reading) {
    io_.wait(entry.job);
    verify(entry);
    check_codec(entry);
    entry.reading = false;
    stats_.streamed_bytes += chunk.stored_bytes;
    if (pinned_offset_[entry.chunk] != kNotPinned) resident_[entry.chunk] = true;
  }
  in_use_ = true;
  return {&chunk, file_.segments(chunk), entry.bytes};
}

void TrunkStream::read_ahead() {
  while (ahead_ < limit_ && ahead_ - front_ < kEntriesMax && start(ahead_)) ++ahead_;
}

bool TrunkStream::start(uint64_t sequence) {
  Entry& entry = entries_[sequence % kEntriesMax];
  entry.chunk = static_cast<uint32_t>(sequence % file_.chunks().size());
  const ChunkRecord& chunk = file_.chunks()[entry.chunk];
  const uint64_t pinned = pinned_offset_[entry.chunk];
  entry.ring_bytes = 0;
  if (pinned != kNotPinned) {
    entry.bytes = memory_.pinned.data() + pinned;
    // A chunk asked for in the pass before is resident by the time that it comes round again.
    if (resident_[entry.chunk]) return true;
    if (sequence >= front_ + file_.chunks().size()) return false;
  } else {
    entry.bytes = take_ring(padded_bytes(chunk), &entry.ring_bytes);
    if (entry.bytes == nullptr) return false;
  }
  entry.job.file = id_;
  entry.job.offset = chunk.offset;
  entry.job.length = chunk.stored_bytes;
  entry.job.buffer = entry.bytes;
  entry.job.what = describe_job;
  entry.job.context = &file_;
  entry.job.context_id = entry.chunk;
  entry.reading = true;
  io_.request(entry.job, io::Lane::kBackground);
  return true;
}

std::byte* TrunkStream::take_ring(uint64_t size, uint64_t* taken) {
  const uint64_t capacity = memory_.ring.size();
  if (ring_used_ == 0) ring_head_ = 0;
  // A chunk is never split: what is left at the end of the ring is skipped when it is too little.
  const bool wraps = ring_head_ + size > capacity;
  const uint64_t skipped = wraps ? capacity - ring_head_ : 0;  // 0 when it ended at the very end
  if (ring_used_ + skipped + size > capacity) return nullptr;
  if (wraps) ring_head_ = 0;
  std::byte* bytes = memory_.ring.data() + ring_head_;
  ring_head_ += size;
  *taken = skipped + size;
  ring_used_ += *taken;
  return bytes;
}

void TrunkStream::retire_front() {
  ring_used_ -= entries_[front_ % kEntriesMax].ring_bytes;
  ++front_;
  in_use_ = false;
}

void TrunkStream::verify(Entry& entry) {
  if (verified_[entry.chunk] && check_ == Check::kFirst) return;
  const ChunkRecord& chunk = file_.chunks()[entry.chunk];
  for (int attempt = 0; attempt < 2; ++attempt) {
    if (checksum({entry.bytes, chunk.stored_bytes}) == chunk.checksum) {
      verified_[entry.chunk] = true;
      return;
    }
    if (attempt > 0) break;
    ++stats_.checksum_retries;
    io_.request(entry.job, io::Lane::kUrgent);
    io_.wait(entry.job);
  }
  throw Error(
      ErrorKind::kRead,
      fmt::format("{}: the bytes at {} ({} bytes, {}) do not match their checksum, read "
                  "twice; check the drive and run `k3 pack --force` again",
                  file_.path().string(), chunk.offset, chunk.stored_bytes, file_.describe(chunk)));
}

/// At every read: a packed chunk that contradicts itself would lead the kernels out of its memory.
void TrunkStream::check_codec(const Entry& entry) const {
  const ChunkRecord& chunk = file_.chunks()[entry.chunk];
  const std::span<const std::byte> stored(entry.bytes, chunk.stored_bytes);
  if (is_sound(static_cast<Codec>(chunk.codec), stored, chunk.raw_bytes / 2)) return;
  throw Error(
      ErrorKind::kRead,
      fmt::format("{}: the packed bytes at {} ({} bytes, {}) contradict themselves; check "
                  "the drive and run `k3 pack --force` again",
                  file_.path().string(), chunk.offset, chunk.stored_bytes, file_.describe(chunk)));
}

}  // namespace k3::weights
