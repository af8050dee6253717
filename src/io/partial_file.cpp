#include "io/partial_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/all_zero.h"
#include "base/check.h"
#include "base/log.h"
#include "io/direct_file.h"
#include "k3/error.h"

namespace k3::io {
namespace {

std::filesystem::path directory_of(const std::filesystem::path& path) {
  return path.has_parent_path() ? path.parent_path() : std::filesystem::path(".");
}

[[noreturn]] void cannot_write(const std::filesystem::path& path, const std::string& found,
                               const char* option) {
  throw Error(ErrorKind::kUsage, fmt::format("cannot write {}: {}; name another place with {}",
                                             path.string(), found, option));
}

[[noreturn]] void failed(const char* action, const std::filesystem::path& path) {
  throw Error(ErrorKind::kInternal,
              fmt::format("{} {}: {}", action, path.string(), std::strerror(errno)));
}

[[noreturn]] void write_failed(const std::filesystem::path& path, uint64_t offset, size_t size) {
  const int error = errno;
  std::string message = fmt::format("writing {} at {} ({} bytes): {}", path.string(), offset, size,
                                    std::strerror(error));
  if (error == ENOSPC || error == EDQUOT) {
    message += fmt::format(
        "; {} more are needed at this point and {} are free; make room and run again, what is "
        "written is kept",
        format_bytes(Bytes{size}), format_bytes(free_space(path)));
  }
  throw Error(ErrorKind::kInternal, message);
}

uint64_t file_size(int fd, const std::filesystem::path& path) {
  struct stat status {};
  if (::fstat(fd, &status) != 0) failed("looking at", path);
  return static_cast<uint64_t>(status.st_size);
}

void refuse_irregular(const std::filesystem::path& path, const char* option) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) return;  // absent; open() tells what else is wrong
  if (!S_ISREG(status.st_mode)) cannot_write(path, "it exists and is not a regular file", option);
}

/// What is written as it grows must be a file of its own: through a link, the bytes would go into
/// whatever it names, a shard perhaps.
void refuse_link(const std::filesystem::path& path, const char* option) {
  struct stat status {};
  if (::lstat(path.c_str(), &status) != 0) return;
  if (S_ISLNK(status.st_mode) || (S_ISREG(status.st_mode) && status.st_nlink > 1)) {
    cannot_write(path, "it is a link to another file", option);
  }
}

void lock(int fd, const std::filesystem::path& target, const char* option) {
  if (::flock(fd, LOCK_EX | LOCK_NB) == 0) return;
  if (errno == EWOULDBLOCK) {
    cannot_write(target, "another process is writing it", option);
  }
  log::warn(fmt::format("{}: this file system has no locks ({}): do not write it twice at once",
                        target.string(), std::strerror(errno)));
}

/// True when `path` still names the open file: its last holder may have renamed or removed it
/// between our open and our lock.
bool still_named(int fd, const std::filesystem::path& path) {
  struct stat opened {};
  struct stat named {};
  return ::fstat(fd, &opened) == 0 && ::stat(path.c_str(), &named) == 0 &&
         opened.st_ino == named.st_ino && opened.st_dev == named.st_dev;
}

void write_fully(int fd, const std::filesystem::path& path, uint64_t offset,
                 std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t put = ::pwrite(fd, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) write_failed(path, offset, bytes.size());
    bytes = bytes.subspan(static_cast<size_t>(put));
    offset += static_cast<uint64_t>(put);
  }
}

/// An error of the drive must not be lost here: the kernel tells it once, and a later fsync would
/// succeed on a damaged file.
void write_back(int fd, const std::filesystem::path& path, uint64_t offset, uint64_t bytes,
                unsigned flags) {
  if (bytes == 0) return;  // to the call it would mean all that follows
  if (::sync_file_range(fd, static_cast<off_t>(offset), static_cast<off_t>(bytes), flags) == 0)
    return;
  if (errno == ENOSYS || errno == EINVAL || errno == ESPIPE) return;
  failed("writing out", path);
}

void sync_directory(const std::filesystem::path& directory) {
  const UniqueFd fd(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  // EINVAL: a file system whose directories cannot be synced on their own
  if (!fd.valid() || (::fsync(fd.get()) != 0 && errno != EINVAL)) failed("syncing", directory);
}

}  // namespace

