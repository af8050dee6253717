#include "commands/model_tokenizer.h"

#include <fmt/format.h>

#include "k3/error.h"

namespace k3::commands {

text::Tokenizer load_tokenizer(const std::filesystem::path& model) {
  std::optional<text::Tokenizer> tokenizer = text::Tokenizer::load(model);
  if (!tokenizer) {
    throw Error(ErrorKind::kCheckpoint,
                fmt::format("{} has no tiktoken.model: download it (and tokenizer_config.json) "
                            "from where the checkpoint came from",
                            model.string()));
  }
  return std::move(*tokenizer);
}

}  // namespace k3::commands
