// Plans and statistics of a run, as text for people and as JSON for scripts.
#pragma once

#include <string>

#include "base/json.h"
#include "commands/progress.h"
#include "k3/engine.h"

namespace k3::commands {

OrderedJson plan_json(const Plan& plan);
OrderedJson time_json(const TimeByKind& time);
OrderedJson stats_json(const RunStats& stats);

/// The report after a run, for stderr: peak memory beside the plan, bytes, speeds, where time went.
std::string run_report(const Plan& plan, const RunStats& stats);

/// One line of progress: layer, speed, and when the pass will be done.
std::string progress_line(const RunProgress& run, double seconds, uint64_t tokens_done);

}  // namespace k3::commands
