#include "commands/sequence_files.h"

#include <fmt/format.h>

#include "base/log.h"
#include "commands/options.h"
#include "k3/error.h"

namespace k3::commands {

void add_sequence_options(CLI::App& command, SequenceOptions& options) {
  command
      .add_option("--save", options.save,
                  "Write the sequence there at the end, also when interrupted")
      ->check(a_name())
      ->type_name("FILE")
      ->group("Sequence");
  CLI::Option* load =
      command
          .add_option("--load", options.load,
                      "Go on from a saved sequence; the prompt, if any, is put after it")
          ->check(a_name())
          ->type_name("FILE")
          ->group("Sequence");
  command
      .add_option("--prompt-cache", options.prompt_cache,
                  fmt::format("Start from the longest saved beginning of the prompt, and leave "
                              "this one for others; keeps the {} used last",
                              prompt_cache_capacity()))
      ->check(a_name())
      ->type_name("DIR")
      ->excludes(load)
      ->group("Sequence");
}

void set_sequence_options(const SequenceOptions& options, std::span<const uint32_t> prompt,
                          EngineOptions& engine) {
  engine.resume.file = options.load;
  engine.resume.cache = options.prompt_cache;
  engine.resume.prompt.assign(prompt.begin(), prompt.end());
  engine.undo = options.save.has_value();
}

SequenceFiles::SequenceFiles(const SequenceOptions& options, std::span<const uint32_t> prompt)
    : options_(options), prompt_(prompt) {
  if (options.save) check_snapshot_place(*options.save);
}

std::vector<uint32_t> SequenceFiles::with(std::span<const uint32_t> generated) const {
  std::vector<uint32_t> ids(prompt_.begin(), prompt_.end());
  ids.insert(ids.end(), generated.begin(), generated.end());
  return ids;
}

void SequenceFiles::cache(const Engine& engine, std::span<const uint32_t> ids) const {
  if (!options_.prompt_cache) return;
  try {
    engine.save_to_cache(*options_.prompt_cache, ids.first(engine.position()));
  } catch (const Error& error) {
    log::warn(error.what());
  }
}

void SequenceFiles::prompt_done(const Engine& engine) const {
  cache(engine, prompt_);
}

void SequenceFiles::run_done(const Engine& engine, std::span<const uint32_t> generated) const {
  const std::vector<uint32_t> ids = with(generated);
  cache(engine, ids);
  if (options_.save) engine.save(*options_.save, ids);
}

std::string SequenceFiles::run_failed(const Engine& engine,
                                      std::span<const uint32_t> generated) const {
  if (!options_.save) return "";
  if (!engine.whole()) {
    return fmt::format(
        "; the sequence was not saved to {}: it stopped inside a step, and the "
        "budget left no room for a copy of the states before it",
        options_.save->string());
  }
  try {
    engine.save(*options_.save, with(generated));
  } catch (const Error& error) {
    return fmt::format("; {}", error.what());
  }
  return fmt::format("; the sequence up to there is in {}", options_.save->string());
}

}  // namespace k3::commands
