// k3 bench step: passes at any shape on weights that are made up, and where their time goes.
#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <span>

#include "commands/bench.h"
#include "commands/options.h"
#include "commands/progress.h"
#include "commands/run_report.h"
#include "commands/streams.h"
#include "engine/kernel_bench.h"
#include "engine/synthetic_model.h"
#include "io/direct_file.h"
#include "k3/error.h"

namespace k3::commands {
namespace {

using Clock = std::chrono::steady_clock;

constexpr Bytes kConfigMax{1u << 20};
constexpr Bytes kBandwidthBuffer{1'000'000'000};

struct BenchStepCommand {
  std::string shape = "official";
  std::optional<uint32_t> layers;
  uint64_t rows = 1;
  uint64_t steps = 3;
  std::optional<Bytes> budget;
  std::optional<uint64_t> threads;
  Output output;
};

/// What the process had done at some moment.
struct Moment {
  Clock::time_point time = Clock::now();
  double user_seconds = 0;
  TimeByKind kinds;
};

struct Phase {
  double seconds = 0;
  double user_seconds = 0;
  TimeByKind kinds;
};

struct StepBench {
  uint32_t layers = 0;
  Phase prefill;  // of all rows
  Phase decode;   // of one step
  RunStats stats;
  engine::StepBytes bytes;
  double bandwidth_gbps = 0;
};

struct NamedKind {
  const char* name;
  double TimeByKind::*seconds;
  double engine::StepBytes::*bytes;  // null: not counted
};
constexpr NamedKind kKinds[] = {
    {"trunk", &TimeByKind::trunk, &engine::StepBytes::trunk},
    {"experts", &TimeByKind::experts, &engine::StepBytes::experts},
    {"head", &TimeByKind::head, &engine::StepBytes::head},
    {"kda", &TimeByKind::kda, &engine::StepBytes::kda},
    {"attention", &TimeByKind::attention, nullptr},
    {"router", &TimeByKind::router, &engine::StepBytes::router},
    {"waiting", &TimeByKind::waiting, nullptr},
    {"rest", &TimeByKind::rest, nullptr},
};

model::Config read_shape(const BenchStepCommand& command) {
  model::Config config;
  std::error_code error;
  if (command.shape == "official") {
    config = engine::official_shape();
  } else if (std::filesystem::is_directory(command.shape, error)) {
    config = model::load_config(command.shape);
  } else {
    config = model::parse_config(io::read_text_file(command.shape, kConfigMax), command.shape);
  }
  if (!command.layers) return config;
  if (*command.layers > config.num_hidden_layers) {
    throw Error(ErrorKind::kUsage, fmt::format("--layers {}: the shape has {}", *command.layers,
                                               config.num_hidden_layers));
  }
  config.num_hidden_layers = *command.layers;
  config.dense_layers = std::min(config.dense_layers, config.num_hidden_layers);
  config.is_mla.resize(config.num_hidden_layers);
  return config;
}

Moment now(const Engine& engine) {
  struct rusage usage {};
  ::getrusage(RUSAGE_SELF, &usage);
  return {.user_seconds = static_cast<double>(usage.ru_utime.tv_sec) +
                          static_cast<double>(usage.ru_utime.tv_usec) / 1e6,
          .kinds = engine.stats().time};
}

Phase between(const Moment& from, const Moment& to, uint64_t count) {
  const double each = 1 / static_cast<double>(count);
  Phase phase{std::chrono::duration<double>(to.time - from.time).count() * each,
              (to.user_seconds - from.user_seconds) * each,
              {}};
  for (const NamedKind& kind : kKinds) {
    phase.kinds.*kind.seconds = (to.kinds.*kind.seconds - from.kinds.*kind.seconds) * each;
  }
  return phase;
}

void run_steps(const BenchStepCommand& command, StepBench& bench) {
  const model::Config config = read_shape(command);
  engine::SyntheticModel made = engine::make_synthetic_model(config);
  bench.layers = config.num_hidden_layers;
  bench.bytes = made.step_bytes;
  EngineOptions options;
  options.budget = command.budget;
  options.prompt_tokens = command.rows;
  options.new_tokens = command.steps + 1;
  options.threads = command.threads;
  const auto engine = Engine::open(options, std::move(made.model), std::move(made.reader));
  Progress progress(command.output.quiet);
  engine->set_progress([&](const RunProgress& run) {
    progress.update([&] { return fmt::format("layer {}/{}", run.layer, run.layers); });
  });
  std::vector<uint32_t> ids;
  for (uint64_t i = 0; i < command.rows; ++i) {
    ids.push_back(static_cast<uint32_t>((i + 1) * 7919 % config.vocab_size));
  }
  const Moment start = now(*engine);
  Moment prompt_done;
  GenerateOptions generate;
  generate.max_tokens = command.steps + 1;
  GenerateHooks hooks;
  hooks.on_prompt = [&] { prompt_done = now(*engine); };
  hooks.on_token = [](uint32_t, std::span<const float>) {};
  engine->generate(ids, generate, hooks);
  bench.prefill = between(start, prompt_done, 1);
  bench.decode = between(prompt_done, now(*engine), command.steps);
  bench.stats = engine->stats();
}

void measure_bandwidth(StepBench& bench) {
  const size_t threads = bench.stats.threads;
  const auto limits = engine::bench_kernels({.weights = kBandwidthBuffer,
                                             .isas = {},
                                             .threads = {threads},
                                             .repetitions = 3,
                                             .on_progress = {}});
  bench.bandwidth_gbps = limits.read_bandwidth_gbps.at(threads);
}

double gbps(const StepBench& bench, const NamedKind& kind) {
  const double seconds = bench.decode.kinds.*kind.seconds;
  return seconds > 0 ? bench.bytes.*kind.bytes / seconds / 1e9 : 0.0;
}

std::string text(const StepBench& bench) {
  const Phase& step = bench.decode;
  std::string text = fmt::format(
      "{} layers, {}, {} thread{}; memory reads {:.1f} GB/s\n"
      "prompt of {} tokens: {:.3f} s ({:.3f} s of CPU), checking the weights included\n"
      "decode: {:.3f} s a step ({:.3f} s of CPU), of which\n",
      bench.layers, bench.stats.isa, bench.stats.threads, bench.stats.threads == 1 ? "" : "s",
      bench.bandwidth_gbps, bench.stats.prompt_tokens, bench.prefill.seconds,
      bench.prefill.user_seconds, step.seconds, step.user_seconds);
  text += fmt::format("{:<12}{:>10}{:>9}{:>9}{:>14}\n", "kind", "seconds", "share", "GB/s",
                      "of bandwidth");
  for (const NamedKind& kind : kKinds) {
    const double seconds = step.kinds.*kind.seconds;
    text +=
        fmt::format("{:<12}{:>10.4f}{:>7.1f} %", kind.name, seconds, 100 * seconds / step.seconds);
    if (kind.bytes != nullptr) {
      const double speed = gbps(bench, kind);
      text += fmt::format("{:>9.1f}{:>12.0f} %", speed, 100 * speed / bench.bandwidth_gbps);
    }
    text += "\n";
  }
  return text;
}

OrderedJson phase_json(const Phase& phase) {
  return {{"seconds", phase.seconds},
          {"user_seconds", phase.user_seconds},
          {"time_by_kind", time_json(phase.kinds)}};
}

OrderedJson json(const StepBench& bench) {
  OrderedJson speeds = OrderedJson::object(), ratios = OrderedJson::object();
  for (const NamedKind& kind : kKinds) {
    if (kind.bytes == nullptr) continue;
    speeds[kind.name] = gbps(bench, kind);
    ratios[kind.name] = gbps(bench, kind) / bench.bandwidth_gbps;
  }
  OrderedJson step = phase_json(bench.decode);
  step["gbps"] = speeds;
  step["ratio"] = ratios;
  return {{"layers", bench.layers},
          {"rows", bench.stats.prompt_tokens},
          {"isa", bench.stats.isa},
          {"threads", bench.stats.threads},
          {"read_bandwidth_gbps", bench.bandwidth_gbps},
          {"prefill", phase_json(bench.prefill)},
          {"step", step}};
}

}  // namespace

void add_bench_step(CLI::App& bench) {
  auto command = std::make_shared<BenchStepCommand>();
  CLI::App* sub = bench.add_subcommand("step", "Decode steps on made-up weights in memory");
  sub->add_option("--shape", command->shape,
                  "\"official\" (the released model), a config.json or a checkpoint directory")
      ->capture_default_str();
  sub->add_option("--layers", command->layers, "The first so many layers alone")
      ->transform(count_between(1, 1000));
  sub->add_option("--rows", command->rows, "Tokens of the prompt")
      ->capture_default_str()
      ->transform(count_between(1, 100000));
  sub->add_option("--steps", command->steps, "Decode steps; their mean counts")
      ->capture_default_str()
      ->transform(count_between(1, 1000));
  add_size(*sub, "--budget", command->budget, "Memory, as for generate");
  sub->add_option("-t,--threads", command->threads,
                  "Threads [physical cores that this process may use]")
      ->transform(count_between(1, 1024));
  add_json(*sub, command->output);
  add_verbosity(*sub, command->output);
  sub->footer(
      "Examples:\n  k3 bench step --layers 4\n"
      "  k3 bench step --shape config.json --rows 64 --budget 4G --json");
  sub->callback([command] {
    apply_verbosity(command->output);
    StepBench result;
    run_steps(*command, result);
    measure_bandwidth(result);
    print(command->output.json ? dump_json(json(result)) + "\n" : text(result));
  });
}

}  // namespace k3::commands
