// Is there anything but zeros? Blocks of zeros become holes of files.
#pragma once

#include <cstddef>
#include <cstring>
#include <span>

namespace k3 {

/// `bytes` is not empty.
inline bool all_zero(std::span<const std::byte> bytes) {
  return bytes[0] == std::byte{0} &&
         std::memcmp(bytes.data(), bytes.data() + 1, bytes.size() - 1) == 0;
}

}  // namespace k3
