// What a path given as a model directory really is: people point at a shard, at another program's
// file or at a download that left a placeholder, and the message should say so.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace k3::weights {

/// Error(kCheckpoint) unless `path` is a directory, saying what was found in its place.
void require_model_directory(const std::filesystem::path& path);

/// "a GGUF file", "a Git LFS pointer, not the file itself", ... by the first bytes of a file (32
/// are enough); "an unknown kind of file" otherwise.
std::string describe_content(std::string_view first_bytes);

}  // namespace k3::weights
