// k3 plan: how a budget would be divided, what a token costs to read, and what more would buy.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "commands/commands.h"
#include "commands/drive_speeds.h"
#include "commands/model_tokenizer.h"
#include "commands/options.h"
#include "commands/run_options.h"
#include "commands/run_report.h"
#include "commands/streams.h"
#include "k3/engine.h"
#include "text/tokenizer.h"

namespace k3::commands {
namespace {

constexpr uint64_t kContextDefault = 1024;
constexpr size_t kBarWidth = 64;

struct PlanCommand {
  RunOptions run;
  uint64_t prompt_tokens = 1;
  std::optional<double> disk_gbps;
  Output output;
};

/// The same plan under other circumstances.
struct WhatIf {
  std::string name;
  Plan plan;
  double seconds;
};

EngineOptions plan_options(const PlanCommand& command) {
  EngineOptions options = engine_options(command.run);
  options.plan_only = true;
  options.prompt_tokens = command.prompt_tokens;
  if (!options.context && command.prompt_tokens < kContextDefault) {
    options.new_tokens = kContextDefault - command.prompt_tokens;
  }
  // Loaded for its size alone: the plan counts what a run holds.
  const auto tokenizer = find_tokenizer(command.run.model);
  if (tokenizer) options.tokenizer = tokenizer->memory();
  return options;
}

DriveSpeeds drive_speeds(const PlanCommand& command) {
  const auto trunk = command.run.trunk.value_or(command.run.model / "trunk.k3");
  if (!command.disk_gbps) return measure_drives(command.run.model, trunk);
  return {
      .trunk_gbps = *command.disk_gbps,
      .experts_gbps = *command.disk_gbps,
      .one_drive = io::drive_facts(command.run.model).device_id == io::drive_facts(trunk).device_id,
      .measured = false};
}

std::vector<WhatIf> what_if(const Engine& engine, const DriveSpeeds& speeds) {
  std::vector<WhatIf> cases;
  for (const uint64_t times : {2, 4}) {
    const uint64_t most = std::numeric_limits<uint64_t>::max() / times;
    const Plan plan = engine.plan_for(Bytes{std::min(engine.plan().budget.value, most) * times});
    cases.push_back({fmt::format("{} times the memory", times), plan, read_seconds(plan, speeds)});
  }
  if (speeds.one_drive) {
    DriveSpeeds two = speeds;
    two.one_drive = false;
    cases.push_back(
        {"trunk and experts on two such drives", engine.plan(), read_seconds(engine.plan(), two)});
  }
  return cases;
}

Bytes read_per_token(const Plan& plan) {
  return plan.trunk_per_token() + plan.experts_per_token_bytes() + plan.embedding_row;
}

/// One letter for each sixty-fourth of the budget; a part that is there at all ends where its
/// running total does, so that the lengths add up.
std::string bar(const Plan& plan) {
  const std::array<std::pair<char, Bytes>, 7> parts{{{'C', plan.process},
                                                     {'S', plan.state},
                                                     {'A', plan.buffers},
                                                     {'R', plan.ring},
                                                     {'E', plan.experts},
                                                     {'P', plan.pinned},
                                                     {'-', plan.slack}}};
  std::string cells;
  Bytes sum;
  for (const auto& [letter, bytes] : parts) {
    sum += bytes;
    const double share = static_cast<double>(sum.value) / static_cast<double>(plan.budget.value);
    cells.resize(std::min(kBarWidth, static_cast<size_t>(share * kBarWidth + 0.5)), letter);
  }
  cells.resize(kBarWidth, ' ');
  return fmt::format(
      "  [{}]\n  C code, index, tokenizer  S state  A activations  R ring  E experts  P pinned  "
      "- slack\n",
      cells);
}

std::string bytes_text(const Plan& plan) {
  return fmt::format(
      "read for a token: {} = trunk {} ({} of {} pinned) + experts {} ({} x {}) + embedding {}\n",
      format_bytes(read_per_token(plan)), format_bytes(plan.trunk_per_token()),
      format_bytes(plan.pinned_stored), format_bytes(plan.trunk_stored),
      format_bytes(plan.experts_per_token_bytes()), plan.experts_per_token,
      format_bytes(plan.expert_bytes), format_bytes(plan.embedding_row));
}

std::string drive_text(const DriveSpeeds& speeds) {
  if (!speeds.measured) return fmt::format("drive: {:.2f} GB/s, as given\n", speeds.trunk_gbps);
  return fmt::format(
      "drive: trunk {:.2f} GB/s, experts {:.2f} GB/s, measured just now, {}{}\n", speeds.trunk_gbps,
      speeds.experts_gbps, speeds.one_drive ? "one drive" : "two drives",
      speeds.holes ? "; the files have holes, which read faster than any drive" : "");
}

std::string as_text(const Plan& plan, const DriveSpeeds& speeds, const std::vector<WhatIf>& cases) {
  std::string text = fmt::format(
      "budget {} ({}), the least is {}; context {}, {} of the prompt at once, {} threads\n{}{}{}{}",
      format_bytes(plan.budget), plan.budget_given ? "given" : "what is safe here",
      format_bytes(plan.least_budget), plan.context, plan.batch_rows, plan.threads,
      plan_table(plan), bar(plan), bytes_text(plan), drive_text(speeds));
  text += fmt::format(
      "reading takes {:.2f} s a token; computing overlaps with it, the longer of the two counts\n",
      read_seconds(plan, speeds));
  for (const WhatIf& other : cases) {
    text += fmt::format("  with {}: {:.2f} s ({} for a token)\n", other.name, other.seconds,
                        format_bytes(read_per_token(other.plan)));
  }
  return text;
}

OrderedJson as_json(const Plan& plan, const DriveSpeeds& speeds, const std::vector<WhatIf>& cases) {
  OrderedJson json = plan_json(plan);
  json["bytes_per_token"] = {{"trunk", plan.trunk_per_token().value},
                             {"experts", plan.experts_per_token_bytes().value},
                             {"embedding", plan.embedding_row.value},
                             {"total", read_per_token(plan).value}};
  json["drive"] = {{"trunk_gbps", speeds.trunk_gbps},
                   {"experts_gbps", speeds.experts_gbps},
                   {"measured", speeds.measured},
                   {"one_drive", speeds.one_drive},
                   {"holes", speeds.holes}};
  json["seconds_per_token"] = read_seconds(plan, speeds);
  json["what_if"] = OrderedJson::array();
  for (const WhatIf& other : cases) {
    json["what_if"].push_back({{"name", other.name},
                               {"budget_bytes", other.plan.budget.value},
                               {"bytes_per_token", read_per_token(other.plan).value},
                               {"seconds_per_token", other.seconds}});
  }
  return json;
}

void run_plan(const PlanCommand& command) {
  apply_verbosity(command.output);
  const std::unique_ptr<Engine> engine = Engine::open(plan_options(command));
  const DriveSpeeds speeds = drive_speeds(command);
  const std::vector<WhatIf> cases = what_if(*engine, speeds);
  print(command.output.json ? dump_json(as_json(engine->plan(), speeds, cases)) + "\n"
                            : as_text(engine->plan(), speeds, cases));
}

}  // namespace

void add_plan(CLI::App& app) {
  auto command = std::make_shared<PlanCommand>();
  CLI::App* sub = app.add_subcommand("plan", "How a budget would be divided, and what it buys");
  add_run_options(*sub, command->run);
  sub->add_option("--prompt-tokens", command->prompt_tokens, "Length of the prompt to plan for")
      ->transform(count_from(1))
      ->capture_default_str()
      ->group("Memory");
  sub->add_option("--disk-gbps", command->disk_gbps,
                  "Speed of the drive, 10^9 bytes a second [measured]")
      ->check(number_between(1e-6, 1e6))
      ->group("Diagnostics");
  add_json(*sub, command->output);
  add_verbosity(*sub, command->output);
  sub->footer(
      "Allocates nothing; a budget that this machine does not have can be planned too. The "
      "context\n"
      "is 1024 positions unless -c says otherwise.\n"
      "\n"
      "Examples:\n"
      "  k3 plan MODEL --budget 8G\n"
      "  k3 plan MODEL --budget 64G -c 131072 --disk-gbps 3.5\n"
      "  k3 plan MODEL --json");
  sub->callback([command] { run_plan(*command); });
}

}  // namespace k3::commands
