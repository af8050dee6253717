// Facts about this machine and the limits put on this process: no decisions here.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "k3/units.h"

namespace k3 {

struct HostLimits {
  std::optional<Bytes> memory_available;  // MemAvailable of /proc/meminfo
  std::optional<Bytes> memory_total;
  std::optional<Bytes> cgroup_limit;   // lowest limit of the cgroup (v1 or v2) and its parents
  std::optional<Bytes> cgroup_used;    // usage there less what page cache could give back
  std::optional<Bytes> address_space;  // RLIMIT_AS, if limited
  size_t usable_cores = 1;  // physical cores in the affinity mask, at most the cgroup CPU quota
};

/// Reads /proc and /sys; what cannot be read is absent, never guessed. `root` is "/" but in tests.
HostLimits read_host_limits(const std::string& root = "/");

/// How many physical cores the CPUs `cpus` belong to, by their thread_siblings_list; a CPU that has
/// none there counts as a core.
size_t physical_cores(const std::string& root, const std::vector<int>& cpus);

/// Resident set of this process now, and its peak (VmRSS, VmHWM); absent without /proc.
std::optional<Bytes> resident_bytes();
std::optional<Bytes> peak_resident_bytes();

}  // namespace k3
