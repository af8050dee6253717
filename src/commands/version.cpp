// k3 version: what this binary is and what it would use here.
#include <fmt/format.h>

#include <memory>

#include "commands/app.h"
#include "commands/commands.h"

namespace k3::commands {
namespace {

#if defined(__clang__)
constexpr const char* kCompiler = "clang " __clang_version__;
#else
constexpr const char* kCompiler = "gcc " __VERSION__;
#endif

void run_version() {
  print(fmt::format("k3 {}\ncompiler: {}\n", K3_VERSION, kCompiler));
}

}  // namespace

void add_version(CLI::App& app) {
  CLI::App* command = app.add_subcommand("version", "Version, compiler, instruction sets, I/O");
  command->footer("Examples:\n  k3 version");
  command->callback([] { run_version(); });
}

}  // namespace k3::commands
