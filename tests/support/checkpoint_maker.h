// Writes small random checkpoints in the released layout: nested config.json, one shard for each
// layer and one for the output, tensors sorted by dtype (F32, BF16, U8) and name, experts in MXFP4.
//
// It spells names and shapes by itself, on purpose: a binder that looks for fewer or other tensors
// than the format has must not find a checkpoint made by its own list.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/json.h"

namespace k3::test {

struct TensorForm {
  std::string dtype;  // "F32", "BF16", "U8"; other dtypes are written as zeros
  std::vector<uint64_t> shape;
};

struct CheckpointSpec {
  Json config;        // nested; written as config.json, and the shapes follow it
  uint64_t seed = 1;  // same config and seed, same bytes

  /// 0: the released layout. N > 1: N - 1 shards of whole layers and one of the output. 1: all in
  /// one.
  size_t shards = 0;
  bool single_file = false;       // model.safetensors without an index
  bool experts_w1_w3_w2 = false;  // expert tensors in this order in place of w1, w2, w3

  std::set<std::string> drop = {};                 // names in no shard and not in the index
  std::map<std::string, TensorForm> reshape = {};  // stored in this form (other bytes than before)
  std::map<std::string, TensorForm> extra = {};    // more tensors, in the last shard
  std::map<std::string, std::string> move = {};    // tensor name -> the shard it is stored in
  std::map<std::string, std::string> raw_header = {};  // shard name -> header JSON written in place
};

/// The nested config of a model with seven layers, two blocks after the first, two MLA layers, one
/// dense layer, eight experts; most widths are no multiple of any vector length.
Json tiny_config();

/// A dense KDA layer, then a KDA and an MLA layer with one expert: every kind of tensor, quickly
/// written.
Json three_layer_config();

/// Writes config.json, the shards and model.safetensors.index.json into `directory` (made if
/// absent).
void make_checkpoint(const std::filesystem::path& directory, const CheckpointSpec& spec);
inline void make_checkpoint(const std::filesystem::path& directory) {
  make_checkpoint(directory, CheckpointSpec{.config = tiny_config()});
}

/// Gives the shards names with another end than .safetensors, in the index too.
void rename_shards(const std::filesystem::path& directory, const std::string& extension);

struct MadeTensor {
  std::string name;
  TensorForm form;
  std::string shard;
};
/// What make_checkpoint writes, shard by shard in the order of the data.
std::vector<MadeTensor> list_tensors(const CheckpointSpec& spec);

/// A safetensors file: 8 bytes of length, the header, then the data. `length` other than the size
/// of the header makes a damaged one.
void write_safetensors(const std::filesystem::path& path, const std::string& header,
                       const std::string& data);
void write_safetensors(const std::filesystem::path& path, uint64_t length,
                       const std::string& header, const std::string& data);

}  // namespace k3::test
