#include "commands/prompt_input.h"

#include <fmt/format.h>

#include "commands/options.h"
#include "commands/text_input.h"
#include "k3/error.h"

namespace k3::commands {
namespace {
int count_given(const PromptOptions& options) {
  return options.text.has_value() + options.file.has_value() + options.ids.has_value();
}
}  // namespace

void add_prompt_options(CLI::App& command, PromptOptions& options) {
  command.add_option("-p,--prompt", options.text, "Prompt text")->group("Prompt (one of)");
  command.add_option("-f,--prompt-file", options.file, "File with the prompt; - is stdin")
      ->check(a_name())
      ->type_name("FILE")
      ->group("Prompt (one of)");
  command.add_option("--ids", options.ids, "Token ids, comma separated; - reads them from stdin")
      ->group("Prompt (one of)");
  command
      .add_flag("--special", options.special,
                "Recognise special literals such as <|open|> in the text [they are text]")
      ->group("Prompt (one of)");
}

bool prompt_given(const PromptOptions& options) {
  return count_given(options) > 0;
}

std::vector<uint32_t> read_prompt(const PromptOptions& options,
                                  const std::optional<text::Tokenizer>& tokenizer,
                                  uint64_t positions) {
  const int given = count_given(options);
  if (given != 1) {
    throw Error(ErrorKind::kUsage,
                fmt::format("{}; give exactly one of --prompt, --prompt-file and --ids",
                            given == 0 ? "there is no prompt" : "there is more than one prompt"));
  }
  if (options.ids && options.special) {
    throw Error(ErrorKind::kUsage, "--special is for text; with --ids there is none");
  }
  if (options.ids) return read_ids(*options.ids, positions);
  if (!tokenizer) {
    throw Error(ErrorKind::kUsage,
                "this model directory has no tiktoken.model, so text cannot be read; give --ids");
  }
  return encode_text(
      *tokenizer,
      options.text ? *options.text : read_input(*options.file, text_limit(*tokenizer, positions)),
      options.special, positions);
}

}  // namespace k3::commands
