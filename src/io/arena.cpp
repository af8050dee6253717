#include "io/arena.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <cerrno>
#include <cstdint>
#include <cstring>

#include "base/check.h"
#include "k3/error.h"

namespace k3::io {
namespace {

constexpr size_t kHugePage = size_t{2} << 20;

size_t round_up(uintptr_t value, size_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

/// Maps `size` bytes at a multiple of kHugePage. The mapping ends where the reservation ends, so
/// that no huge page can make more resident than was asked for.
std::byte* map_aligned(size_t size) {
  const size_t mapped = size + kHugePage;
  void* const start =
      ::mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (start == MAP_FAILED) return nullptr;
  const auto address = reinterpret_cast<uintptr_t>(start);
  const size_t before = round_up(address, kHugePage) - address;
  auto* const base = static_cast<std::byte*>(start) + before;
  if (before > 0) K3_CHECK(::munmap(start, before) == 0);
  K3_CHECK(::munmap(base + size, mapped - before - size) == 0);
  return base;
}

}  // namespace

Bytes Arena::padded(Bytes size) {
  return Bytes{(size + Bytes{kAlignment - 1}).value / kAlignment * kAlignment};
}

Arena::Arena(Bytes capacity) : capacity_(padded(capacity).value) {
  if (capacity_ == 0) return;
  base_ = map_aligned(capacity_);
  if (base_ == nullptr) {
    throw Error(
        ErrorKind::kBudget,
        fmt::format("cannot reserve {} of memory: {}; lower --budget, or raise the limits on "
                    "address space (ulimit -v) or overcommit",
                    format_bytes(capacity), std::strerror(errno)));
  }
  ::madvise(base_, capacity_, MADV_HUGEPAGE);  // fails without huge pages: slower, nothing else
}

Arena::~Arena() {
  if (base_ != nullptr) ::munmap(base_, capacity_);
}

void* Arena::carve_bytes(Bytes size) {
  K3_CHECK(!sealed_);
  const size_t needed = padded(size).value;
  K3_CHECK(needed <= capacity_ - used_);
  std::byte* const start = base_ + used_;
  used_ += needed;
  return start;  // zero: fresh from the kernel, carved once
}

}  // namespace k3::io
