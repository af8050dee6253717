// Texts as users give them: a file, standard input, an argument; byte for byte.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "k3/units.h"
#include "text/tokenizer.h"

namespace k3::commands {

/// The most that is read, and what the message says of it.
struct InputLimit {
  Bytes bytes{256u << 20};  // a bound for what never ends, as /dev/zero
  std::string reason = "the most that is taken";
};
/// What a run can use: a longer text, or list of ids, is more than the model's positions for sure.
/// It is refused before it takes memory that no budget counts. A megabyte is always taken, so that
/// a message can tell how many tokens there are.
InputLimit text_limit(const text::Tokenizer& tokenizer, uint64_t positions);
InputLimit ids_limit(uint64_t positions);

/// A whole file, or standard input for "-". Error(kUsage) when it cannot be read.
std::string read_input(const std::string& file, const InputLimit& limit = {});

/// Token ids as parse_ids takes them, or those on standard input for "-": a long prompt does not
/// fit an argument.
std::vector<uint32_t> read_ids(const std::string& ids, uint64_t positions);

/// Ids of a text; one warning when it was not valid UTF-8 and U+FFFD stands for the ill-formed
/// parts. Error(kUsage) when they are more than `positions` and a million; where they are fewer, a
/// run refuses them with their number.
std::vector<uint32_t> encode_text(const text::Tokenizer& tokenizer, std::string_view text,
                                  bool special, uint64_t positions = UINT64_MAX);

}  // namespace k3::commands
