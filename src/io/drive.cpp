#include "io/drive.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstring>
#include <deque>
#include <fstream>
#include <sstream>

#include "base/check.h"
#include "io/arena.h"
#include "io/io_thread.h"
#include "k3/error.h"

namespace k3::io {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

fs::path nearest_existing(const fs::path& path) {
  std::error_code error;
  fs::path at = fs::absolute(path, error);
  while (!fs::exists(at, error) && at.has_relative_path()) at = at.parent_path();
  const fs::path real = fs::canonical(at, error);
  if (!error) return real;
  throw Error(ErrorKind::kCheckpoint,
              fmt::format("{}: cannot be reached: {}", path.string(), error.message()));
}

bool lies_below(const std::string& path, const std::string& mount_point) {
  if (mount_point == "/") return true;
  return path.starts_with(mount_point) &&
         (path.size() == mount_point.size() || path[mount_point.size()] == '/');
}

/// "36 35 98:0 /root /point options [tags...] - type source super_options": of the mounts that hold
/// the path the longest counts, and of equal ones the last, which hides the others.
void find_mount(const std::string& path, DriveFacts& facts) {
  std::ifstream mounts("/proc/self/mountinfo");
  size_t longest = 0;
  for (std::string line; std::getline(mounts, line);) {
    std::istringstream fields(line);
    std::string skipped, point, type, source;
    fields >> skipped >> skipped >> skipped >> skipped >> point;
    while (fields >> skipped && skipped != "-") continue;
    if (!(fields >> type >> source) || !lies_below(path, point) || point.size() < longest) continue;
    longest = point.size();
    facts.file_system = type;
    facts.device = source;
  }
}

struct Target {
  FileId id;
  uint64_t bytes;
};

/// Chooses ranges of the files: in order from the start, or by steps of the golden ratio, which
/// fall everywhere and nowhere twice.
class Ranges {
 public:
  Ranges(const std::vector<Target>& targets, const ReadSpeedOptions& options)
      : targets_(targets), options_(options) {}

  void fill(ReadJob& job) {
    const Target& target = targets_[count_ % targets_.size()];
    const uint64_t length = std::min(options_.request.value, target.bytes);
    const uint64_t places = target.bytes / length;
    const uint64_t turn = count_ / targets_.size();
    uint64_t place = turn % places;
    if (options_.spread) {
      const double part = static_cast<double>(count_) * 0.6180339887498949;
      place = static_cast<uint64_t>((part - std::floor(part)) * static_cast<double>(places));
    }
    job.file = target.id;
    job.offset = place * length;
    job.length = length;
    ++count_;
  }

 private:
  const std::vector<Target>& targets_;
  const ReadSpeedOptions& options_;
  uint64_t count_ = 0;
};

struct OpenedFiles {
  FileTable table;
  std::vector<Target> targets;
  Bytes bytes;
  bool holes = false;
};

void open_files(const std::vector<fs::path>& files, OpenedFiles& opened) {
  for (const fs::path& path : files) {
    struct stat status {};
    if (::stat(path.c_str(), &status) != 0) {
      throw Error(ErrorKind::kCheckpoint,
                  fmt::format("{} cannot be read: {}", path.string(), std::strerror(errno)));
    }
    if (status.st_size == 0) continue;
    const auto size = static_cast<uint64_t>(status.st_size);
    if (static_cast<uint64_t>(status.st_blocks) * 512 < size / 10 * 9) opened.holes = true;
    opened.targets.push_back({opened.table.add(path), size});
    opened.bytes += Bytes{size};
  }
  K3_CHECK(!files.empty());
  if (opened.targets.empty()) {
    throw Error(ErrorKind::kCheckpoint, fmt::format("{} is empty", files.front().string()));
  }
}

/// Outlives the IoThread that reads into it.
struct Requests {
  explicit Requests(const ReadSpeedOptions& options)
      : arena(Arena::padded(options.request) * options.in_flight), jobs(options.in_flight) {
    for (ReadJob& job : jobs) job.buffer = arena.carve<std::byte>(options.request.value).data();
  }
  Arena arena;
  std::deque<ReadJob> jobs;
};

/// Keeps all jobs going; returns the seconds that it took.
double read_for_a_while(IoThread& io, const OpenedFiles& files, std::deque<ReadJob>& jobs,
                        const ReadSpeedOptions& options) {
  Ranges ranges(files.targets, options);
  Bytes asked;
  const Clock::time_point start = Clock::now();
  const auto seconds = [&] { return std::chrono::duration<double>(Clock::now() - start).count(); };
  const auto ask = [&](ReadJob& job) {
    ranges.fill(job);
    asked += Bytes{job.length};
    io.request(job, Lane::kBackground);
  };
  for (ReadJob& job : jobs) ask(job);
  for (size_t oldest = 0; asked < files.bytes && seconds() < options.seconds_max; ++oldest) {
    ReadJob& job = jobs[oldest % jobs.size()];
    io.wait(job);
    ask(job);
  }
  for (ReadJob& job : jobs) io.wait(job);
  return seconds();
}

}  // namespace

DriveFacts drive_facts(const fs::path& path) {
  const fs::path place = nearest_existing(path);
  struct stat status {};
  struct statvfs space {};
  if (::stat(place.c_str(), &status) != 0 || ::statvfs(place.c_str(), &space) != 0) {
    throw Error(ErrorKind::kCheckpoint,
                fmt::format("{} cannot be looked at: {}", place.string(), std::strerror(errno)));
  }
  DriveFacts facts;
  facts.file_system = "unknown";
  facts.device_id = status.st_dev;
  facts.free = Bytes{space.f_bavail} * space.f_frsize;
  find_mount(place.string(), facts);
  return facts;
}

double ReadSpeed::gbps() const {
  return seconds > 0 ? static_cast<double>(bytes.value) / seconds / 1e9 : 0.0;
}

ReadSpeed measure_reading(const std::vector<fs::path>& files, const ReadSpeedOptions& options) {
  OpenedFiles opened;
  open_files(files, opened);
  Requests requests(options);
  std::string ignored;
  IoThread io(make_reader(kQueueDepth, &ignored), opened.table, {});
  ReadSpeed speed;
  speed.seconds = read_for_a_while(io, opened, requests.jobs, options);
  const IoStats stats = io.stats();
  speed.bytes = Bytes{stats.disk_bytes};
  speed.direct = stats.all_direct;
  speed.holes = opened.holes;
  speed.reader = io.reader_name();
  return speed;
}

}  // namespace k3::io
