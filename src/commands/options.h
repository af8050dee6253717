// Options that several commands have, so that they read alike everywhere.
#pragma once

#include <CLI/CLI.hpp>
#include <filesystem>
#include <optional>
#include <string>

#include "k3/units.h"

namespace k3::commands {

struct Output {
  bool quiet = false;    // stderr: errors only
  bool verbose = false;  // stderr: more detail
  bool json = false;     // stdout: one JSON object in place of text
};

/// -q/--quiet and -v/--verbose, of which at most one may be given.
void add_verbosity(CLI::App& command, Output& output);
void add_json(CLI::App& command, Output& output);
/// Sets what base/log shows: errors alone, or debug lines too.
void apply_verbosity(const Output& output);

/// The required positional MODEL: a checkpoint directory.
void add_model(CLI::App& command, std::filesystem::path& model);

/// Checks of options: a whole number, always decimal (to CLI11 alone 010 were eight and 0x10
/// sixteen); a number between two others, which NaN is not. count_from() and count_between() also
/// drop leading zeros: add them with transform().
CLI::Validator count_from(uint64_t least);
CLI::Validator count_between(uint64_t least, uint64_t most);
CLI::Validator number_between(double least, double most);
/// For options that name a file: an empty name, as of a variable of a script that is not set, is
/// no request for the default.
CLI::Validator a_name();

/// A size such as 8G, 8GiB, 8.5G or 500M.
CLI::Option* add_size(CLI::App& command, const std::string& name, std::optional<Bytes>& size,
                      const std::string& help);

}  // namespace k3::commands
