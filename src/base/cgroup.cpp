#include "base/cgroup.h"

#include <charconv>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string_view>
#include <vector>

namespace k3 {
namespace {

enum class Version { kV1, kV2 };

// Version 1 writes "none" as the largest multiple of the page size below 2^63.
constexpr uint64_t kNoLimit = uint64_t{1} << 62;

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, separator);) parts.push_back(part);
  return parts;
}

bool lists(const std::string& comma_separated, std::string_view name) {
  for (const std::string& part : split(comma_separated, ',')) {
    if (part == name) return true;
  }
  return false;
}

std::optional<uint64_t> parse_number(std::string_view text) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end == text.data()) return std::nullopt;
  return value;
}

std::optional<uint64_t> read_number(const std::filesystem::path& path) {
  return parse_number(read_system_file(path));
}

/// mountinfo writes blanks in paths as \040 and the like.
std::string unescape(const std::string& text) {
  std::string plain;
  for (size_t i = 0; i < text.size(); ++i) {
    unsigned char code = 0;
    const bool escape = text[i] == '\\' && i + 3 < text.size() &&
                        std::from_chars(&text[i + 1], &text[i + 4], code, 8).ptr == &text[i + 4];
    plain += escape ? static_cast<char>(code) : text[i];
    if (escape) i += 3;
  }
  return plain;
}

struct Mount {
  std::string point;  // where the hierarchy is mounted
  std::string root;   // the group that is seen there
};

/// "36 35 98:0 /root /point options [tags...] - type source super_options"
std::optional<Mount> find_mount(const std::string& mountinfo, Version version,
                                std::string_view controller) {
  for (const std::string& line : split(mountinfo, '\n')) {
    const std::vector<std::string> fields = split(line, ' ');
    size_t dash = 6;
    while (dash < fields.size() && fields[dash] != "-") ++dash;
    if (dash + 1 >= fields.size()) continue;
    const std::string& type = fields[dash + 1];
    const bool fits = version == Version::kV2
                          ? type == "cgroup2"
                          : type == "cgroup" && lists(fields.back(), controller);
    if (fits && fields[4].starts_with('/')) return Mount{unescape(fields[4]), unescape(fields[3])};
  }
  return std::nullopt;
}

/// Lines "4:memory:/path" (version 1) and "0::/path" (version 2).
std::optional<std::string> find_group(const std::string& cgroup, Version version,
                                      std::string_view controller) {
  for (const std::string& line : split(cgroup, '\n')) {
    const size_t first = line.find(':');
    const size_t second = line.find(':', first == line.npos ? first : first + 1);
    if (second == line.npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const bool fits =
        version == Version::kV2 ? controllers.empty() : lists(controllers, controller);
    if (fits) return line.substr(second + 1);
  }
  return std::nullopt;
}

/// The part of the group's path below the mount; empty where the mount does not show the group (in
/// a container; "/../x": outside of our cgroup namespace), so that only the mount itself is looked
/// at.
std::filesystem::path path_below(const Mount& mount, const std::string& group) {
  if (group.starts_with("/..")) return {};
  if (mount.root == "/") return group;
  return group.starts_with(mount.root + "/") ? group.substr(mount.root.size()) : "";
}

/// Directories of our group and its parents as far as they are mounted, our own first.
std::vector<std::filesystem::path> group_directories(const std::string& root, Version version,
                                                     std::string_view controller) {
  const auto mount =
      find_mount(read_system_file(root + "proc/self/mountinfo"), version, controller);
  const auto group = find_group(read_system_file(root + "proc/self/cgroup"), version, controller);
  if (!mount || !group) return {};
  const std::filesystem::path top = root + mount->point.substr(1);
  std::vector<std::filesystem::path> directories;
  std::filesystem::path part = path_below(*mount, *group).relative_path();
  for (; !part.empty(); part = part.parent_path()) {
    directories.push_back(top / part);
  }
  directories.push_back(top);
  return directories;
}

/// Page cache that the kernel would give back before it refuses memory.
uint64_t reclaimable(const std::filesystem::path& directory, Version version) {
  const std::string prefix = version == Version::kV1 ? "total_" : "";  // with the groups below
  uint64_t sum = 0;
  for (const std::string& line : split(read_system_file(directory / "memory.stat"), '\n')) {
    for (const char* name : {"inactive_file ", "active_file "}) {
      const std::string key = prefix + name;
      if (line.starts_with(key)) sum += parse_number(line.substr(key.size())).value_or(0);
    }
  }
  return sum;
}

void lower_memory(CgroupLimits& limits, const std::string& root, Version version) {
  const bool v1 = version == Version::kV1;
  for (const auto& directory : group_directories(root, version, "memory")) {
    const auto limit = read_number(directory / (v1 ? "memory.limit_in_bytes" : "memory.max"));
    if (!limit || *limit >= kNoLimit) continue;
    if (limits.memory_limit && limits.memory_limit->value <= *limit) continue;
    limits.memory_limit = Bytes{*limit};
    limits.memory_used.reset();
    const auto used = read_number(directory / (v1 ? "memory.usage_in_bytes" : "memory.current"));
    if (!used) continue;
    const uint64_t cache = reclaimable(directory, version);
    limits.memory_used = Bytes{*used - std::min(*used, cache)};
  }
}

void lower_cpus(CgroupLimits& limits, const std::string& root, Version version) {
  for (const auto& directory : group_directories(root, version, "cpu")) {
    std::optional<uint64_t> quota;
    std::optional<uint64_t> period;
    if (version == Version::kV1) {
      quota = read_number(directory / "cpu.cfs_quota_us");  // -1, not a number here, is none
      period = read_number(directory / "cpu.cfs_period_us");
    } else {
      const auto fields = split(read_system_file(directory / "cpu.max"), ' ');  // "max 100000"
      if (fields.size() == 2) quota = parse_number(fields[0]), period = parse_number(fields[1]);
    }
    if (!quota || !period || *quota == 0 || *period == 0) continue;
    const size_t cpus = (*quota + *period - 1) / *period;
    limits.cpu_quota = std::min(limits.cpu_quota.value_or(cpus), cpus);
  }
}

}  // namespace

std::string read_system_file(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

CgroupLimits read_cgroup_limits(const std::string& root) {
  CgroupLimits limits;
  for (const Version version : {Version::kV1, Version::kV2}) {
    lower_memory(limits, root, version);
    lower_cpus(limits, root, version);
  }
  return limits;
}

}  // namespace k3
