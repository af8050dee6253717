// k3 detokenize: token ids as text.
#include <memory>
#include <string>

#include "base/json.h"
#include "commands/commands.h"
#include "commands/model_tokenizer.h"
#include "commands/options.h"
#include "commands/streams.h"
#include "commands/text_input.h"
#include "commands/token_ids.h"

namespace k3::commands {
namespace {

struct DetokenizeOptions {
  std::filesystem::path model;
  std::string ids = "-";
  Output output;
};

void run_detokenize(const DetokenizeOptions& options) {
  apply_verbosity(options.output);
  const text::Tokenizer tokenizer = load_tokenizer(options.model);
  const std::string ids = options.ids == "-" ? read_input("-") : options.ids;
  const std::string text = tokenizer.decode(parse_ids(ids));
  print(options.output.json ? dump_json({{"text", text}}) + "\n" : text);
}

}  // namespace

void add_detokenize(CLI::App& app) {
  auto options = std::make_shared<DetokenizeOptions>();
  CLI::App* command = app.add_subcommand("detokenize", "Text of token ids");
  add_model(*command, options->model);
  command->add_option("IDS", options->ids, "Ids separated by commas; '-' is standard input")
      ->capture_default_str();
  add_json(*command, options->output);
  add_verbosity(*command, options->output);
  command->footer(
      "Prints the text alone, without a line end of its own. Special tokens are printed as their\n"
      "literals; bytes that are not UTF-8 become U+FFFD.\n"
      "Examples:\n"
      "  k3 detokenize MODEL 1008,10484,318,15383,387\n"
      "  k3 tokenize MODEL - < book.txt | k3 detokenize MODEL -");
  command->callback([options] { run_detokenize(*options); });
}

}  // namespace k3::commands
