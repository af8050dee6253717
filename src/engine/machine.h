// What the host's limits mean for a budget.
#pragma once

#include <optional>

#include "base/host.h"
#include "k3/units.h"

namespace k3::engine {

/// A budget that leaves the host a margin: nine tenths of what this process may come to, given the
/// memory available, the cgroup and RLIMIT_AS. nullopt when the host tells nothing.
std::optional<Bytes> safe_budget(const HostLimits& limits, Bytes resident);

/// Error(kBudget) naming the limit when `budget` is more than the cgroup allows.
void check_budget(const HostLimits& limits, Bytes budget);

}  // namespace k3::engine
