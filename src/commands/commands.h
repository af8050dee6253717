// The commands of k3. Each is one file with one struct of options; its function adds the command's
// options to `app` and what to do once the command line is parsed. Work that fails throws
// k3::Error.
#pragma once

#include <CLI/CLI.hpp>

namespace k3::commands {

void add_pack(CLI::App& app);
void add_generate(CLI::App& app);
void add_plan(CLI::App& app);
void add_doctor(CLI::App& app);
void add_verify(CLI::App& app);
void add_score(CLI::App& app);
void add_tokenize(CLI::App& app);
void add_detokenize(CLI::App& app);
void add_bench(CLI::App& app);
void add_version(CLI::App& app);

}  // namespace k3::commands
