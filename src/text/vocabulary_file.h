// The two tokenizer files of a checkpoint, read strictly: whatever is not as expected is an
// Error(kCheckpoint) that names the file, the line or key, what was found and what was expected.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "text/special_tokens.h"
#include "text/vocabulary.h"

namespace k3::text {

/// tiktoken.model: lines `BASE64 SP RANK LF` (the last LF may be missing), in any order. The ranks
/// of n lines are 0 to n-1, no token is empty or listed twice, all 256 single bytes are tokens.
/// `what` names the file in messages.
Vocabulary parse_vocabulary(std::string_view file, const std::string& what);

/// tokenizer_config.json: added_tokens_decoder names some of the kSpecialTokens ids that follow the
/// ranks, each by a literal of its own; the others are <|reserved_token_ID|>.
SpecialTokens parse_special_tokens(std::string_view json, const std::string& what,
                                   uint32_t first_id);

}  // namespace k3::text
