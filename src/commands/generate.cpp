// k3 generate: continues a prompt.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <exception>
#include <limits>
#include <memory>

#include "commands/app.h"
#include "commands/commands.h"
#include "commands/model_tokenizer.h"
#include "commands/options.h"
#include "commands/output_place.h"
#include "commands/prompt_input.h"
#include "commands/receipt.h"
#include "commands/run_options.h"
#include "commands/run_report.h"
#include "commands/run_session.h"
#include "commands/sequence_files.h"
#include "commands/streams.h"
#include "io/partial_file.h"
#include "k3/engine.h"
#include "k3/error.h"
#include "model/config.h"
#include "text/tokenizer.h"
#include "text/utf8_stream.h"

namespace k3::commands {
namespace {

struct GenerateCommand {
  RunOptions run;
  PromptOptions prompt;
  Output output;
  uint64_t max_tokens = 128;
  bool ignore_eos = false;
  std::vector<uint32_t> stop_ids;
  std::optional<std::filesystem::path> dump_logits;
  SequenceOptions sequence;
};

const char* finish_name(FinishReason reason) {
  switch (reason) {
    case FinishReason::kLength:
      return "length";
    case FinishReason::kEos:
      return "eos";
    case FinishReason::kStop:
      return "stop";
  }
  return "";
}

/// eos of the configuration, and the literals that end a turn or a document where the vocabulary
/// has them: config.json and tokenizer_config.json disagree on which one is "the" end.
std::vector<uint32_t> terminal_ids(const Engine& engine,
                                   const std::optional<text::Tokenizer>& tokenizer) {
  std::vector<uint32_t> ids = engine.eos_ids();
  for (const char* literal : {"[EOS]", "[EOT]"}) {
    const std::optional<uint32_t> id = tokenizer ? tokenizer->special_id(literal) : std::nullopt;
    if (id) ids.push_back(*id);
  }
  return ids;
}

/// What has been generated, on its way to stdout, to the receipt and to the JSON object.
class Generation {
 public:
  Generation(const GenerateCommand& command, const std::optional<text::Tokenizer>& tokenizer,
             size_t vocab_size)
      : command_(command), tokenizer_(tokenizer) {
    if (command.output.json || command.dump_logits) {
      logits_.emplace(command.dump_logits, vocab_size * sizeof(float));
    }
  }

  /// `ends`: the id ends the generation and is no text.
  void take(uint32_t id, std::span<const float> logits, bool ends) {
    ids_.push_back(id);
    if (logits_) logits_->append(logits);
    if (tokenizer_ && !ends && id < tokenizer_->vocabulary_size()) {
      emit(stream_.push(tokenizer_->token_bytes(id)));
    } else if (!tokenizer_ && !command_.output.json) {
      print(fmt::format("{}{}", ids_.size() > 1 ? "," : "", id));  // no tokenizer: ids are the text
    }
  }

  /// The rest of the text; called once, however the run ends.
  void finish() {
    emit(stream_.finish());
    if (!command_.output.json && ::isatty(STDOUT_FILENO) != 0) print("\n");
  }

  /// `finish`: why it ended; null after an error.
  OrderedJson json(std::span<const uint32_t> prompt, const OrderedJson& finish,
                   const Engine& engine) const {
    OrderedJson json = {{"prompt_ids", std::vector<uint32_t>(prompt.begin(), prompt.end())},
                        {"ids", ids_},
                        {"text", nullptr},
                        {"finish_reason", finish},
                        {"receipt", logits_->receipt(prompt, ids_)},
                        {"plan", plan_json(engine.plan())},
                        {"stats", stats_json(engine.stats())}};
    if (tokenizer_) json["text"] = text_;
    return json;
  }

  const std::vector<uint32_t>& ids() const { return ids_; }

 private:
  void emit(const std::string& text) {
    if (command_.output.json) {
      text_ += text;
    } else if (!text.empty()) {
      print(text);
    }
  }

