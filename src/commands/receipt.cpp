#include "commands/receipt.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "base/hash.h"
#include "io/direct_file.h"
#include "k3/error.h"

namespace k3::commands {
namespace {

UniqueFd open_unnamed(std::string& name) {
  std::error_code error;
  const std::filesystem::path directory = std::filesystem::temp_directory_path(error);
  name = (error ? std::filesystem::path("/tmp") : directory) / "k3-logits-XXXXXX";
  UniqueFd fd(::mkostemp(name.data(), O_CLOEXEC));
  if (fd.valid()) ::unlink(name.c_str());
  return fd;
}

[[noreturn]] void refuse(const std::filesystem::path& path, const std::string& found) {
  throw Error(ErrorKind::kUsage,
              fmt::format("{} exists and {}: not replaced; name another place with --dump-logits",
                          path.string(), found));
}

/// Only an earlier dump may be replaced. The rows are read again for the receipt, which no pipe or
/// device gives back.
void refuse_foreign(const std::filesystem::path& path, uint64_t row_bytes) {
  std::error_code error;
  const std::filesystem::file_status status = std::filesystem::status(path, error);
  if (!std::filesystem::exists(status)) return;
  if (!std::filesystem::is_regular_file(status)) refuse(path, "is not a regular file");
  const uintmax_t size = std::filesystem::file_size(path, error);
  if (!error && size % row_bytes != 0) {
    refuse(path, fmt::format("is no dump of this model's logits: it has {} bytes, expected rows of "
                             "{}",
                             size, row_bytes));
  }
}

}  // namespace

LogitsFile::LogitsFile(const std::optional<std::filesystem::path>& path, uint64_t row_bytes)
    : row_bytes_(row_bytes) {
  if (path) {
    name_ = path->string();
    refuse_foreign(*path, row_bytes);
    fd_.reset(::open(name_.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  } else {
    fd_ = open_unnamed(name_);
  }
  if (!fd_.valid()) {
    throw Error(
        ErrorKind::kUsage,
        fmt::format("{}: cannot be created for the logits: {}; {}", name_, std::strerror(errno),
                    path ? "name another place with --dump-logits"
                         : "set TMPDIR, or name a file with --dump-logits"));
  }
}

void LogitsFile::append(std::span<const float> row) {
  try {
    write(std::as_bytes(row));
  } catch (const Error&) {
    // No half row stays, unless the drive refuses even that.
    (void)!::ftruncate(fd_.get(), static_cast<off_t>(bytes_));
    throw;
  }
  bytes_ += row.size_bytes();
}

void LogitsFile::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd_.get(), bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) {
      throw Error(ErrorKind::kInternal,
                  fmt::format("{}: writing logits failed: {}; it keeps the {} whole rows before; "
                              "free space or choose another place",
                              name_, std::strerror(errno), bytes_ / row_bytes_));
    }
    bytes = bytes.subspan(static_cast<size_t>(written));
  }
}

std::string LogitsFile::receipt(std::span<const uint32_t> prompt_ids,
                                std::span<const uint32_t> ids) const {
  Sha256 sha;
  sha.update(std::as_bytes(prompt_ids));
  sha.update(std::as_bytes(ids));
  std::vector<std::byte> buffer(1 << 20);
  for (uint64_t at = 0; at < bytes_; at += buffer.size()) {
    const auto part = std::span(buffer).first(std::min<uint64_t>(buffer.size(), bytes_ - at));
    io::read_exactly(fd_.get(), at, part, name_, "logits");
    sha.update(part);
  }
  return sha.hex_digest();
}

}  // namespace k3::commands
