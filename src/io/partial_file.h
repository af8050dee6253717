// A file that appears whole or not at all: it is written as NAME.partial, synced and renamed. A
// later run can continue the partial one. An exclusive lock keeps two writers apart.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>

#include "base/unique_fd.h"
#include "k3/units.h"

namespace k3::io {

class PartialFile {
 public:
  enum class Mode { kContinue, kFresh };

  /// Opens NAME.partial next to `target` (creating it) and locks it. Error(kUsage) when another
  /// process holds it, when the directory cannot be written, or when the target is not a regular
  /// file; it says that `option` names another place.
  PartialFile(std::filesystem::path target, Mode mode, const char* option = "-o");
  /// Leaves NAME.partial where it is, unless commit() or discard() was called or it is empty.
  ~PartialFile();
  PartialFile(const PartialFile&) = delete;
  PartialFile& operator=(const PartialFile&) = delete;

  /// NAME.partial.
  static std::filesystem::path partial_of(const std::filesystem::path& target);

  int fd() const { return fd_.get(); }
  uint64_t size() const;  // of the partial file now
  const std::filesystem::path& partial_path() const { return partial_; }

  /// Writes at an offset. All-zero aligned blocks beyond the end stay holes. Error(kInternal)
  /// naming the path on failure (ENOSPC: with the space needed).
  void write(uint64_t offset, std::span<const std::byte> bytes);
  /// Writes all of it, past the page cache where the file system allows that: there it is several
  /// times as fast. Offset, length and address are multiples of kBlockSize. Errors as for write().
  void write_blocks(uint64_t offset, std::span<const std::byte> bytes);
  void truncate(uint64_t size);
  void sync();
  /// Starts to write a range out to the drive; finish_write_back() starts it too, waits for it, and
  /// drops it from the page cache. Error(kInternal) when the drive has refused any of it: told
  /// once, to these calls or to sync(). Nothing happens where the file system has no such call.
  void start_write_back(uint64_t offset, uint64_t bytes);
  void finish_write_back(uint64_t offset, uint64_t bytes);
  /// Syncs, renames to the target and syncs the directory. The last call, as is discard(), which
  /// removes the partial file.
  void commit();
  void discard();
  /// True once commit() has given the file its name, even if syncing the directory then failed.
  bool renamed() const { return renamed_; }

 private:
  std::filesystem::path target_;
  std::filesystem::path partial_;
  UniqueFd fd_;
  bool renamed_ = false;
  UniqueFd direct_;  // the same file with O_DIRECT; invalid where that is refused
};

/// Bytes free for an unprivileged writer on the file system of `path`'s directory; more than
/// anybody needs where it does not tell (ramfs).
Bytes free_space(const std::filesystem::path& path);

}  // namespace k3::io
