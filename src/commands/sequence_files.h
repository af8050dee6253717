// --save, --load and --prompt-cache: sequences that outlive the process (docs/snapshots.md).
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "k3/engine.h"

namespace k3::commands {

struct SequenceOptions {
  std::optional<std::filesystem::path> save;
  std::optional<std::filesystem::path> load;
  std::optional<std::filesystem::path> prompt_cache;
};

void add_sequence_options(CLI::App& command, SequenceOptions& options);

/// `prompt`: the whole of it, what the loaded snapshot holds too.
void set_sequence_options(const SequenceOptions& options, std::span<const uint32_t> prompt,
                          EngineOptions& engine);

/// Writes what was asked for as a run goes on.
class SequenceFiles {
 public:
  /// Error(kUsage) when --save could not be written, before hours are spent.
  SequenceFiles(const SequenceOptions& options, std::span<const uint32_t> prompt);

  void prompt_done(const Engine& engine) const;
  /// Error when --save fails; a prompt cache that cannot be written is only warned about.
  void run_done(const Engine& engine, std::span<const uint32_t> generated) const;
  /// What became of --save after a run that ended early, to follow its message; empty without
  /// --save.
  std::string run_failed(const Engine& engine, std::span<const uint32_t> generated) const;

 private:
  std::vector<uint32_t> with(std::span<const uint32_t> generated) const;
  void cache(const Engine& engine, std::span<const uint32_t> ids) const;

  const SequenceOptions& options_;
  std::span<const uint32_t> prompt_;
};

}  // namespace k3::commands
