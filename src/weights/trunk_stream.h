// The trunk as a cyclic stream of chunks with one consumer.
//
// Pinned chunks stay in memory (read once, on first use); the others pass through the ring on every
// pass. Reads are asked for ahead of use, in file order, as far as the ring allows, across layers
// and across the end of a pass. Everything here runs on the consumer's thread; the reads themselves
// are the I/O thread's.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "io/io_thread.h"
#include "weights/trunk_file.h"

namespace k3::weights {

/// Chunks that stay in memory: spread evenly over the pass, because with a prefix the drive would
/// idle while the pinned part is computed and the compute while the rest is read. Returns one flag
/// a chunk; the padded sizes of the flagged chunks sum to at most `capacity`.
std::vector<bool> choose_pinned(std::span<const ChunkRecord> chunks, Bytes capacity);

/// Memory that a chunk takes in the ring or pinned: its stored bytes in whole blocks.
uint64_t padded_bytes(const ChunkRecord& chunk);

struct ChunkView {
  const ChunkRecord* record;
  std::span<const SegmentRecord> segments;
  const std::byte* bytes;  // stored bytes; valid until the next call of next()
};

struct TrunkStreamStats {
  uint64_t streamed_bytes = 0;  // stored bytes of chunks that were read from the file and used
  uint64_t checksum_retries = 0;
};

class TrunkStream {
 public:
  struct Memory {
    std::span<std::byte> ring;
    std::span<std::byte> pinned;  // at least the padded bytes of the pinned chunks
  };
  /// Verified at the first read in this process, or at every read.
  enum class Check { kFirst, kAlways };

  /// The smallest ring: two of the largest chunks, so that one is read while one is used.
  static Bytes ring_minimum(std::span<const ChunkRecord> chunks);

  TrunkStream(const TrunkFile& file, io::FileId id, io::IoThread& io, Memory memory,
              std::vector<bool> pinned, Check check);
  ~TrunkStream();
  TrunkStream(const TrunkStream&) = delete;
  TrunkStream& operator=(const TrunkStream&) = delete;

  /// Starts a pass over all chunks. With `another_follows` the reader runs ahead into the next
  /// pass. A pass that an error has ended is given up: what was asked for in it is waited for.
  void begin_pass(bool another_follows);
  /// The next chunk in order; ends the use of the one before. Error(kRead) when reading failed,
  /// the checksum is wrong twice, or a packed chunk contradicts itself.
  ChunkView next();

  const TrunkStreamStats& stats() const { return stats_; }

 private:
  static constexpr size_t kEntriesMax = 256;  // chunks asked for ahead

  struct Entry {
    io::ReadJob job;
    uint32_t chunk = 0;
    std::byte* bytes = nullptr;
    bool reading = false;
    uint64_t ring_bytes = 0;  // taken in the ring, skipped end included
  };

  void read_ahead();
  bool start(uint64_t sequence);
  std::byte* take_ring(uint64_t size, uint64_t* taken);
  void retire_front();
  void abandon();
  void settle();
  void verify(Entry& entry);
  void check_codec(const Entry& entry) const;

  const TrunkFile& file_;
  io::FileId id_;
  io::IoThread& io_;
  Memory memory_;
  Check check_;
  std::vector<uint64_t> pinned_offset_;  // by chunk; kNotPinned
  std::vector<bool> resident_;           // pinned and read
  std::vector<bool> verified_;

  // Chunks in sequence: number s is chunk s % count. [front_, ahead_) have an entry.
  std::vector<Entry> entries_;
  uint64_t front_ = 0;
  uint64_t ahead_ = 0;
  uint64_t pass_end_ = 0;  // of the pass at hand
  uint64_t limit_ = 0;     // read ahead up to here
  bool in_use_ = false;    // the front entry was handed out
  uint64_t ring_head_ = 0;
  uint64_t ring_used_ = 0;
  TrunkStreamStats stats_;
};

}  // namespace k3::weights
