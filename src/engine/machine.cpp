#include "engine/machine.h"

#include <fmt/format.h>

#include <algorithm>

#include "k3/error.h"

namespace k3::engine {
namespace {
constexpr uint64_t kPage = 4096;
constexpr Bytes kAddressSpaceBesides{
    128u << 20};  // libraries, stacks, allocator arenas: mapped, not used
}  // namespace

std::optional<Bytes> safe_budget(const HostLimits& limits, Bytes resident) {
  std::optional<Bytes> most;
  const auto lower = [&most](Bytes bytes) { most = most ? std::min(*most, bytes) : bytes; };
  if (limits.memory_available) lower(*limits.memory_available + resident);
  if (limits.cgroup_limit) {
    const Bytes used = limits.cgroup_used.value_or(resident);
    const Bytes others = used > resident ? used - resident : Bytes{};
    lower(*limits.cgroup_limit > others ? *limits.cgroup_limit - others : Bytes{});
  }
  if (limits.address_space) {
    const Bytes space = *limits.address_space;
    lower(space > kAddressSpaceBesides ? space - kAddressSpaceBesides : Bytes{});
  }
  if (!most) return std::nullopt;
  return Bytes{most->value / 10 * 9};
}

void check_budget(const HostLimits& limits, Bytes budget) {
  if (!limits.cgroup_limit) return;
  // The kernel rounds a limit down to whole pages; a budget equal to what was asked for is fine.
  if (budget.value / kPage <= limits.cgroup_limit->value / kPage) return;
  throw Error(ErrorKind::kBudget,
              fmt::format("a budget of {} is more than the memory limit of this process's cgroup, "
                          "{} ({} bytes); give a smaller --budget or raise the limit",
                          format_bytes(budget), format_bytes(*limits.cgroup_limit),
                          limits.cgroup_limit->value));
}

}  // namespace k3::engine
