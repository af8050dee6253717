// The limits that control groups (version 1 and 2) put on this process. For host.cpp.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "k3/units.h"

namespace k3 {

struct CgroupLimits {
  std::optional<Bytes> memory_limit;  // the lowest of our group and its parents
  std::optional<Bytes> memory_used;   // in the group with that limit, less its page cache
  std::optional<size_t> cpu_quota;    // the lowest, in CPUs, rounded up
};

/// Reads what ROOT/proc/self/cgroup and ROOT/proc/self/mountinfo lead to; `root` ends with '/'.
CgroupLimits read_cgroup_limits(const std::string& root);

/// A whole file of /proc or /sys; empty when it cannot be read.
std::string read_system_file(const std::string& path);

}  // namespace k3
