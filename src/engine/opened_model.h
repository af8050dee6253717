// A checkpoint and its trunk file, opened and found to belong together. Reads no weights.
#pragma once

#include <filesystem>

#include "model/config.h"
#include "weights/trunk_file.h"

namespace k3::engine {

struct OpenedModel {
  std::filesystem::path directory;
  model::Config config;
  weights::TrunkFile trunk;

  /// Vocabulary rows of the largest chunk of the output head.
  size_t head_chunk_rows() const;
  Bytes expert_payload() const;
};

/// Error(kCheckpoint) unless a step of this configuration can take the trunk file blindly, chunk by
/// chunk: its tensors in the order of use, matrices in chunks of their own, the small tensors of a
/// layer in one chunk, experts and embedding of the sizes that the kernels read.
void require_fitting_trunk(const weights::TrunkFile& trunk, const model::Config& config);

/// Error(kCheckpoint) when there is no trunk file (saying how to make one), when it was made from
/// another checkpoint, or when its order of use is not that of this configuration.
OpenedModel open_model(const std::filesystem::path& directory, const std::filesystem::path& trunk);

}  // namespace k3::engine