  const GenerateCommand& command_;
  const std::optional<text::Tokenizer>& tokenizer_;
  std::optional<LogitsFile> logits_;
  std::vector<uint32_t> ids_;
  text::Utf8Stream stream_;
  std::string text_;
};

GenerateOptions generate_options(const GenerateCommand& command, const Engine& engine,
                                 const std::optional<text::Tokenizer>& tokenizer,
                                 size_t prompt_tokens) {
  for (const uint32_t id : command.stop_ids) {
    if (id < engine.vocab_size()) continue;
    throw Error(ErrorKind::kUsage, fmt::format("--stop-id {}: the vocabulary has {} ids, 0 to {}",
                                               id, engine.vocab_size(), engine.vocab_size() - 1));
  }
  GenerateOptions options;
  // A default context may have been cut to what the model allows.
  options.max_tokens = std::min(command.max_tokens, engine.plan().context - prompt_tokens);
  if (!command.ignore_eos) options.eos_ids = terminal_ids(engine, tokenizer);
  options.stop_ids = command.stop_ids;
  return options;
}

bool ends_generation(const GenerateOptions& options, uint32_t id) {
  const auto has = [id](const std::vector<uint32_t>& ids) {
    return std::find(ids.begin(), ids.end(), id) != ids.end();
  };
  return has(options.eos_ids) || has(options.stop_ids);
}

/// Ids of the whole prompt: those of the snapshot that is loaded, then the new ones.
std::vector<uint32_t> whole_prompt(const GenerateCommand& command,
                                   const std::optional<text::Tokenizer>& tokenizer) {
  std::vector<uint32_t> ids;
  if (command.sequence.load) {
    ids = read_saved_ids(*command.sequence.load).ids;
    if (!prompt_given(command.prompt)) return ids;
  }
  const std::vector<uint32_t> given = read_prompt(
      command.prompt, tokenizer, model::load_config(command.run.model).max_position_embeddings);
  ids.insert(ids.end(), given.begin(), given.end());
  return ids;
}

std::unique_ptr<Engine> open_engine(const GenerateCommand& command,
                                    const std::optional<text::Tokenizer>& tokenizer,
                                    std::span<const uint32_t> prompt) {
  EngineOptions options = engine_options(command.run);
  options.prompt_tokens = prompt.size();
  options.new_tokens = command.max_tokens;
  if (tokenizer) options.tokenizer = tokenizer->memory();
  set_sequence_options(command.sequence, prompt, options);
  return Engine::open(options);
}

/// After an error: what there is reaches stdout and the files asked for.
[[noreturn]] void end_early(const GenerateCommand& command, const Error& error,
                            std::span<const uint32_t> prompt, const Engine& engine,
                            const SequenceFiles& files, Generation& generation) {
  generation.finish();
  const std::string what = error.kind() == ErrorKind::kInterrupted
                               ? fmt::format("interrupted after {} tokens", generation.ids().size())
                               : error.what();
  const std::string message = what + files.run_failed(engine, generation.ids());
  if (command.output.json) {
    OrderedJson json = generation.json(prompt, nullptr, engine);
    json["error"] = message;
    print(dump_json(json) + "\n");
  }
  end_process(error.kind(), message);
}

/// The files and the JSON object; neither is lost because the other cannot be written.
void end_complete(const GenerateCommand& command, FinishReason reason,
                  std::span<const uint32_t> prompt, const Engine& engine,
                  const SequenceFiles& files, Generation& generation) {
  generation.finish();
  std::exception_ptr not_saved;
  try {
    files.run_done(engine, generation.ids());
  } catch (const Error&) {
    not_saved = std::current_exception();
  }
  if (command.output.json) {
    print(dump_json(generation.json(prompt, finish_name(reason), engine)) + "\n");
  }
  if (not_saved) std::rethrow_exception(not_saved);
}

/// Nothing that is read, or written by another option, is written over. To go on in the file of
/// --load is what --save is for: that one is replaced when the new one is whole.
void check_places_are_apart(const GenerateCommand& command) {
  using Place = std::optional<std::filesystem::path>;
  const Place& save = command.sequence.save;
  const Place partial = save ? Place(io::PartialFile::partial_of(*save)) : std::nullopt;
  const Place prompt = command.prompt.file == "-" ? std::nullopt : Place(command.prompt.file);
  const auto apart = [](const Place& place, const char* option, const Place& other,
                        const char* other_option) {
    if (place && other) refuse_shared_place(*place, option, *other, other_option);
  };
  apart(save, "--save", prompt, "--prompt-file");
  apart(partial, "--save", prompt, "--prompt-file");
  apart(partial, "--save", command.sequence.load, "--load");
  apart(command.dump_logits, "--dump-logits", prompt, "--prompt-file");
  apart(command.dump_logits, "--dump-logits", command.sequence.load, "--load");
  apart(command.dump_logits, "--dump-logits", save, "--save");
  apart(command.dump_logits, "--dump-logits", partial, "--save, while it is written");
}

void check_places(const GenerateCommand& command) {
  const std::filesystem::path trunk = command.run.trunk.value_or(command.run.model / "trunk.k3");
  const auto check = [&](const std::optional<std::filesystem::path>& place, const char* option) {
    if (place) refuse_place_of_model(*place, option, command.run.model, trunk);
  };
  check(command.sequence.save, "--save");
  check(command.sequence.prompt_cache, "--prompt-cache");
  check(command.dump_logits, "--dump-logits");
  check_places_are_apart(command);
}

void run_generate(const GenerateCommand& command) {
  apply_verbosity(command.output);
  const auto tokenizer = find_tokenizer(command.run.model);
  check_places(command);
  const std::vector<uint32_t> prompt = whole_prompt(command, tokenizer);
  SequenceFiles files(command.sequence, prompt);
  const std::unique_ptr<Engine> engine = open_engine(command, tokenizer, prompt);
  const GenerateOptions options = generate_options(command, *engine, tokenizer, prompt.size());

  Generation generation(command, tokenizer, engine->vocab_size());
  RunSession session(*engine, command.output);
  const auto take = [&](uint32_t id, std::span<const float> logits) {
    session.token_done();
    generation.take(id, logits, ends_generation(options, id));
    if (reader_gone()) throw Error(ErrorKind::kInterrupted, "nobody reads the text");
  };
  FinishReason reason{};
  try {
    reason = engine->generate(std::span(prompt).subspan(engine->position()), options,
                              {.on_prompt = [&] { files.prompt_done(*engine); }, .on_token = take});
  } catch (const Error& error) {
    if (reader_gone()) {
      files.run_done(*engine, generation.ids());
      ::_exit(0);  // nothing waits for the reads in flight
    }
    end_early(command, error, prompt, *engine, files, generation);
  }
  end_complete(command, reason, prompt, *engine, files, generation);
  session.report();
}

}  // namespace

void add_generate(CLI::App& app) {
  auto command = std::make_shared<GenerateCommand>();
  CLI::App* sub = app.add_subcommand("generate", "Continue a prompt");
  add_run_options(*sub, command->run);
  add_prompt_options(*sub, command->prompt);
  sub->add_option("-n,--max-tokens", command->max_tokens, "New tokens at most")
      ->capture_default_str()
      ->transform(count_from(0))
      ->group("Generation");
  sub->add_flag("--ignore-eos", command->ignore_eos, "Go on after ids that end a text")
      ->group("Generation");
  sub->add_option("--stop-id", command->stop_ids, "End after this token id; repeatable")
      ->transform(count_between(0, std::numeric_limits<uint32_t>::max()))
      ->group("Generation");
  add_sequence_options(*sub, command->sequence);
  sub->add_option("--dump-logits", command->dump_logits,
                  "Write float32 logits, one row of the vocabulary for each new token; replaces "
                  "an earlier dump and no other file")
      ->check(a_name())
      ->type_name("FILE")
      ->group("Diagnostics");
  add_check_option(*sub, command->run);
  add_json(*sub, command->output);
  add_verbosity(*sub, command->output);
  sub->footer(
      "Examples:\n"
      "  k3 generate ~/Kimi-K3 --budget 8G -p \"The capital of France is\" -n 16\n"
      "  k3 generate ~/Kimi-K3 -f prompt.txt --json > answer.json\n"
      "  k3 generate ~/Kimi-K3 --ids 1008,10484,318 --budget 1G\n"
      "  k3 generate ~/Kimi-K3 -f question.txt --save talk.k3seq\n"
      "  k3 generate ~/Kimi-K3 --load talk.k3seq -f next.txt --save talk.k3seq");
  sub->callback([command] { run_generate(*command); });
}

}  // namespace k3::commands
