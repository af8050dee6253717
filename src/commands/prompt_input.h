// Where a prompt comes from: -p TEXT, -f FILE (- is stdin) or --ids LIST (- is
// stdin). Exactly one.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "text/tokenizer.h"

namespace k3::commands {

struct PromptOptions {
  std::optional<std::string> text;
  std::optional<std::string> file;
  std::optional<std::string> ids;
  bool special = false;
};

void add_prompt_options(CLI::App& command, PromptOptions& options);

bool prompt_given(const PromptOptions& options);

/// Ids of the prompt. Text is taken byte for byte, nothing is prepended; invalid UTF-8 becomes
/// U+FFFD with one warning. Error(kUsage) when none or several are given, when the text needs a
/// tokenizer that the model does not have, when an id is no number, or when the input is longer
/// than `positions` tokens can be.
std::vector<uint32_t> read_prompt(const PromptOptions& options,
                                  const std::optional<text::Tokenizer>& tokenizer,
                                  uint64_t positions);

}  // namespace k3::commands
