// Writes a trunk file from a checkpoint: restartable, and under its final name only when complete.
#pragma once

#include <filesystem>
#include <functional>

#include "k3/units.h"
#include "weights/checkpoint_index.h"
#include "weights/trunk_codec.h"
#include "weights/trunk_layout.h"

namespace k3::weights {

struct PackProgress {
  uint64_t chunks_done;
  Bytes raw_done;
  Bytes raw_total;
  Bytes stored_done;
  Bytes resumed;      // found finished in a partial file of an interrupted run
  Bytes hashed_done;  // of the embedding table and, if asked for, the experts: after all chunks
  Bytes hashed_total;
};

struct PackOptions {
  bool expert_checksums = false;                      // hash every expert's bytes too
  CodecChoice codec = CodecChoice::kLossless;         // how matrices are stored
  std::function<void(const PackProgress&)> progress;  // called often; may throw to stop
};

/// What to pack. tensors[i] is request.tensors[i] of the index; the embedding is the last request
/// tensor.
struct PackInput {
  std::filesystem::path directory;
  const CheckpointIndex* index;
  const std::vector<TrunkTensor>* tensors;
  uint64_t config_fingerprint;
  uint32_t first_expert_layer;  // for messages
  uint32_t expert_layer_count;
  uint32_t experts_per_layer;
  uint64_t expert_part_bytes[kExpertParts];
  uint64_t chunk_bytes = kChunkBytes;
};

struct PackResult {
  Bytes resumed;  // raw bytes found finished in a partial file of an interrupted run
};

/// Free space below which packing is not begun: all that the trunk takes raw, or for a lossless
/// codec the share of it that weights of this kind take packed. 0.7045 and 0.7098 were measured
/// (docs/trunk-format.md); what packs worse may run out of space, and is then continued.
inline constexpr double kLosslessShare = 0.70;
Bytes least_space(Bytes raw, CodecChoice codec);

/// Writes `target` (through target.partial). Error(kCheckpoint) when a trunk weight is not finite
/// (tensor, row, column); Error(kUsage) when the target cannot be written; the space needed is
/// checked before the first byte. The result is byte-identical however often it was interrupted.
PackResult write_trunk(const PackInput& input, const std::filesystem::path& target,
                       const PackOptions& options);

/// Reads the trunk file back and compares every row with the checkpoint, byte for byte, and those
/// of the embedding with their checksums. Error(kCheckpoint) naming the first tensor and row that
/// differ.
void verify_trunk_content(const std::filesystem::path& trunk,
                          const std::filesystem::path& directory, const CheckpointIndex& index,
                          const std::vector<TrunkTensor>& tensors,
                          const std::function<void(Bytes done, Bytes total)>& progress);

}  // namespace k3::weights
