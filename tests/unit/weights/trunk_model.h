// A checkpoint as the trunk's tests use it: opened, with what write_trunk wants to know, and small
// chunks so that even a tiny model has many.
#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "k3/error.h"
#include "model/config.h"
#include "model/trunk_order.h"
#include "support/checkpoint_maker.h"
#include "support/test_data.h"
#include "weights/trunk_writer.h"

namespace k3::test {

struct TrunkModel {
  explicit TrunkModel(std::filesystem::path where)
      : directory(std::move(where)),
        config(model::load_config(directory)),
        tensors(model::trunk_order(config)),
        request(model::checkpoint_request(config)),
        index(weights::CheckpointIndex::open(directory, request)) {}
  TrunkModel(const TrunkModel&) = delete;

  weights::PackInput input(uint64_t chunk_bytes = 4096) const {
    weights::PackInput input{};
    input.directory = directory;
    input.index = &index;
    input.tensors = &tensors;
    input.config_fingerprint = config.fingerprint();
    input.first_expert_layer = config.dense_layers;
    input.expert_layer_count = static_cast<uint32_t>(request.expert_layers.size());
    input.experts_per_layer = request.experts_per_layer;
    std::copy_n(request.expert_shape.part_bytes, weights::kExpertParts, input.expert_part_bytes);
    input.chunk_bytes = chunk_bytes;
    return input;
  }

  weights::PackResult pack(const std::filesystem::path& target,
                           const weights::PackOptions& options = {}) const {
    return weights::write_trunk(input(), target, options);
  }

  std::filesystem::path directory;
  model::Config config;
  std::vector<weights::TrunkTensor> tensors;
  weights::CheckpointRequest request;
  weights::CheckpointIndex index;
};

/// A random checkpoint of the released layout in a directory of its own.
struct MadeModel {
  explicit MadeModel(uint64_t seed = 1) {
    make_checkpoint(dir.path() / "model", {.config = tiny_config(), .seed = seed});
  }
  std::filesystem::path directory() const { return dir.path() / "model"; }
  TempDir dir;
};

inline std::string read_bytes(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

inline void write_bytes(const std::filesystem::path& path, uint64_t offset,
                        const std::string& bytes) {
  std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
  file.seekp(static_cast<std::streamoff>(offset));
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

inline void flip_byte(const std::filesystem::path& path, uint64_t offset) {
  const char old = read_bytes(path)[offset];
  write_bytes(path, offset, std::string(1, static_cast<char>(old ^ 0x10)));
}

/// What an action throws; a message of "nothing" when it throws no Error.
template <typename Action>
Error error_of(Action&& action) {
  try {
    action();
  } catch (const Error& error) {
    return error;
  }
  return Error(ErrorKind::kInternal, "nothing");
}

inline bool mentions(const Error& error, const std::string& text) {
  return std::string(error.what()).find(text) != std::string::npos;
}

}  // namespace k3::test
