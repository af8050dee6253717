// Where the time of a step goes: at every moment one kind of work is being timed.
#pragma once

#include <chrono>
#include <utility>

#include "k3/engine.h"

namespace k3::engine {

class WorkClock {
 public:
  using Kind = double TimeByKind::*;

  /// Until it is destroyed, time counts as `kind`; then again as what it interrupted.
  class Scope {
   public:
    Scope(WorkClock& clock, Kind kind) : clock_(clock), before_(clock.change(kind)) {}
    ~Scope() { clock_.change(before_); }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    WorkClock& clock_;
    Kind before_;
  };

  /// What passes until the next change counts from now on.
  void start() { since_ = Clock::now(); }
  const TimeByKind& seconds() const { return seconds_; }

 private:
  using Clock = std::chrono::steady_clock;
  Kind change(Kind kind) {
    const Clock::time_point now = Clock::now();
    seconds_.*kind_ += std::chrono::duration<double>(now - since_).count();
    since_ = now;
    return std::exchange(kind_, kind);
  }

  TimeByKind seconds_;
  Kind kind_ = &TimeByKind::rest;
  Clock::time_point since_ = Clock::now();
};

}  // namespace k3::engine
