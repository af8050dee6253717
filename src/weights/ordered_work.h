// Work that is done by several threads but whose results are used in order, by the caller: reading
// and checking chunks while the ones before are written.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

namespace k3::weights {

/// Which result and where it lies: results in flight never share a slot.
struct WorkItem {
  uint64_t index;
  size_t slot;    // [0, kWorkSlots)
  size_t thread;  // [0, kWorkThreads)
};
inline constexpr size_t kWorkThreads = 2;
inline constexpr size_t kWorkSlots = 4;

/// Calls make(item) on kWorkThreads threads for every index in [begin, end), and take(item) on the
/// calling thread in ascending order, each after its make. What make throws is thrown here when its
/// turn comes; then, and when take throws, nothing more is started.
void run_in_order(uint64_t begin, uint64_t end, const std::function<void(const WorkItem&)>& make,
                  const std::function<void(const WorkItem&)>& take);

}  // namespace k3::weights
