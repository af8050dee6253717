// Where every tensor of a checkpoint lies, for the tensors that the model asks for, in a few MB.
//
// The caller lists the tensors it needs (model/tensor_names, model/trunk_order); opening reads
// model.safetensors.index.json and all shard headers once, checks them against each other, and
// keeps locations for the needed tensors only. Tensors are found by name, wherever they lie.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "k3/error.h"
#include "weights/dtype.h"

namespace k3::weights {

struct ShardInfo {
  std::string name;  // file name inside the model directory
  uint64_t bytes;
  uint64_t header_hash;  // XXH3-64 of the safetensors header
  uint64_t tensor_count;
};

struct TensorLocation {
  uint32_t shard;  // index into CheckpointIndex::shards()
  DType dtype;
  uint64_t offset;  // in the shard file
  uint64_t bytes;
  std::vector<uint64_t> shape;
};

/// The six tensors of one expert, in this order everywhere.
enum class ExpertPart : uint8_t { kW1Packed, kW1Scale, kW2Packed, kW2Scale, kW3Packed, kW3Scale };
inline constexpr size_t kExpertParts = 6;

struct ExpertLocation {
  uint32_t shard;                 // all six lie in one shard
  uint64_t offset[kExpertParts];  // in the shard file
};

/// What to look for. Sizes are checked against the shard headers.
struct ExpertShape {
  uint64_t part_bytes[kExpertParts];
  std::vector<uint64_t> part_shape[kExpertParts];
};

/// Tells the index which expert tensor a name is, if it is one: model/tensor_names knows.
struct ExpertName {
  uint32_t layer;
  uint32_t expert;
  ExpertPart part;
};
using ExpertNameParser = std::function<std::optional<ExpertName>(std::string_view name)>;

struct CheckpointRequest {
  std::vector<std::string> tensors;     // names that must exist (any dtype and shape)
  std::vector<uint32_t> expert_layers;  // layers that have experts
  uint32_t experts_per_layer = 0;
  ExpertShape expert_shape;
  ExpertNameParser parse_expert;
};

class CheckpointIndex {
 public:
  /// Reads and checks everything. Error(kCheckpoint): all missing or damaged shards are listed, not
  /// only the first; then whatever is wrong across files (spec section 3). Error(kRead), with the
  /// same list, when reading one of them failed.
  static CheckpointIndex open(const std::filesystem::path& directory,
                              const CheckpointRequest& request);

  /// As open, but what is wrong is appended to `problems`, one line each. The index may be used
  /// only if there was nothing.
  static CheckpointIndex inspect(const std::filesystem::path& directory,
                                 const CheckpointRequest& request,
                                 std::vector<std::string>& problems);

  const std::vector<ShardInfo>& shards() const { return shards_; }
  /// The location of request.tensors[i].
  const TensorLocation& tensor(size_t i) const { return tensors_[i]; }
  /// The location of an expert of request.expert_layers[layer_rank].
  const ExpertLocation& expert(size_t layer_rank, uint32_t expert) const {
    return experts_[layer_rank * experts_per_layer_ + expert];
  }

 private:
  friend class IndexBuilder;

  std::vector<ShardInfo> shards_;
  std::vector<TensorLocation> tensors_;
  std::vector<ExpertLocation> experts_;
  uint32_t experts_per_layer_ = 0;
  ErrorKind kind_of_problems_ = ErrorKind::kCheckpoint;
};

/// Files that the index (model.safetensors.index.json) names, sorted; and those of them that are
/// missing. A single-file checkpoint (model.safetensors without an index) names that file.
struct ShardListing {
  std::vector<std::string> names;
  std::vector<std::string> missing;
};
ShardListing list_shards(const std::filesystem::path& directory);

}  // namespace k3::weights
