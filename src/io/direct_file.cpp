#include "io/direct_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/check.h"
#include "k3/error.h"

namespace k3::io {
namespace {

/// 0, an errno, or ENODATA at an early end.
int read_fully(int fd, uint64_t offset, std::span<std::byte> out) {
  while (!out.empty()) {
    const ssize_t got = ::pread(fd, out.data(), out.size(), static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return errno;
    if (got == 0) return ENODATA;
    out = out.subspan(static_cast<size_t>(got));
    offset += static_cast<uint64_t>(got);
  }
  return 0;
}

std::string describe(int error) {
  switch (error) {
    case EISDIR:
      return "is a directory; a file was expected";
    case ENOTSUP:
      return "is not a regular file";
    case ENODATA:
      return "ends early";
    default:
      return std::string("cannot be read: ") + std::strerror(error);
  }
}

[[noreturn]] void unusable(const std::filesystem::path& path, int error) {
  throw Error(ErrorKind::kCheckpoint, fmt::format("{} {}", path.string(), describe(error)));
}

DirectFile open_or_throw(const std::filesystem::path& path, bool direct) {
  DirectFile file;
  if (const int error = DirectFile::try_open(path, direct, &file); error != 0)
    unusable(path, error);
  return file;
}

}  // namespace

int DirectFile::try_open(const std::filesystem::path& path, bool direct, DirectFile* file) {
  // Looked at before it is opened: opening a pipe would block, some devices act when opened.
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) return errno;
  if (S_ISDIR(status.st_mode)) return EISDIR;
  if (!S_ISREG(status.st_mode)) return ENOTSUP;
  DirectFile opened;
  if (direct) opened.fd_.reset(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_DIRECT));
  opened.direct_ = opened.fd_.valid();
  if (!opened.direct_) {
    if (direct && errno != EINVAL) return errno;
    opened.fd_.reset(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  }
  if (!opened.fd_.valid() || ::fstat(opened.fd(), &status) != 0) return errno;
  opened.size_ = static_cast<uint64_t>(status.st_size);
  *file = std::move(opened);
  return 0;
}

DirectFile DirectFile::open(const std::filesystem::path& path) {
  return open_or_throw(path, true);
}

DirectFile DirectFile::open_buffered(const std::filesystem::path& path) {
  return open_or_throw(path, false);
}

void DirectFile::use_buffered() {
  const int flags = ::fcntl(fd(), F_GETFL);
  K3_CHECK(flags >= 0 && ::fcntl(fd(), F_SETFL, flags & ~O_DIRECT) == 0);
  direct_ = false;
}

void read_exactly(int fd, uint64_t offset, std::span<std::byte> out,
                  const std::filesystem::path& path) {
  const int error = read_fully(fd, offset, out);
  if (error == 0) return;
  throw Error(ErrorKind::kRead,
              fmt::format("reading {} at {} ({} bytes): {}", path.string(), offset, out.size(),
                          error == ENODATA ? "the file ends before that" : std::strerror(error)));
}

bool is_there(const std::filesystem::path& path) {
  std::error_code unknown;
  return std::filesystem::symlink_status(path, unknown).type() !=
         std::filesystem::file_type::not_found;
}

bool holds_other(const std::filesystem::path& path, std::span<const char> magic) {
  DirectFile file;
  if (DirectFile::try_open(path, false, &file) != 0) return false;  // who writes it says what it is
  if (file.size() == 0) return false;
  std::string head(magic.size(), '\0');
  return read_fully(file.fd(), 0, std::as_writable_bytes(std::span(head))) != 0 ||
         !std::equal(head.begin(), head.end(), magic.begin());
}

std::string read_text_file(const std::filesystem::path& path, Bytes limit) {
  const DirectFile file = DirectFile::open_buffered(path);
  if (file.size() > limit.value) {
    throw Error(ErrorKind::kCheckpoint,
                fmt::format("{} has {}, more than the {} that such a file can need", path.string(),
                            format_bytes(Bytes{file.size()}), format_bytes(limit)));
  }
  std::string text(file.size(), '\0');
  const int error = read_fully(file.fd(), 0, std::as_writable_bytes(std::span(text)));
  if (error != 0) unusable(path, error);
  return text;
}

}  // namespace k3::io
