// A directory of snapshots that runs leave for each other (--prompt-cache).
//
// A name says all that finding needs: model, number of ids taken in, hash of those ids. The
// recurrent states exist only where they were saved, so a snapshot serves a prompt that begins with
// all of its ids, and no other. Bounded by count; the file times are those of the last use.
#pragma once

#include <cstdint>
#include <exception>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "engine/snapshot.h"

namespace k3::engine {

class PromptCache {
 public:
  static constexpr size_t kSnapshotsMax = 8;  // of all models together

  /// Creates the directory. Error(kUsage) when that fails or it is none.
  PromptCache(std::filesystem::path directory, const ModelIdentity& model);

  /// Snapshots from which `prompt` can go on, the longest first. Damaged ones are dropped.
  /// Error(kUsage) when the directory cannot be read.
  std::vector<SnapshotReader> find(std::span<const uint32_t> prompt) const;
  /// Where the sequence that has taken these ids in is kept.
  std::filesystem::path path_for(std::span<const uint32_t> taken_in) const;
  /// Removes one that proved to be damaged, with a warning.
  static void drop(const std::filesystem::path& snapshot, const std::exception& why);
  static void mark_used(const std::filesystem::path& snapshot);
  /// Removes those whose last use is longest ago until kSnapshotsMax are left. Only a warning when
  /// the directory cannot be read.
  void prune() const;

 private:
  std::vector<std::filesystem::path> named_for(std::span<const uint32_t> prompt) const;

  std::filesystem::path directory_;
  ModelIdentity model_;
};

}  // namespace k3::engine
