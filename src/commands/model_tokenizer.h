// The tokenizer of a checkpoint.
#pragma once

#include <filesystem>
#include <optional>

#include "text/tokenizer.h"

namespace k3::commands {

/// Nothing when the checkpoint has none; Error(kCheckpoint) when `model` is no directory, or the
/// tokenizer files are damaged.
std::optional<text::Tokenizer> find_tokenizer(const std::filesystem::path& model);
/// For commands that cannot do without one: Error(kCheckpoint) when it is missing too.
text::Tokenizer load_tokenizer(const std::filesystem::path& model);

}  // namespace k3::commands
