#include "io/direct_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/check.h"

namespace k3::io {
namespace {

std::string describe(int error) {
  switch (error) {
    case EISDIR:
      return "is a directory; a file was expected";
    case ENOTSUP:
      return "is not a regular file";
    default:
      return std::string("cannot be read: ") + std::strerror(error);
  }
}

const char* advice(int error) {
  switch (error) {
    case ENODATA:
      return "the file ends before that: it is incomplete or was changed";
    case EIO:
      return "the drive or its file system failed, see the kernel log";
    case EMFILE:
      return "raise the limit of open files (ulimit -n)";
    default:
      return "check the file and its drive";
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

Error read_error(const std::filesystem::path& path, uint64_t offset, uint64_t length,
                 std::string_view what, int error, uint64_t at) {
  return {ErrorKind::kRead, fmt::format("reading {} at {} ({} bytes{}{}): {} at {}; {}",
                                        path.string(), offset, length, what.empty() ? "" : ", ",
                                        what, std::strerror(error), at, advice(error))};
}

void read_exactly(int fd, uint64_t offset, std::span<std::byte> out,
                  const std::filesystem::path& path, std::string_view what) {
  for (size_t done = 0; done < out.size();) {
    const ssize_t got =
        ::pread(fd, out.data() + done, out.size() - done, static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) {
      const int error = got < 0 ? errno : ENODATA;
      throw read_error(path, offset, out.size(), what, error, offset + done);
    }
    done += static_cast<size_t>(got);
  }
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
  if (file.size() < magic.size()) return true;
  std::string head(magic.size(), '\0');
  read_exactly(file.fd(), 0, std::as_writable_bytes(std::span(head)), path, "its first bytes");
  return !std::equal(head.begin(), head.end(), magic.begin());
}

std::string read_text_file(const std::filesystem::path& path, Bytes limit) {
  const DirectFile file = DirectFile::open_buffered(path);
  if (file.size() > limit.value) {
    throw Error(ErrorKind::kCheckpoint,
                fmt::format("{} has {}, more than the {} that such a file can need", path.string(),
                            format_bytes(Bytes{file.size()}), format_bytes(limit)));
  }
  std::string text(file.size(), '\0');
  read_exactly(file.fd(), 0, std::as_writable_bytes(std::span(text)), path, "all of it");
  return text;
}

}  // namespace k3::io
