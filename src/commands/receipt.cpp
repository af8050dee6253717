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

/// The rows are read again for the receipt, which no pipe or device gives back.
void refuse_irregular(const std::filesystem::path& path) {
  std::error_code error;
  const std::filesystem::file_status status = std::filesystem::status(path, error);
  if (!std::filesystem::exists(status) || std::filesystem::is_regular_file(status)) return;
  throw Error(ErrorKind::kUsage,
              fmt::format("{} exists and is not a regular file; name another place with "
                          "--dump-logits",
                          path.string()));
}

}  // namespace

LogitsFile::LogitsFile(const std::optional<std::filesystem::path>& path) {
  if (path) {
    name_ = path->string();
    refuse_irregular(*path);
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
  auto bytes = std::as_bytes(row);
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd_.get(), bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) {
      throw Error(ErrorKind::kInternal,
                  fmt::format("{}: writing logits failed: {}; free space or choose another place",
                              name_, std::strerror(errno)));
    }
    bytes = bytes.subspan(static_cast<size_t>(written));
    bytes_ += static_cast<uint64_t>(written);
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
    io::read_exactly(fd_.get(), at, part, name_);
    sha.update(part);
  }
  return sha.hex_digest();
}

}  // namespace k3::commands
