#include "weights/file_hashes.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <sstream>
#include <string_view>

#include "base/hash.h"
#include "base/host.h"
#include "base/thread.h"
#include "io/direct_file.h"
#include "k3/error.h"
#include "weights/published_shards.h"

namespace k3::weights {
namespace {

namespace fs = std::filesystem;

constexpr const char* kListName = "SHA256SUMS";
constexpr Bytes kListLimit{16'000'000};
constexpr size_t kDigits = 64;
constexpr size_t kReadBytes = 4u << 20;
constexpr size_t kFilesAtOnce = 8;  // more keeps no drive busier, and costs seeks on a disk
constexpr std::chrono::milliseconds kProgressInterval{100};

/// "<64 digits> [ *][./]name"; false when it is not such a line.
bool parse_line(std::string_view line, KnownFile& file) {
  constexpr std::string_view kHex = "0123456789abcdef";
  if (line.size() < kDigits + 3 || line[kDigits] != ' ') return false;
  if (line[kDigits + 1] != ' ' && line[kDigits + 1] != '*') return false;
  file.sha256 = line.substr(0, kDigits);
  if (file.sha256.find_first_not_of(kHex) != file.sha256.npos) return false;
  std::string_view name = line.substr(kDigits + 2);
  if (name.starts_with("./")) name.remove_prefix(2);
  file.name = name;
  return !name.empty() && name.find('/') == name.npos && name != "." && name != "..";
}

std::vector<KnownFile> read_list(const fs::path& path) {
  std::vector<KnownFile> files;
  std::istringstream lines(io::read_text_file(path, kListLimit));
  size_t number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    if (line.ends_with('\r')) line.pop_back();
    if (line.empty()) continue;
    KnownFile file;
    if (!parse_line(line, file)) {
      throw Error(
          ErrorKind::kCheckpoint,
          fmt::format("{}: line {} is not \"<64 lower-case hexadecimal digits>  <file name>\" "
                      "as sha256sum writes it",
                      path.string(), number));
    }
    files.push_back(std::move(file));
  }
  if (files.empty()) {
    throw Error(ErrorKind::kCheckpoint, fmt::format("{}: lists no files", path.string()));
  }
  return files;
}

struct FreeBuffer {
  void operator()(std::byte* buffer) const { std::free(buffer); }
};
using Buffer = std::unique_ptr<std::byte, FreeBuffer>;

Buffer aligned_buffer() {
  Buffer buffer(static_cast<std::byte*>(std::aligned_alloc(io::kBlockSize, kReadBytes)));
  if (buffer == nullptr) throw std::bad_alloc();
  return buffer;
}

/// Files are handed to threads one by one; findings are kept by the number of the file.
class Hashing {
 public:
  Hashing(const fs::path& directory, const std::vector<KnownFile>& files)
      : directory_(directory), files_(files), findings_(files.size()) {
    for (const KnownFile& file : files) total_ += size_of(directory / file.name);
  }
  ~Hashing() { stopping_ = true; }  // before the threads are joined

  std::vector<std::string> run(const std::function<void(Bytes, Bytes)>& progress) {
    const size_t cores = read_host_limits().usable_cores;
    const size_t threads = std::max<size_t>(1, std::min({files_.size(), kFilesAtOnce, cores}));
    working_ = threads;  // before the first of them counts down
    for (size_t i = 0; i < threads; ++i) threads_.emplace_back("k3-hash", [this] { work(); });
    std::unique_lock lock(mutex_);
    while (!ended_.wait_for(lock, kProgressInterval, [this] { return working_ == 0; })) {
      lock.unlock();
      progress(Bytes{done_}, Bytes{total_});
      lock.lock();
    }
    std::vector<std::string> problems;
    for (std::string& finding : findings_) {
      if (!finding.empty()) problems.push_back(std::move(finding));
    }
    return problems;
  }

 private:
  static uint64_t size_of(const fs::path& path) {
    std::error_code missing;
    const uint64_t size = fs::file_size(path, missing);
    return missing ? 0 : size;
  }

  void work() {
    const Buffer buffer = aligned_buffer();
    for (size_t i = next_++; i < files_.size() && !stopping_; i = next_++) {
      try {
        findings_[i] = check(files_[i], buffer.get());
      } catch (const Error& error) {
        findings_[i] = error.what();
      }
    }
    const std::lock_guard lock(mutex_);
    if (--working_ == 0) ended_.notify_one();
  }

  std::string check(const KnownFile& known, std::byte* buffer) {
    const fs::path path = directory_ / known.name;
    io::DirectFile file = io::DirectFile::open(path);
    if (known.bytes && file.size() != *known.bytes) {
      return fmt::format("{}: {} bytes found, {} expected; download it again", path.string(),
                         file.size(), *known.bytes);
    }
    const std::string found = digest(path, file, buffer);
    if (found == known.sha256 || stopping_) return "";
    return fmt::format("{}: its SHA-256 is {}, {} expected; download it again", path.string(),
                       found, known.sha256);
  }

  std::string digest(const fs::path& path, io::DirectFile& file, std::byte* buffer) {
    Sha256 hash;
    for (uint64_t offset = 0; offset < file.size() && !stopping_;) {
      const size_t bytes = read_some(path, file, offset, buffer);
      hash.update({buffer, bytes});
      offset += bytes;
      done_ += bytes;
    }
    return hash.hex_digest();
  }

  /// At least a byte. A direct read is asked for whole blocks, and may bring fewer at the end.
  static size_t read_some(const fs::path& path, io::DirectFile& file, uint64_t offset,
                          std::byte* buffer) {
    if (offset % io::kBlockSize != 0) file.use_buffered();  // after a short read
    for (;;) {
      const ssize_t got = ::pread(file.fd(), buffer, kReadBytes, static_cast<off_t>(offset));
      if (got > 0) return static_cast<size_t>(got);
      if (got < 0 && errno == EINTR) continue;
      if (got < 0 && errno == EINVAL && file.direct()) {
        file.use_buffered();
        continue;
      }
      throw io::read_error(path, offset, std::min<uint64_t>(kReadBytes, file.size() - offset),
                           "to hash it", got == 0 ? ENODATA : errno, offset);
    }
  }

  const fs::path& directory_;
  const std::vector<KnownFile>& files_;
  uint64_t total_ = 0;
  std::vector<std::string> findings_;
  std::atomic<size_t> next_{0};
  std::atomic<uint64_t> done_{0};
  std::atomic<bool> stopping_{false};
  std::mutex mutex_;  // guards working_
  std::condition_variable ended_;
  size_t working_ = 0;
  std::vector<Thread> threads_;  // last: they use all above
};

}  // namespace

std::vector<KnownFile> known_files(const fs::path& directory) {
  const fs::path list = directory / kListName;
  if (io::is_there(list)) return read_list(list);
  std::vector<KnownFile> files;
  bool any = false;
  for (const PublishedFile& shard : published_shards()) {
    files.push_back({std::string(shard.name), shard.bytes, std::string(shard.sha256)});
    any = any || io::is_there(directory / shard.name);
  }
  if (any) return files;
  throw Error(ErrorKind::kCheckpoint,
              fmt::format("{}: not the released checkpoint, and no {} beside it to compare with; "
                          "make one with `sha256sum *.safetensors > {}` where the files are good",
                          directory.string(), kListName, kListName));
}

std::vector<std::string> damaged_files(const fs::path& directory,
                                       const std::vector<KnownFile>& files,
                                       const std::function<void(Bytes, Bytes)>& progress) {
  return Hashing(directory, files).run(progress);
}

}  // namespace k3::weights
