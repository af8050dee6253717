// k3 score: how likely a model finds a text, at the cost of taking it in.
#include <fmt/format.h>

#include <cmath>
#include <memory>
#include <numeric>

#include "commands/app.h"
#include "commands/commands.h"
#include "commands/model_tokenizer.h"
#include "commands/options.h"
#include "commands/run_options.h"
#include "commands/run_report.h"
#include "commands/run_session.h"
#include "commands/streams.h"
#include "commands/text_input.h"
#include "commands/token_ids.h"
#include "k3/engine.h"
#include "k3/error.h"
#include "model/config.h"

namespace k3::commands {
namespace {

struct ScoreCommand {
  RunOptions run;
  std::optional<std::string> file;
  std::optional<std::string> ids;
  bool special = false;
  Output output;
};

struct Text {
  std::vector<uint32_t> ids;
  Bytes tokenizer;  // heap that stays in use
};

Text read_text(const ScoreCommand& command) {
  Text text;
  const uint64_t positions = model::load_config(command.run.model).max_position_embeddings;
  if (command.ids) {
    text.ids = read_ids(*command.ids, positions);
  } else {
    const text::Tokenizer tokenizer = load_tokenizer(command.run.model);
    const std::string input =
        read_input(command.file.value_or("-"), text_limit(tokenizer, positions));
    text.ids = encode_text(tokenizer, input, command.special, positions);
  }
  if (text.ids.size() < 2) {
    throw Error(ErrorKind::kUsage,
                fmt::format("the text has {} token{}; a score needs two at least, as the first "
                            "one only sets the context",
                            text.ids.size(), text.ids.size() == 1 ? "" : "s"));
  }
  return text;
}

OrderedJson score_json(std::span<const uint32_t> ids, const std::vector<double>& scores,
                       double mean, const Engine& engine) {
  OrderedJson tokens = OrderedJson::array();
  for (size_t i = 0; i < scores.size(); ++i) {
    tokens.push_back({{"id", ids[i + 1]}, {"log_likelihood", scores[i]}});
  }
  return {{"tokens", scores.size()},
          {"mean_nll", mean},
          {"perplexity", std::exp(mean)},
          {"first_id", ids[0]},
          {"per_token", tokens},
          {"plan", plan_json(engine.plan())},
          {"stats", stats_json(engine.stats())}};
}

void run_score(const ScoreCommand& command) {
  apply_verbosity(command.output);
  const Text text = read_text(command);
  EngineOptions options = engine_options(command.run);
  options.prompt_tokens = text.ids.size();
  options.prompt_logits = true;
  const std::unique_ptr<Engine> engine = Engine::open(options);
  RunSession session(*engine, command.output);
  std::vector<double> scores;
  try {
    scores = engine->score(text.ids);
  } catch (const Error& error) {
    const bool interrupted = error.kind() == ErrorKind::kInterrupted;
    end_process(error.kind(), interrupted ? "interrupted; nothing was scored" : error.what());
  }
  const double mean =
      -std::accumulate(scores.begin(), scores.end(), 0.0) / static_cast<double>(scores.size());
  print(command.output.json ? dump_json(score_json(text.ids, scores, mean, *engine)) + "\n"
                            : fmt::format("mean NLL {:.6f} nats, perplexity {:.4f}, {} tokens\n",
                                          mean, std::exp(mean), scores.size()));
  session.report();
}

}  // namespace

void add_score(CLI::App& app) {
  auto command = std::make_shared<ScoreCommand>();
  CLI::App* sub = app.add_subcommand("score", "How likely the model finds a text");
  add_run_options(*sub, command->run);
  CLI::Option* file =
      sub->add_option("FILE", command->file, "Text file; - is standard input [-]")->check(a_name());
  sub->add_option("--ids", command->ids,
                  "Token ids, comma separated, in place of a text; - is "
                  "standard input")
      ->excludes(file);
  sub->add_flag("--special", command->special,
                "Literals such as <|open|> are special tokens [they are text]");
  add_check_option(*sub, command->run);
  add_json(*sub, command->output);
  add_verbosity(*sub, command->output);
  sub->footer(
      "Prints the mean negative log-likelihood of tokens 2 to the last, each after all before it,\n"
      "in nats; its exponential, the perplexity; and how many tokens that were. --json adds the\n"
      "natural logarithm of the probability of each.\n"
      "Examples:\n"
      "  k3 score MODEL chapter.txt --budget 8G\n"
      "  k3 score MODEL --json - < chapter.txt > scores.json");
  sub->callback([command] { run_score(*command); });
}

}  // namespace k3::commands
