// A sequence in a file: the ids that it came from, its states, its latent cache and the logits of
// its last position, so that a run can go on in another process with the bits of one that never
// stopped. docs/snapshots.md is the page.
//
//   [SnapshotHeader] [ids] [KDA states] [convolution tails] [cache rows, layer by layer] [logits]
//   [checksum of all before]
//
// All integers little-endian, all floats fp32. Written straight from the planned memory and read
// straight into it: neither side needs memory of its own beyond the ids.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string_view>
#include <vector>

#include "base/unique_fd.h"
#include "model/config.h"
#include "model/state.h"
#include "weights/trunk_file.h"

namespace k3::engine {

inline constexpr char kSnapshotMagic[8] = {'K', '3', 'S', 'N', 'A', 'P', 'S', '\n'};
inline constexpr uint32_t kSnapshotVersion = 1;

/// Which model a sequence belongs to: its configuration, and the shards that its trunk was made
/// from (name, size, hash of the header, hash of sampled blocks).
struct ModelIdentity {
  uint64_t config = 0;
  uint64_t weights = 0;
  bool operator==(const ModelIdentity&) const = default;
};
ModelIdentity model_identity(const weights::TrunkFile& trunk);

struct SnapshotHeader {
  char magic[8];
  uint32_t version;
  uint32_t header_bytes;  // sizeof(SnapshotHeader)
  ModelIdentity model;
  uint64_t position;         // ids taken in
  uint64_t id_count;         // ids taken in, then those pending: known, not taken in yet
  uint64_t state_bytes;      // KDA states, convolution tails, cache rows
  uint64_t logits_bytes;     // 0: the logits of the last position are not known
  uint64_t ids_checksum;     // XXH3-64
  uint64_t header_checksum;  // XXH3-64 of the fields above
};
static_assert(sizeof(SnapshotHeader) == 80);

/// A sequence as the engine holds it.
struct Sequence {
  model::SequenceState& state;
  std::span<float> logits;  // [vocab_size]: of the last position taken in, if has_logits
  bool has_logits = false;
  bool whole = true;      // false after a step that failed and could not be undone
  std::span<float> undo;  // [KDA states, tails] before the step at hand; empty: no undo
};

/// Writes the sequence; `ids` are all of it, those taken in first. A snapshot there before is
/// replaced when the new file is complete. Error(kUsage) when the place cannot be written or a file
/// of another kind is there,
/// Error(kInternal) when writing fails; then the file there before is untouched and nothing is left
/// beside it.
void write_snapshot(const std::filesystem::path& file, const ModelIdentity& model,
                    const model::Config& config, const Sequence& sequence,
                    std::span<const uint32_t> ids);
/// Error(kUsage) unless a snapshot could be written there. Removes what a killed write has left.
void check_snapshot_place(const std::filesystem::path& file);

class SnapshotReader {
 public:
  /// Opens and reads header and ids. Error(kCheckpoint) when it is missing, no snapshot, of another
  /// version, cut, or damaged there.
  explicit SnapshotReader(const std::filesystem::path& file);

  const std::filesystem::path& path() const { return path_; }
  const std::vector<uint32_t>& ids() const { return ids_; }  // taken in, then pending
  uint64_t position() const { return header_.position; }
  bool has_logits() const { return header_.logits_bytes > 0; }

  /// True when all ids taken in are the first of `prompt`.
  bool begins(std::span<const uint32_t> prompt) const;
  /// Error(kCheckpoint) when it belongs to another model.
  void require_model(const ModelIdentity& model) const;
  /// Error(kCheckpoint) when any byte of the file is wrong, Error(kRead) when it cannot be read;
  /// then the sequence is reset.
  void restore(const model::Config& config, Sequence& sequence) const;

 private:
  void read(uint64_t offset, std::span<std::byte> out, std::string_view what) const;
  void read_header();
  /// Fills them with what follows the ids, and checks the checksum of all.
  void read_sections(const std::vector<std::span<float>>& sections) const;
  [[noreturn]] void refuse(const std::string& found) const;

  std::filesystem::path path_;
  UniqueFd fd_;
  SnapshotHeader header_{};
  std::vector<uint32_t> ids_;
};

}  // namespace k3::engine
