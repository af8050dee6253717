// Element types of safetensors files.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace k3::weights {

enum class DType : uint8_t {
  kBf16 = 0,
  kF32 = 1,
  kU8 = 2,
  // Known to the format, never needed by the model:
  kBool,
  kI8,
  kI16,
  kI32,
  kI64,
  kU16,
  kU32,
  kU64,
  kF16,
  kF64,
  kF8E4M3,
  kF8E5M2,
  kF8E8M0,
};

std::optional<DType> dtype_from_name(std::string_view name);  // "BF16", "F8_E8M0", ...
std::string_view dtype_name(DType dtype);
uint64_t dtype_bytes(DType dtype);

}  // namespace k3::weights
