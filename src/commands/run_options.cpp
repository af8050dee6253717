#include "commands/run_options.h"

#include "commands/options.h"

namespace k3::commands {

void add_run_options(CLI::App& command, RunOptions& options) {
  add_model(command, options.model);
  command.add_option("--trunk", options.trunk, "Trunk file written by `k3 pack` [MODEL/trunk.k3]")
      ->check(a_name())
      ->type_name("FILE")
      ->group("Model");
  add_size(command, "--budget", options.budget,
           "Upper bound on resident memory, such as 8G [what is safe here]")
      ->group("Memory");
  command.add_option("-c,--context", options.context, "Positions to keep [what the run needs]")
      ->transform(count_from(1))
      ->group("Memory");
  command.add_option("-b,--batch", options.batch, "At most so many prompt rows a pass [what fits]")
      ->transform(count_from(1))
      ->group("Memory");
  command
      .add_option("-t,--threads", options.threads,
                  "Computing threads [physical cores that this process may use]")
      ->transform(count_between(1, 1024))
      ->group("Memory");
}

void add_check_option(CLI::App& command, RunOptions& options) {
  command
      .add_option("--check", options.check,
                  "Verify a trunk chunk's checksum at its first read, or always")
      ->check(CLI::IsMember({"first", "always"}))
      ->capture_default_str()
      ->group("Diagnostics");
}

EngineOptions engine_options(const RunOptions& options) {
  EngineOptions engine;
  engine.model = options.model;
  engine.trunk = options.trunk;
  engine.budget = options.budget;
  engine.context = options.context;
  engine.batch_rows = options.batch;
  engine.threads = options.threads;
  engine.check_always = options.check == "always";
  return engine;
}

}  // namespace k3::commands
