// The one large reservation of a run. The plan says how much each owner needs; the arena carves
// exactly that, line by line, and is then sealed: nothing on a step's path allocates.
#pragma once

#include <cstddef>
#include <span>
#include <type_traits>

#include "k3/units.h"

namespace k3::io {

class Arena {
 public:
  static constexpr size_t kAlignment = 4096;  // of every carved span: fit for direct reads

  /// Bytes that `size` takes when carved; what an owner's bytes_needed() sums.
  static Bytes padded(Bytes size);

  /// Reserves `capacity` bytes, 2 MiB-aligned, huge pages advised, untouched (not resident yet).
  /// Throws Error(kBudget) where the system refuses.
  explicit Arena(Bytes capacity);
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  /// Zeroed memory for `count` objects of T, aligned to kAlignment. Fails a K3_CHECK when more is
  /// asked for than was planned, or after seal().
  template <typename T>
  std::span<T> carve(size_t count) {
    static_assert(std::is_trivially_destructible_v<T>);  // nobody destroys what is carved
    return {static_cast<T*>(carve_bytes(Bytes{count} * sizeof(T))), count};
  }
  void seal() { sealed_ = true; }

  Bytes capacity() const { return Bytes{capacity_}; }
  Bytes used() const { return Bytes{used_}; }

 private:
  void* carve_bytes(Bytes size);

  std::byte* base_ = nullptr;
  size_t capacity_ = 0;
  size_t used_ = 0;
  bool sealed_ = false;
};

}  // namespace k3::io