PartialFile::PartialFile(std::filesystem::path target, Mode mode, const char* option)
    : target_(std::move(target)), partial_(partial_of(target_)) {
  refuse_irregular(target_, option);
  refuse_link(partial_, option);
  refuse_irregular(partial_, option);
  do {
    fd_.reset(::open(partial_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666));
    if (!fd_.valid()) cannot_write(partial_, std::strerror(errno), option);
    lock(fd_.get(), target_, option);
  } while (!still_named(fd_.get(), partial_));
  direct_.reset(::open(partial_.c_str(), O_WRONLY | O_CLOEXEC | O_DIRECT));
  if (mode == Mode::kFresh) truncate(0);
}

PartialFile::~PartialFile() {
  struct stat status {};
  const bool empty = fd_.valid() && ::fstat(fd_.get(), &status) == 0 && status.st_size == 0;
  if (empty && !renamed_ && still_named(fd_.get(), partial_)) ::unlink(partial_.c_str());
}

std::filesystem::path PartialFile::partial_of(const std::filesystem::path& target) {
  return target.string() + ".partial";
}

uint64_t PartialFile::size() const {
  return file_size(fd_.get(), partial_);
}

void PartialFile::write(uint64_t offset, std::span<const std::byte> bytes) {
  const uint64_t old_size = size();
  const uint64_t end = offset + bytes.size();
  uint64_t run = offset;  // first byte that is neither written nor left out
  const auto write_run = [&](uint64_t run_end) {
    write_fully(fd_.get(), partial_, run, bytes.subspan(run - offset, run_end - run));
  };
  for (uint64_t block = block_ceil(std::max(offset, old_size)); block + kBlockSize <= end;
       block += kBlockSize) {
    if (!all_zero(bytes.subspan(block - offset, kBlockSize))) continue;
    write_run(block);
    run = block + kBlockSize;
  }
  write_run(end);
  if (run == end && end > old_size) truncate(end);  // it ends with a hole
}

void PartialFile::write_blocks(uint64_t offset, std::span<const std::byte> bytes) {
  K3_CHECK(offset % kBlockSize == 0 && bytes.size() % kBlockSize == 0);
  while (direct_.valid() && !bytes.empty()) {
    const ssize_t put =
        ::pwrite(direct_.get(), bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (put < 0 && errno == EINTR) continue;
    if (put < 0 && errno == EINVAL) {
      direct_.reset();  // some file systems refuse the write and not the opening
      break;
    }
    if (put < 0) write_failed(partial_, offset, bytes.size());
    bytes = bytes.subspan(static_cast<size_t>(put));
    offset += static_cast<uint64_t>(put);
  }
  write_fully(fd_.get(), partial_, offset, bytes);
}

void PartialFile::truncate(uint64_t size) {
  if (::ftruncate(fd_.get(), static_cast<off_t>(size)) != 0)
    failed("setting the size of", partial_);
}

void PartialFile::sync() {
  if (::fsync(fd_.get()) != 0) failed("syncing", partial_);
}

void PartialFile::start_write_back(uint64_t offset, uint64_t bytes) {
  write_back(fd_.get(), partial_, offset, bytes, SYNC_FILE_RANGE_WRITE);
}

void PartialFile::finish_write_back(uint64_t offset, uint64_t bytes) {
  write_back(fd_.get(), partial_, offset, bytes,
             SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER);
  ::posix_fadvise(fd_.get(), static_cast<off_t>(offset), static_cast<off_t>(bytes),
                  POSIX_FADV_DONTNEED);
}

void PartialFile::commit() {
  sync();
  if (::rename(partial_.c_str(), target_.c_str()) != 0) failed("renaming", partial_);
  renamed_ = true;
  sync_directory(directory_of(target_));
}

void PartialFile::discard() {
  if (::unlink(partial_.c_str()) != 0) failed("removing", partial_);
}

Bytes free_space(const std::filesystem::path& path) {
  struct statvfs status {};
  if (::statvfs(directory_of(path).c_str(), &status) != 0) failed("looking at", directory_of(path));
  if (status.f_blocks == 0) return Bytes{uint64_t{1} << 62};
  return Bytes{status.f_bavail} * status.f_frsize;
}

}  // namespace k3::io
