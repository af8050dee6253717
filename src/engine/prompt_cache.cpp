#include "engine/prompt_cache.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <regex>
#include <system_error>

#include "base/hash.h"
#include "base/log.h"
#include "k3/error.h"

namespace k3::engine {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kExtension = ".k3seq";

/// Every name begins with this.
std::string model_prefix(const ModelIdentity& model) {
  return fmt::format("{:016x}{:016x}-", model.config, model.weights);
}

/// The number of ids in a name of this model; none for other files.
std::optional<uint64_t> length_in_name(const std::string& name, const std::string& prefix) {
  if (name.compare(0, prefix.size(), prefix) != 0) return std::nullopt;
  uint64_t length = 0;
  const auto parsed =
      std::from_chars(name.data() + prefix.size(), name.data() + name.size(), length);
  return parsed.ec == std::errc() ? std::optional(length) : std::nullopt;
}

/// Snapshots of any model as path_for() names them, and what killed runs left of them. Nothing else
/// in the directory is the cache's to remove.
bool is_own(const fs::directory_entry& entry) {
  static const std::regex form(R"([0-9a-f]{32}-[0-9]+-[0-9a-f]{16}\.k3seq(\.partial)?)");
  std::error_code ignored;
  return fs::is_regular_file(entry.symlink_status(ignored)) &&
         std::regex_match(entry.path().filename().string(), form);
}

/// With nothing left to take in, what comes next must be known.
bool serves(const SnapshotReader& snapshot, std::span<const uint32_t> prompt) {
  return snapshot.begins(prompt) && (snapshot.position() < prompt.size() || snapshot.has_logits());
}

/// What the directory holds, as far as it can be read; `error` says why no further.
std::vector<fs::directory_entry> entries_of(const fs::path& directory, std::error_code& error) {
  std::vector<fs::directory_entry> entries;
  for (fs::directory_iterator at(directory, error), end; !error && at != end; at.increment(error)) {
    entries.push_back(*at);
  }
  return entries;
}

}  // namespace

PromptCache::PromptCache(fs::path directory, const ModelIdentity& model)
    : directory_(std::move(directory)), model_(model) {
  std::error_code error;
  fs::create_directories(directory_, error);
  if (!fs::is_directory(directory_, error)) {
    throw Error(ErrorKind::kUsage,
                fmt::format("the prompt cache {} is no directory and cannot be made one; name "
                            "another place",
                            directory_.string()));
  }
}

fs::path PromptCache::path_for(std::span<const uint32_t> taken_in) const {
  return directory_ / fmt::format("{}{}-{:016x}{}", model_prefix(model_), taken_in.size(),
                                  checksum(std::as_bytes(taken_in)), kExtension);
}

std::vector<fs::path> PromptCache::named_for(std::span<const uint32_t> prompt) const {
  std::error_code error;
  const std::vector<fs::directory_entry> entries = entries_of(directory_, error);
  if (error) {
    throw Error(ErrorKind::kUsage,
                fmt::format("the prompt cache {} cannot be read: {}; name another place",
                            directory_.string(), error.message()));
  }
  std::vector<std::pair<uint64_t, fs::path>> found;
  for (const fs::directory_entry& entry : entries) {
    const auto length = length_in_name(entry.path().filename().string(), model_prefix(model_));
    if (!length || *length == 0 || *length > prompt.size()) continue;
    if (path_for(prompt.first(*length)).filename() != entry.path().filename()) continue;
    found.emplace_back(*length, entry.path());
  }
  std::ranges::sort(found, std::greater<>(), &std::pair<uint64_t, fs::path>::first);
  std::vector<fs::path> paths;
  for (auto& [length, path] : found) paths.push_back(std::move(path));
  return paths;
}

std::vector<SnapshotReader> PromptCache::find(std::span<const uint32_t> prompt) const {
  std::vector<SnapshotReader> found;
  for (const fs::path& path : named_for(prompt)) {
    try {
      SnapshotReader snapshot(path);
      snapshot.require_model(model_);
      if (serves(snapshot, prompt)) found.push_back(std::move(snapshot));
    } catch (const Error& error) {
      drop(path, error);
    }
  }
  return found;
}

void PromptCache::drop(const fs::path& snapshot, const std::exception& why) {
  log::warn(fmt::format("the prompt cache loses a snapshot: {}", why.what()));
  std::error_code ignored;  // another process may have removed it
  fs::remove(snapshot, ignored);
}

void PromptCache::mark_used(const fs::path& snapshot) {
  std::error_code ignored;  // another process may have removed it
  fs::last_write_time(snapshot, fs::file_time_type::clock::now(), ignored);
}

void PromptCache::prune() const {
  std::vector<std::pair<fs::file_time_type, fs::path>> all;
  std::error_code error, ignored;
  for (const fs::directory_entry& entry : entries_of(directory_, error)) {
    if (!is_own(entry)) continue;
    all.emplace_back(entry.last_write_time(ignored), entry.path());
  }
  if (error) {
    log::warn(fmt::format("the prompt cache {} cannot be read, nothing is removed from it: {}",
                          directory_.string(), error.message()));
    return;
  }
  std::ranges::sort(all, std::greater<>());
  for (size_t i = kSnapshotsMax; i < all.size(); ++i) fs::remove(all[i].second, ignored);
}

}  // namespace k3::engine
