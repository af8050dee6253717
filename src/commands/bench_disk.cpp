// k3 bench disk: a drive read the way a run reads, by pattern, length and depth.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "commands/bench.h"
#include "commands/drive_speeds.h"
#include "commands/options.h"
#include "commands/progress.h"
#include "commands/run_report.h"
#include "commands/streams.h"

namespace k3::commands {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kLengths[] = {64u << 10, 1u << 20, 4u << 20, 16u << 20};
constexpr size_t kDepths[] = {1, 4, 16};

struct BenchDiskCommand {
  fs::path path;
  double seconds = 0.5;
  Output output;
};

struct DiskResult {
  bool spread;
  Bytes request;
  size_t in_flight;
  io::ReadSpeed speed;
};

const char* pattern(const DiskResult& result) {
  return result.spread ? "random" : "sequential";
}

std::vector<DiskResult> measure(const BenchDiskCommand& command) {
  const std::vector<fs::path> files = files_to_measure(command.path);
  Progress progress(command.output.quiet);
  std::vector<DiskResult> results;
  for (const bool spread : {false, true}) {
    for (const uint64_t length : kLengths) {
      for (const size_t depth : kDepths) {
        results.push_back({spread, Bytes{length}, depth, {}});
        progress.update([&] {
          return fmt::format("measuring {} reads of {}", pattern(results.back()),
                             format_bytes(Bytes{length}));
        });
        results.back().speed = io::measure_reading(files, {.seconds_max = command.seconds,
                                                           .request = Bytes{length},
                                                           .in_flight = depth,
                                                           .spread = spread});
      }
    }
  }
  return results;
}

double best_gbps(const std::vector<DiskResult>& results) {
  double best = 0;
  for (const DiskResult& result : results) best = std::max(best, result.speed.gbps());
  return best;
}

std::string text(const std::vector<DiskResult>& results) {
  const io::ReadSpeed& first = results.front().speed;
  std::string text =
      fmt::format("{}, {}{}\n", first.reader, first.direct ? "direct" : "through the page cache",
                  first.holes ? "; files with holes: these figures say little of the drive" : "");
  text += fmt::format("{:<12}{:>10}{:>11}{:>9}{:>9}\n", "reads", "length", "in flight", "GB/s",
                      "of best");
  const double best = best_gbps(results);
  for (const DiskResult& r : results) {
    text +=
        fmt::format("{:<12}{:>10}{:>11}{:>9.2f}{:>7.0f} %\n", pattern(r), format_bytes(r.request),
                    r.in_flight, r.speed.gbps(), 100 * r.speed.gbps() / best);
  }
  return text;
}

OrderedJson json(const BenchDiskCommand& command, const std::vector<DiskResult>& results) {
  const io::ReadSpeed& first = results.front().speed;
  const double best = best_gbps(results);
  OrderedJson rows = OrderedJson::array();
  for (const DiskResult& r : results) {
    rows.push_back({{"reads", pattern(r)},
                    {"request_bytes", r.request.value},
                    {"in_flight", r.in_flight},
                    {"bytes", r.speed.bytes.value},
                    {"seconds", r.speed.seconds},
                    {"gbps", r.speed.gbps()},
                    {"ratio", r.speed.gbps() / best}});
  }
  return {{"path", command.path.string()}, {"io", first.reader}, {"direct_io", first.direct},
          {"holes", first.holes},          {"best_gbps", best},  {"results", rows}};
}

}  // namespace

void add_bench_disk(CLI::App& bench) {
  auto command = std::make_shared<BenchDiskCommand>();
  CLI::App* sub = bench.add_subcommand("disk", "A drive, read the way a run reads");
  sub->add_option("PATH", command->path, "A file, or a checkpoint directory")
      ->required()
      ->check(CLI::ExistingPath);
  sub->add_option("--seconds", command->seconds, "At most, for each figure")
      ->capture_default_str()
      ->check(number_between(0.001, 60));
  add_json(*sub, command->output);
  add_verbosity(*sub, command->output);
  sub->footer("Examples:\n  k3 bench disk /models/k3\n  k3 bench disk /models/k3/trunk.k3 --json");
  sub->callback([command] {
    apply_verbosity(command->output);
    const std::vector<DiskResult> results = measure(*command);
    print(command->output.json ? dump_json(json(*command, results)) + "\n" : text(results));
  });
}

}  // namespace k3::commands
