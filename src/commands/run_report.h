// Plans and statistics of a run, as text for people and as JSON for scripts.
#pragma once

#include <string>

#include "base/json.h"
#include "commands/progress.h"
#include "k3/engine.h"

namespace k3::commands {

/// The division of the budget, a line for each owner, with its share of it.
std::string plan_table(const Plan& plan);
OrderedJson plan_json(const Plan& plan);
OrderedJson time_json(const TimeByKind& time);
OrderedJson stats_json(const RunStats& stats);

/// The report after a run, for stderr: peak memory beside the plan, bytes, speeds, where time went.
std::string run_report(const Plan& plan, const RunStats& stats);

/// One line of progress: pass, layer, speed, and when the last of `prompt_passes` will be done;
/// `seconds` since the first began.
std::string progress_line(const RunProgress& run, uint64_t prompt_passes, double seconds,
                          uint64_t tokens_done);

}  // namespace k3::commands
