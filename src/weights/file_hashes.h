// SHA-256 of whole files against a list: the one beside the model, or that of the release.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "k3/units.h"

namespace k3::weights {

struct KnownFile {
  std::string name;  // in the model directory
  std::optional<uint64_t> bytes;
  std::string sha256;  // lower-case hexadecimal
};

/// The lines of `directory`/SHA256SUMS (as sha256sum writes them), or the published shards where
/// there is no such file. Error(kCheckpoint) for a damaged list, or when the directory holds no
/// shard of the release and no list.
std::vector<KnownFile> known_files(const std::filesystem::path& directory);

/// Reads every file, several at once; one line for each that is missing, unreadable, of another
/// size or of another hash, in the order of `files`. `progress` is called now and then from the
/// calling thread; what it throws ends the work.
std::vector<std::string> damaged_files(
    const std::filesystem::path& directory, const std::vector<KnownFile>& files,
    const std::function<void(Bytes done, Bytes total)>& progress);

}  // namespace k3::weights
