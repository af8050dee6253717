// k3 bench kernels: figures beside the limits measured in the same run.
#include <fmt/format.h>

#include <memory>

#include "base/host.h"
#include "commands/bench.h"
#include "commands/options.h"
#include "commands/progress.h"
#include "commands/run_report.h"
#include "commands/streams.h"
#include "engine/isa.h"
#include "engine/kernel_bench.h"
#include "k3/error.h"
#include "kernels/dispatch.h"

namespace k3::commands {
namespace {

using engine::KernelBench;
using engine::KernelResult;

constexpr Bytes kSizeMin{32'000'000};  // less holds no work for the products of many columns

struct BenchKernelsCommand {
  std::optional<Bytes> size;
  std::optional<uint64_t> threads;
  uint64_t repetitions = 5;
  Output output;
};

const char* binding_limit(const KernelResult& result) {
  return result.bandwidth_ratio >= result.fma_ratio ? "bandwidth" : "fma";
}

std::string text(const KernelBench& bench) {
  std::string text;
  for (const auto& [threads, gbps] : bench.read_bandwidth_gbps) {
    text += fmt::format("{} thread{}: reads {:.1f} GB/s, updates {:.1f} GB/s", threads,
                        threads == 1 ? " " : "s", gbps, bench.update_bandwidth_gbps.at(threads));
    for (const auto& [isa, peaks] : bench.fma_peak_gflops) {
      text += fmt::format(", {} FMA {:.0f} GFLOP/s", kernels::isa_name(isa), peaks.at(threads));
    }
    text += "\n";
  }
  text += fmt::format("{:<14}{:<8}{:>8}{:>9}{:>10}{:>12}{:>14}{:>9}{:>13}\n", "operation", "isa",
                      "threads", "GB/s", "GFLOP/s", "Gweights/s", "of bandwidth", "of FMA",
                      "of raw time");
  for (const KernelResult& r : bench.results) {
    text += fmt::format("{:<14}{:<8}{:>8}{:>9.1f}{:>10.1f}{:>12}{:>12.0f} %{:>7.0f} %{:>13}\n",
                        r.op, kernels::isa_name(r.isa), r.threads, r.gbps, r.gflops,
                        r.gweights > 0 ? fmt::format("{:.1f}", r.gweights) : "",
                        100 * r.bandwidth_ratio, 100 * r.fma_ratio,
                        r.raw_time_ratio > 0 ? fmt::format("{:.2f} x", r.raw_time_ratio) : "");
  }
  return text;
}

OrderedJson json(const KernelBench& bench) {
  OrderedJson read = OrderedJson::object(), update = OrderedJson::object(),
              fma = OrderedJson::object(), results = OrderedJson::array();
  for (const auto& [threads, gbps] : bench.read_bandwidth_gbps)
    read[std::to_string(threads)] = gbps;
  for (const auto& [threads, gbps] : bench.update_bandwidth_gbps) {
    update[std::to_string(threads)] = gbps;
  }
  for (const auto& [isa, peaks] : bench.fma_peak_gflops) {
    // One figure for each instruction set: of one thread; and all thread counts beside it.
    fma[std::string(kernels::isa_name(isa))] = peaks.begin()->second;
  }
  for (const KernelResult& r : bench.results) {
    OrderedJson result = {{"op", r.op},
                          {"isa", kernels::isa_name(r.isa)},
                          {"threads", r.threads},
                          {"gbps", r.gbps},
                          {"gflops", r.gflops},
                          {"limit", binding_limit(r)},
                          {"ratio", std::max(r.bandwidth_ratio, r.fma_ratio)},
                          {"bandwidth_ratio", r.bandwidth_ratio},
                          {"fma_ratio", r.fma_ratio}};
    if (r.gweights > 0) result["gweights"] = r.gweights;
    if (r.raw_time_ratio > 0) result["raw_time_ratio"] = r.raw_time_ratio;
    results.push_back(std::move(result));
  }
  return {{"read_bandwidth_gbps", read},
          {"update_bandwidth_gbps", update},
          {"fma_peak_gflops", fma},
          {"results", results}};
}

void run_bench_kernels(const BenchKernelsCommand& command) {
  apply_verbosity(command.output);
  Progress progress(command.output.quiet);
  engine::KernelBenchOptions options;
  if (command.size && *command.size < kSizeMin) {
    throw Error(ErrorKind::kUsage,
                fmt::format("--size {}: at least {} are needed", format_bytes(*command.size),
                            format_bytes(kSizeMin)));
  }
  if (command.size) options.weights = *command.size;
  const kernels::Isa best = engine::choose_isa();
  options.isas = {kernels::Isa::kAvx2};
  if (best == kernels::Isa::kAvx512) options.isas.push_back(best);
  const uint64_t threads = command.threads.value_or(read_host_limits().usable_cores);
  options.threads = {1};
  if (threads > 1) options.threads.push_back(threads);
  options.repetitions = command.repetitions;
  options.on_progress = [&](std::string_view what) {
    progress.update([&] { return fmt::format("measuring {}", what); });
  };
  const KernelBench bench = engine::bench_kernels(options);
  print(command.output.json ? dump_json(json(bench)) + "\n" : text(bench));
}

}  // namespace

void add_bench_kernels(CLI::App& bench) {
  auto command = std::make_shared<BenchKernelsCommand>();
  CLI::App* sub = bench.add_subcommand("kernels", "Kernels beside memory bandwidth and FMA peak");
  add_size(*sub, "--size", command->size, "Bytes of weights, far more than the caches [2G]");
  sub->add_option("-t,--threads", command->threads,
                  "Threads, measured beside one [physical cores that this process may use]")
      ->transform(count_between(1, 1024));
  sub->add_option("--repetitions", command->repetitions, "Measurements of each; the best counts")
      ->capture_default_str()
      ->transform(count_between(1, 1000));
  add_json(*sub, command->output);
  add_verbosity(*sub, command->output);
  sub->footer("Example:\n  k3 bench kernels --size 4G --json");
  sub->callback([command] { run_bench_kernels(*command); });
}

}  // namespace k3::commands
