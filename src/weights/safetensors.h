// One safetensors header, read and checked: every rule of the format that a damaged or hostile file
// could break (docs/reliability.md lists them).
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "weights/dtype.h"

namespace k3::weights {

struct TensorEntry {
  std::string_view name;  // JSON escapes decoded; valid during the callback only
  DType dtype;
  std::span<const uint64_t> shape;
  uint64_t offset;  // of the first byte in the file
  uint64_t bytes;
};

struct SafetensorsHeader {
  uint64_t file_bytes;
  uint64_t data_start;  // 8 + header length
  uint64_t tensor_count;
  uint64_t header_hash;  // XXH3-64 of the 8 + N header bytes
};

/// Largest header that is read.
inline constexpr uint64_t kHeaderBytesMax = 100'000'000;

/// Reads and checks the header of `path`, calling `visit` for each tensor in header order (before
/// the checks across tensors: overlap and gaps are found after the last one). Peak memory is a few
/// times the header. Error(kCheckpoint) naming file and reason.
SafetensorsHeader read_safetensors(const std::filesystem::path& path,
                                   const std::function<void(const TensorEntry&)>& visit);

}  // namespace k3::weights
