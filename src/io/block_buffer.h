// Memory that direct reads and writes take: its address is a multiple of kBlockSize.
#pragma once

#include <cstddef>
#include <new>
#include <vector>

#include "io/direct_file.h"

namespace k3::io {

struct BlockAllocator {
  using value_type = std::byte;
  template <class T>
  struct rebind {
    using other = BlockAllocator;  // bytes alone are asked for
  };

  std::byte* allocate(size_t bytes) {
    return static_cast<std::byte*>(::operator new (bytes, std::align_val_t{kBlockSize}));
  }
  void deallocate(std::byte* memory, size_t /*bytes*/) {
    ::operator delete (memory, std::align_val_t{kBlockSize});
  }
  bool operator==(const BlockAllocator&) const = default;
};

using BlockBuffer = std::vector<std::byte, BlockAllocator>;

}  // namespace k3::io
