// The receipt of a run: SHA-256 over prompt ids and ids (u32 LE), then all logits rows (f32 LE).
// Equal receipts mean equal bits.
//
// The ids come first but are known last, so the rows are kept in a file meanwhile: the one of
// --dump-logits, or an unnamed temporary one.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>

#include "base/unique_fd.h"

namespace k3::commands {

class LogitsFile {
 public:
  /// Error(kUsage) when the file cannot be created, or is there already and of another kind.
  explicit LogitsFile(const std::optional<std::filesystem::path>& path);

  void append(std::span<const float> row);  // Error(kInternal) when it cannot be written
  std::string receipt(std::span<const uint32_t> prompt_ids, std::span<const uint32_t> ids) const;

 private:
  std::string name_;
  UniqueFd fd_;
  uint64_t bytes_ = 0;
};

}  // namespace k3::commands
