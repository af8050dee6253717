// Texts as users give them: a file, standard input, an argument; byte for byte.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer.h"

namespace k3::commands {

/// A whole file, or standard input for "-". Error(kUsage) when it cannot be read.
std::string read_input(const std::string& file);

/// Token ids as parse_ids takes them, or those on standard input for "-": a long prompt does not
/// fit an argument.
std::vector<uint32_t> read_ids(const std::string& ids);

/// Ids of a text; one warning when it was not valid UTF-8 and U+FFFD stands for the ill-formed
/// parts.
std::vector<uint32_t> encode_text(const text::Tokenizer& tokenizer, std::string_view text,
                                  bool special);

}  // namespace k3::commands
