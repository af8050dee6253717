#include "commands/run_report.h"

#include <fmt/format.h>

#include <algorithm>

namespace k3::commands {
namespace {

double rate_gbps(uint64_t bytes, double seconds) {
  return seconds > 0 ? static_cast<double>(bytes) / seconds / 1e9 : 0.0;
}

std::string memory_line(const Plan& plan, const RunStats& stats) {
  const std::string peak = stats.peak_rss ? format_bytes(*stats.peak_rss) : "unknown";
  return fmt::format("memory: peak {}, planned {}, budget {}\n", peak, format_bytes(plan.total()),
                     format_bytes(plan.budget));
}

std::string speed_line(const RunStats& stats) {
  std::string line = fmt::format("prompt: {} tokens", stats.prompt_tokens);
  if (stats.reused_tokens > 0) line += fmt::format(" ({} of them reused)", stats.reused_tokens);
  line += fmt::format(" in {:.2f} s", stats.prefill_seconds);
  if (stats.generated_tokens > 1) {
    const double steps = static_cast<double>(stats.generated_tokens - 1);
    line += fmt::format("; then {:.2f} s a token ({:.2f} tokens/s)", stats.decode_seconds / steps,
                        steps / stats.decode_seconds);
  }
  return line + "\n";
}

std::string bytes_line(const RunStats& stats) {
  return fmt::format(
      "read: trunk {}, experts {} ({} of {} uses cached), embedding {}; {} from the drive at "
      "{:.2f} "
      "GB/s, at most {} reads in flight\n",
      format_bytes(Bytes{stats.trunk_bytes}), format_bytes(Bytes{stats.expert_bytes}),
      stats.expert_hits, stats.expert_uses, format_bytes(Bytes{stats.embedding_bytes}),
      format_bytes(Bytes{stats.disk_bytes}), rate_gbps(stats.disk_bytes, stats.read_seconds),
      stats.max_reads_in_flight);
}

/// What the drive did wrong, though the run could mend it.
std::string faults_line(const RunStats& stats) {
  if (stats.direct_fallbacks == 0 && stats.checksum_retries == 0) return "";
  return fmt::format(
      "drive: {} direct reads refused or cut short and done through the page cache, {} chunks read "
      "twice because their checksum failed\n",
      stats.direct_fallbacks, stats.checksum_retries);
}

std::string time_line(const RunStats& stats) {
  return fmt::format(
      "time: reading {:.2f} s, waiting for it {:.2f} s, computing {:.2f} s; {}, {} "
      "thread{}, {}{}\n",
      stats.read_seconds, stats.wait_seconds, stats.compute_seconds, stats.isa, stats.threads,
      stats.threads == 1 ? "" : "s", stats.io,
      stats.direct_io ? ", direct" : ", through the page cache");
}

std::string kinds_line(const TimeByKind& time) {
  return fmt::format(
      "of it: trunk {:.2f} s, experts {:.2f} s, head {:.2f} s, kda {:.2f} s, attention {:.2f} s, "
      "router {:.2f} s, waiting {:.2f} s, rest {:.2f} s\n",
      time.trunk, time.experts, time.head, time.kda, time.attention, time.router, time.waiting,
      time.rest);
}

double percent(Bytes part, Bytes whole) {
  return 100.0 * static_cast<double>(part.value) /
         static_cast<double>(std::max<uint64_t>(whole.value, 1));
}

}  // namespace

std::string plan_table(const Plan& plan) {
  std::string text;
  for (const PlanLine& line : plan.lines) {
    text += fmt::format("  {:<32}{:>12}{:>8.1f} %\n", line.name, format_bytes(line.bytes),
                        percent(line.bytes, plan.budget));
  }
  const Bytes unused = plan.budget - plan.total();
  text += fmt::format("  {:<32}{:>12}{:>8.1f} %\n", "not used", format_bytes(unused),
                      percent(unused, plan.budget));
  return text;
}

OrderedJson plan_json(const Plan& plan) {
  OrderedJson lines = OrderedJson::array();
  for (const PlanLine& line : plan.lines) {
    lines.push_back({{"name", line.name}, {"bytes", line.bytes.value}});
  }
  return {{"budget_bytes", plan.budget.value},
          {"budget_given", plan.budget_given},
          {"least_budget_bytes", plan.least_budget.value},
          {"process_bytes", plan.process.value},
          {"pinned_bytes", plan.pinned.value},
          {"ring_bytes", plan.ring.value},
          {"expert_bytes", plan.experts.value},
          {"state_bytes", plan.state.value},
          {"buffer_bytes", plan.buffers.value},
          {"slack_bytes", plan.slack.value},
          {"total_bytes", plan.total().value},
          {"context", plan.context},
          {"batch_rows", plan.batch_rows},
          {"passes", plan.passes},
          {"expert_slots", plan.expert_slots},
          {"threads", plan.threads},
          {"lines", lines}};
}

OrderedJson time_json(const TimeByKind& time) {
  return {{"trunk", time.trunk},         {"experts", time.experts},
          {"head", time.head},           {"kda", time.kda},
          {"attention", time.attention}, {"router", time.router},
          {"waiting", time.waiting},     {"rest", time.rest}};
}

OrderedJson stats_json(const RunStats& stats) {
  OrderedJson json = {{"peak_rss_bytes", nullptr},
                      {"prefill_seconds", stats.prefill_seconds},
                      {"decode_seconds", stats.decode_seconds},
                      {"prompt_tokens", stats.prompt_tokens},
                      {"reused_tokens", stats.reused_tokens},
                      {"generated_tokens", stats.generated_tokens},
                      {"passes", stats.passes},
                      {"read_bytes",
                       {{"trunk", stats.trunk_bytes},
                        {"experts", stats.expert_bytes},
                        {"embedding", stats.embedding_bytes}}},
                      {"disk_bytes", stats.disk_bytes},
                      {"max_reads_in_flight", stats.max_reads_in_flight},
                      {"expert_uses", stats.expert_uses},
                      {"expert_hits", stats.expert_hits},
                      {"direct_fallbacks", stats.direct_fallbacks},
                      {"checksum_retries", stats.checksum_retries},
                      {"read_seconds", stats.read_seconds},
                      {"compute_seconds", stats.compute_seconds},
                      {"wait_seconds", stats.wait_seconds},
                      {"time_by_kind", time_json(stats.time)},
                      {"isa", stats.isa},
                      {"io", stats.io},
                      {"direct_io", stats.direct_io},
                      {"threads", stats.threads}};
  if (stats.peak_rss) json["peak_rss_bytes"] = stats.peak_rss->value;
  return json;
}

std::string run_report(const Plan& plan, const RunStats& stats) {
  return speed_line(stats) + bytes_line(stats) + faults_line(stats) + time_line(stats) +
         kinds_line(stats.time) + memory_line(plan, stats);
}

std::string progress_line(const RunProgress& run, uint64_t prompt_passes, double seconds,
                          uint64_t tokens_done) {
  std::string line = fmt::format("layer {}/{}, {:.2f} GB/s", run.layer, run.layers,
                                 rate_gbps(run.read_bytes, seconds));
  if (tokens_done > 0) return fmt::format("{} tokens; next: {}", tokens_done, line);
  if (prompt_passes > 1)
    line = fmt::format("pass {}/{}, {}", run.passes_done + 1, prompt_passes, line);
  const uint64_t layers_done = run.passes_done * run.layers + run.layer;
  if (layers_done == 0) return "prompt: " + line;
  return fmt::format("prompt: {} rows, {}, first token in {}", run.rows, line,
                     remaining_time(seconds, layers_done, prompt_passes * run.layers));
}

}  // namespace k3::commands
