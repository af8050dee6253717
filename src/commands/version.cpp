// k3 version: what this binary is, and what it would use on this machine.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <memory>
#include <string>
#include <vector>

#include "base/json.h"
#include "commands/commands.h"
#include "commands/options.h"
#include "commands/streams.h"
#include "engine/isa.h"
#include "io/block_reader.h"
#include "kernels/dispatch.h"

namespace k3::commands {
namespace {

#if defined(__clang__)
constexpr const char* kCompiler = "clang " __clang_version__;
#else
constexpr const char* kCompiler = "gcc " __VERSION__;
#endif

struct Facts {
  std::vector<std::string> isas;  // built in
  std::string isa;                // chosen
  std::string io;
  std::string io_reason;  // why not io_uring; empty if it is, or if K3_IO asked for another
};

Facts find_facts() {
  using kernels::Isa;
  Facts facts;
  for (const Isa isa : {Isa::kScalar, Isa::kAvx2, Isa::kAvx512}) {
    facts.isas.emplace_back(kernels::isa_name(isa));
  }
  facts.isa = kernels::isa_name(engine::choose_isa());
  facts.io = io::make_reader(1, &facts.io_reason)->name();
  return facts;
}

std::string as_json(const Facts& facts) {
  const OrderedJson object = {
      {"version", K3_VERSION},
      {"compiler", kCompiler},
      {"isas", facts.isas},
      {"isa", facts.isa},
      {"io_backends", {"uring", "pread"}},
      {"io", facts.io},
      {"io_reason", facts.io_reason.empty() ? OrderedJson() : OrderedJson(facts.io_reason)}};
  return dump_json(object) + "\n";
}

std::string as_text(const Facts& facts) {
  return fmt::format(
      "k3 {}\ncompiler          {}\ninstruction sets  {}; used here: {}\n"
      "I/O               uring, pread; used here: {}{}\n",
      K3_VERSION, kCompiler, fmt::join(facts.isas, ", "), facts.isa, facts.io,
      facts.io_reason.empty() ? "" : fmt::format(" ({})", facts.io_reason));
}

}  // namespace

void add_version(CLI::App& app) {
  CLI::App* command = app.add_subcommand("version", "Version, compiler, instruction sets, I/O");
  auto output = std::make_shared<Output>();
  add_verbosity(*command, *output);
  add_json(*command, *output);
  command->footer(
      "K3_ISA=scalar|avx2|avx512 and K3_IO=uring|pread force what is used.\n"
      "\n"
      "Examples:\n"
      "  k3 version\n"
      "  K3_ISA=avx2 k3 version --json");
  command->callback([output] {
    apply_verbosity(*output);
    const Facts facts = find_facts();
    print(output->json ? as_json(facts) : as_text(facts));
  });
}

}  // namespace k3::commands
