// A file opened for reading, past the page cache where the file system allows it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "base/unique_fd.h"
#include "k3/error.h"
#include "k3/units.h"

namespace k3::io {

inline constexpr size_t kBlockSize = 4096;  // alignment of direct reads: offset, length and buffer

constexpr uint64_t block_floor(uint64_t offset) {
  return offset / kBlockSize * kBlockSize;
}
constexpr uint64_t block_ceil(uint64_t offset) {
  return block_floor(offset + kBlockSize - 1);
}

class DirectFile {
 public:
  /// Opens with O_DIRECT; where that is refused (EINVAL), buffered. Error(kCheckpoint) when the
  /// path is missing, unreadable or not a regular file (symlinks are followed).
  static DirectFile open(const std::filesystem::path& path);
  /// Opens without O_DIRECT.
  static DirectFile open_buffered(const std::filesystem::path& path);
  /// The same without exceptions: 0 or an errno; EISDIR or ENOTSUP where it is not a regular file.
  static int try_open(const std::filesystem::path& path, bool direct, DirectFile* file);

  /// Makes later reads of this descriptor go through the page cache.
  void use_buffered();

  int fd() const { return fd_.get(); }
  bool direct() const { return direct_; }
  uint64_t size() const { return size_; }

 private:
  UniqueFd fd_;
  bool direct_ = false;
  uint64_t size_ = 0;
};

/// A read of `length` bytes at `offset` that ended with this errno (ENODATA: an early end) at the
/// byte `at`. `what` is what was being read: "layer 3, expert 17".
Error read_error(const std::filesystem::path& path, uint64_t offset, uint64_t length,
                 std::string_view what, int error, uint64_t at);

/// Reads [offset, offset + out.size()) through an ordinary (buffered) descriptor, continuing short
/// reads. Throws a read_error on failure or at an early end.
void read_exactly(int fd, uint64_t offset, std::span<std::byte> out,
                  const std::filesystem::path& path, std::string_view what);

/// False where nothing has this name. A link to nowhere is there, and so is what cannot be looked
/// at: to open it says what is wrong, where to go on without it would hide that.
bool is_there(const std::filesystem::path& path);

/// True where a regular file holds bytes that do not begin with `magic`: somebody else made it.
/// Error(kRead) when it cannot be read.
bool holds_other(const std::filesystem::path& path, std::span<const char> magic);

/// A whole small file; Error(kCheckpoint) when it is missing, may not be read or is larger than
/// `limit`.
std::string read_text_file(const std::filesystem::path& path, Bytes limit);

}  // namespace k3::io
