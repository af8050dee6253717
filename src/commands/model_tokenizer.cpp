#include "commands/model_tokenizer.h"

#include <fmt/format.h>

#include "k3/error.h"
#include "weights/model_directory.h"

namespace k3::commands {

std::optional<text::Tokenizer> find_tokenizer(const std::filesystem::path& model) {
  weights::require_model_directory(model);
  return text::Tokenizer::load(model);
}

text::Tokenizer load_tokenizer(const std::filesystem::path& model) {
  std::optional<text::Tokenizer> tokenizer = find_tokenizer(model);
  if (!tokenizer) {
    throw Error(ErrorKind::kCheckpoint,
                fmt::format("{} has no tiktoken.model: download it (and tokenizer_config.json) "
                            "from where the checkpoint came from",
                            model.string()));
  }
  return std::move(*tokenizer);
}

}  // namespace k3::commands
