#include "weights/dtype.h"

#include <array>

namespace k3::weights {
namespace {

struct Info {
  std::string_view name;
  uint64_t bytes;
};

/// In the order of DType.
constexpr std::array<Info, 16> kInfos = {{{"BF16", 2},
                                          {"F32", 4},
                                          {"U8", 1},
                                          {"BOOL", 1},
                                          {"I8", 1},
                                          {"I16", 2},
                                          {"I32", 4},
                                          {"I64", 8},
                                          {"U16", 2},
                                          {"U32", 4},
                                          {"U64", 8},
                                          {"F16", 2},
                                          {"F64", 8},
                                          {"F8_E4M3", 1},
                                          {"F8_E5M2", 1},
                                          {"F8_E8M0", 1}}};
static_assert(static_cast<size_t>(DType::kF8E8M0) + 1 == kInfos.size());

}  // namespace

std::optional<DType> dtype_from_name(std::string_view name) {
  for (size_t i = 0; i < kInfos.size(); ++i) {
    if (kInfos[i].name == name) return static_cast<DType>(i);
  }
  return std::nullopt;
}

std::string_view dtype_name(DType dtype) {
  return kInfos.at(static_cast<size_t>(dtype)).name;
}

uint64_t dtype_bytes(DType dtype) {
  return kInfos.at(static_cast<size_t>(dtype)).bytes;
}

}  // namespace k3::weights
