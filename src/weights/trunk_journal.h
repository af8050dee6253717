// The journal of an unfinished trunk file: which chunks lie in it, so that a later run continues.
//
// It lies in the partial file itself, beyond everything that the finished file will hold, and is
// cut off at the end: one file, and nothing of the journal in the result. Each entry carries its
// own checksum; entries count up to the first one that does not fit. A journal of another plan
// (another checkpoint, other options, another version of the format) is not continued.
#pragma once

#include <cstdint>
#include <vector>

#include "io/partial_file.h"
#include "weights/trunk_format.h"

namespace k3::weights {

class TrunkJournal {
 public:
  /// What an unfinished trunk file begins with, where the finished one has its own magic.
  static constexpr char kMagic[8] = {'K', '3', 'P', 'A', 'C', 'K', '1', '\n'};

  struct Shape {
    uint64_t offset;  // in the partial file, beyond the end of the finished one
    uint64_t plan;    // checksum of all that decides the finished file's bytes
    uint64_t chunk_count;
    uint64_t expert_count;  // 0 without expert checksums
  };

  /// Takes up the journal in `file` if it is of this shape; otherwise empties the file and starts
  /// one. `file` must outlive the journal.
  TrunkJournal(io::PartialFile& file, const Shape& shape);

  /// What an interrupted run finished: the first chunks, and checksums of the first experts.
  const std::vector<ChunkRecord>& chunks() const { return chunks_; }
  const std::vector<uint64_t>& expert_checksums() const { return experts_; }

  /// Forgets all chunks but the first `count`, and with them whatever the file holds from `end` on.
  void keep(uint64_t count, uint64_t end);
  /// Notes that chunk `number` (0, 1, ...) was written.
  void add_chunk(uint64_t number, const ChunkRecord& chunk);
  void add_expert_checksum(uint64_t number, uint64_t checksum);

  static uint64_t bytes_needed(uint64_t chunk_count, uint64_t expert_count);

 private:
  bool take_up();
  void start();

  io::PartialFile& file_;
  Shape shape_;
  std::vector<ChunkRecord> chunks_;
  std::vector<uint64_t> experts_;
};

}  // namespace k3::weights
