// The subcommands of `k3 bench`, one function each.
#pragma once

#include <CLI/CLI.hpp>

namespace k3::commands {

void add_bench_kernels(CLI::App& bench);
void add_bench_step(CLI::App& bench);
void add_bench_disk(CLI::App& bench);

}  // namespace k3::commands
