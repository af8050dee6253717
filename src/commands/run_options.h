// Options of every command that opens the engine, and how they become EngineOptions.
#pragma once

#include <CLI/CLI.hpp>
#include <filesystem>
#include <optional>
#include <string>

#include "k3/engine.h"

namespace k3::commands {

struct RunOptions {
  std::filesystem::path model;
  std::optional<std::filesystem::path> trunk;
  std::optional<Bytes> budget;
  std::optional<uint64_t> context;
  std::optional<uint64_t> batch;
  std::optional<uint64_t> threads;
  std::string check = "first";
};

/// MODEL, --trunk, --budget, -c/--context, -b/--batch, -t/--threads.
void add_run_options(CLI::App& command, RunOptions& options);
/// --check first|always.
void add_check_option(CLI::App& command, RunOptions& options);

EngineOptions engine_options(const RunOptions& options);

}  // namespace k3::commands
