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
  /// Error(kUsage) when the file cannot be created, or one is there already that is not whole rows
  /// of so many bytes: no dump of this model.
  LogitsFile(const std::optional<std::filesystem::path>& path, uint64_t row_bytes);

  /// Error(kInternal) when it cannot be written; the rows before it stay.
  void append(std::span<const float> row);
  std::string receipt(std::span<const uint32_t> prompt_ids, std::span<const uint32_t> ids) const;

 private:
  void write(std::span<const std::byte> bytes);

  const uint64_t row_bytes_;
  std::string name_;
  UniqueFd fd_;
  uint64_t bytes_ = 0;
};

}  // namespace k3::commands
