#include "commands/run_session.h"

#include <unistd.h>

#include <chrono>
#include <thread>

#include "commands/interrupts.h"
#include "commands/run_report.h"
#include "commands/streams.h"

namespace k3::commands {
namespace {
constexpr auto kWatchInterval = std::chrono::milliseconds(50);
}

RunSession::RunSession(Engine& engine, const Output& output)
    : engine_(engine), output_(output), progress_(output.quiet) {
  if (output.verbose) say(plan_table(engine.plan()));
  watch_interrupts();
  engine_.set_progress([this](const RunProgress& run) { on_progress(run); });
  watcher_ = Thread("k3-interrupt", [this] {
    while (!done_) {
      if (interrupted()) return engine_.interrupt();
      std::this_thread::sleep_for(kWatchInterval);
    }
  });
}

RunSession::~RunSession() {
  done_ = true;
  watcher_.join();
  engine_.set_progress(nullptr);
}

void RunSession::on_progress(const RunProgress& run) {
  progress_.update(
      [&] { return progress_line(run, engine_.plan().passes, progress_.seconds(), tokens_done_); });
}

void RunSession::token_done() {
  ++tokens_done_;
  if (!output_.json && ::isatty(STDOUT_FILENO) != 0) progress_.end_moving_line();
}

void RunSession::report() const {
  if (!output_.quiet) say(run_report(engine_.plan(), engine_.stats()));
}

}  // namespace k3::commands
