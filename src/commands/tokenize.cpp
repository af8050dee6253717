// k3 tokenize: a text as token ids.
#include <memory>
#include <string>
#include <vector>

#include "base/json.h"
#include "commands/commands.h"
#include "commands/model_tokenizer.h"
#include "commands/options.h"
#include "commands/streams.h"
#include "commands/text_input.h"
#include "commands/token_ids.h"

namespace k3::commands {
namespace {

struct TokenizeOptions {
  std::filesystem::path model;
  std::string text = "-";
  bool special = false;
  Output output;
};

void run_tokenize(const TokenizeOptions& options) {
  apply_verbosity(options.output);
  const text::Tokenizer tokenizer = load_tokenizer(options.model);
  const std::string text = options.text == "-" ? read_input("-") : options.text;
  const std::vector<uint32_t> ids = encode_text(tokenizer, text, options.special);
  print((options.output.json ? dump_json({{"ids", ids}}) : format_ids(ids)) + "\n");
}

}  // namespace

void add_tokenize(CLI::App& app) {
  auto options = std::make_shared<TokenizeOptions>();
  CLI::App* command = app.add_subcommand("tokenize", "Token ids of a text");
  add_model(*command, options->model);
  command->add_option("TEXT", options->text, "Text; '-' is standard input, byte for byte")
      ->capture_default_str();
  command->add_flag("--special", options->special,
                    "Literals such as <|open|> are special tokens (default: text)");
  add_json(*command, options->output);
  add_verbosity(*command, options->output);
  command->footer(
      "Prints the ids on one line, separated by commas. Nothing is put before the text.\n"
      "Examples:\n"
      "  k3 tokenize MODEL \"The capital of France is\"\n"
      "  k3 tokenize MODEL - < book.txt");
  command->callback([options] { run_tokenize(*options); });
}

}  // namespace k3::commands
