// Routed experts in a fixed number of slots.
//
// A layer asks for its experts once per pass, ascending, and then takes them one by one in that
// order. A slot is empty, loading, ready or in use by the caller; ready ones are kept and found
// again (least recently used goes first), so that spare slots are the expert cache. Runs on the
// consumer's thread; the reads are the I/O thread's, each expert in as many pieces as it lies in
// the shard.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "io/io_thread.h"
#include "weights/trunk_file.h"

namespace k3::weights {

struct ExpertView {
  uint32_t expert;
  std::array<const std::byte*, kExpertParts> part;  // ExpertPart order; valid until the next next()
};

struct ExpertStats {
  uint64_t read_bytes = 0;  // payload of experts that were read and used
  uint64_t uses = 0;
  uint64_t hits = 0;  // uses that needed no read
  uint64_t checksum_retries = 0;
};

class ExpertCache {
 public:
  struct Options {
    uint32_t first_layer;            // layer number of layer rank 0, for messages
    std::vector<io::FileId> shards;  // by the trunk file's shard number
    // Rows of the scale tensors, for messages: w1, w2, w3.
    std::array<uint64_t, 3> scale_rows;
  };

  /// Bytes of one slot: the largest expert with its pieces widened to blocks.
  static Bytes slot_bytes(const TrunkFile& file);
  /// Slots that let one expert be read while another is used.
  static constexpr size_t kSlotsMinimum = 2;

  ExpertCache(const TrunkFile& file, io::IoThread& io, std::span<std::byte> memory,
              Options options);
  ~ExpertCache();
  ExpertCache(const ExpertCache&) = delete;
  ExpertCache& operator=(const ExpertCache&) = delete;

  /// Starts on the experts of a layer: ascending, without repeats. What is left of the request
  /// before, which an error has ended, is given up: its reads are waited for.
  void request(uint32_t layer_rank, std::span<const uint16_t> experts);
  /// The next expert of the request. Error(kRead) when it cannot be read, when a scale byte is 255
  /// (NaN: layer, expert, matrix, row), or when its recorded checksum differs twice.
  ExpertView next();

  size_t slots() const { return slots_.size(); }
  const ExpertStats& stats() const { return stats_; }

 private:
  enum class SlotState : uint8_t { kEmpty, kLoading, kReady };
  struct Slot {
    SlotState state = SlotState::kEmpty;
    uint32_t key = 0;  // layer_rank * experts + expert
    uint64_t last_use = 0;
    bool wanted = false;  // by the current request, not taken yet
    std::byte* memory = nullptr;
    std::array<io::ReadJob, kExpertParts> jobs;
    size_t job_count = 0;
    std::array<const std::byte*, kExpertParts> part{};
  };
  static constexpr int32_t kNoSlot = -1;

  void abandon();
  void fill();
  int32_t free_slot(uint32_t for_key) const;
  void start(int32_t slot, uint32_t key);
  void load(Slot& slot);
  void finish(Slot& slot);
  void check_scales(const Slot& slot) const;
  bool checksum_matches(const Slot& slot) const;
  std::string describe(uint32_t key) const;
  /// The same with the shard and the places there.
  std::string locate(const Slot& slot) const;
  static std::string describe_job(const io::ReadJob& job);

  const TrunkFile& file_;
  io::IoThread& io_;
  Options options_;
  uint32_t per_layer_;
  std::vector<Slot> slots_;
  std::vector<int32_t> slot_of_;   // by key
  std::vector<uint32_t> request_;  // keys, ascending
  size_t taken_ = 0;
  size_t started_ = 0;  // request_[0, started_) are in a slot or were taken
  int32_t in_use_ = kNoSlot;
  uint64_t clock_ = 0;
  ExpertStats stats_;
};

}  // namespace k3::weights
