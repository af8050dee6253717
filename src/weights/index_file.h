// model.safetensors.index.json, streamed: at the full shape it is 60 MB with 497,220 names, in no
// order.
#pragma once

#include <filesystem>
#include <functional>
#include <string>

namespace k3::weights {

inline constexpr const char* kIndexFile = "model.safetensors.index.json";
/// A checkpoint of one file has no index.
inline constexpr const char* kSingleFile = "model.safetensors";

/// Calls `visit` for every entry of weight_map. Error(kCheckpoint) if the file is not such an
/// index, or names a shard that is not a plain file name (a path could lead anywhere).
void read_index_file(
    const std::filesystem::path& path,
    const std::function<void(const std::string& tensor, const std::string& shard)>& visit);

}  // namespace k3::weights
