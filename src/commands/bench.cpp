// k3 bench: figures beside the limits measured in the same run.
#include "commands/bench.h"

#include "commands/commands.h"

namespace k3::commands {

void add_bench(CLI::App& app) {
  CLI::App* bench = app.add_subcommand("bench", "Measure beside the machine's limits");
  bench->require_subcommand(0, 1);  // by the callback: to CLI11, what it does not know is none
  bench->callback([bench] {
    if (bench->get_subcommands().empty()) throw CLI::RequiredError("One of kernels, step and disk");
  });
  add_bench_kernels(*bench);
  add_bench_step(*bench);
  add_bench_disk(*bench);
}

}  // namespace k3::commands
