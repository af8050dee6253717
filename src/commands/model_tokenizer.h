// The tokenizer of a checkpoint, for commands that cannot do without one.
#pragma once

#include <filesystem>

#include "text/tokenizer.h"

namespace k3::commands {

/// Error(kCheckpoint) when the tokenizer files are damaged or missing.
text::Tokenizer load_tokenizer(const std::filesystem::path& model);

}  // namespace k3::commands
