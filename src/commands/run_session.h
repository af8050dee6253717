// What generate and score share around the engine: progress, interruption, the report.
#pragma once

#include <atomic>

#include "base/thread.h"
#include "commands/options.h"
#include "commands/progress.h"
#include "k3/engine.h"

namespace k3::commands {

/// Shows progress while `engine` runs, and makes SIGINT end a run even when a read hangs.
class RunSession {
 public:
  RunSession(Engine& engine, const Output& output);
  ~RunSession();
  RunSession(const RunSession&) = delete;
  RunSession& operator=(const RunSession&) = delete;

  /// Before the text of a token is written: where that goes to the terminal, it takes the place of
  /// the moving line.
  void token_done();
  /// The report on stderr, unless quiet.
  void report() const;

 private:
  void on_progress(const RunProgress& run);

  Engine& engine_;
  const Output& output_;
  Progress progress_;
  uint64_t tokens_done_ = 0;
  std::atomic<bool> done_{false};
  Thread watcher_;
};

}  // namespace k3::commands
