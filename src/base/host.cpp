#include "base/host.h"

#include <sched.h>
#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <set>
#include <string_view>

#include "base/cgroup.h"
#include "base/check.h"

namespace k3 {
namespace {

/// The line "NAME:   123 kB" of a file like /proc/meminfo.
std::optional<Bytes> find_kilobytes(const std::string& text, const std::string& name) {
  const std::string key = name + ":";
  size_t at = text.starts_with(key) ? 0 : text.find("\n" + key);
  if (at == text.npos) return std::nullopt;
  at = text.find_first_of("0123456789\n", text.find(key, at) + key.size());
  if (at == text.npos) return std::nullopt;
  uint64_t value = 0;
  const auto result = std::from_chars(&text[at], text.data() + text.size(), value);
  if (result.ec != std::errc()) return std::nullopt;
  return Bytes{value} * 1024;
}

uint64_t soft_limit(int resource) {
  rlimit limit{};
  K3_CHECK(::getrlimit(resource, &limit) == 0);
  return limit.rlim_cur == RLIM_INFINITY ? UINT64_MAX : limit.rlim_cur;
}

std::vector<int> affinity_mask() {
  for (size_t cpu_max = CPU_SETSIZE;; cpu_max *= 2) {  // EINVAL: the kernel's mask is wider
    std::vector<cpu_set_t> sets(cpu_max / CPU_SETSIZE);
    const size_t size = sets.size() * sizeof(cpu_set_t);
    if (::sched_getaffinity(0, size, sets.data()) != 0) {
      if (errno == EINVAL && cpu_max < (1u << 20)) continue;
      return {0};
    }
    std::vector<int> cpus;
    for (size_t cpu = 0; cpu < cpu_max; ++cpu) {
      if (CPU_ISSET_S(cpu, size, sets.data())) cpus.push_back(static_cast<int>(cpu));
    }
    return cpus;
  }
}

}  // namespace

size_t physical_cores(const std::string& root, const std::vector<int>& cpus) {
  std::set<std::string> cores;
  for (const int cpu : cpus) {
    const std::string name = std::to_string(cpu);
    const std::string siblings = read_system_file(root + "/sys/devices/system/cpu/cpu" + name +
                                                  "/topology/thread_siblings_list");
    cores.insert(siblings.empty() ? name : siblings);  // the same text in all CPUs of a core
  }
  return std::max<size_t>(cores.size(), 1);
}

HostLimits read_host_limits(const std::string& root) {
  HostLimits limits;
  const std::string meminfo = read_system_file(root + "/proc/meminfo");
  limits.memory_available = find_kilobytes(meminfo, "MemAvailable");
  limits.memory_total = find_kilobytes(meminfo, "MemTotal");
  const CgroupLimits cgroup = read_cgroup_limits(root + "/");
  limits.cgroup_limit = cgroup.memory_limit;
  limits.cgroup_used = cgroup.memory_used;
  if (const uint64_t space = soft_limit(RLIMIT_AS); space != UINT64_MAX) {
    limits.address_space = Bytes{space};
  }
  limits.usable_cores = physical_cores(root, affinity_mask());
  if (cgroup.cpu_quota) limits.usable_cores = std::min(limits.usable_cores, *cgroup.cpu_quota);
  return limits;
}

std::optional<Bytes> resident_bytes() {
  return find_kilobytes(read_system_file("/proc/self/status"), "VmRSS");
}

std::optional<Bytes> peak_resident_bytes() {
  return find_kilobytes(read_system_file("/proc/self/status"), "VmHWM");
}

}  // namespace k3
