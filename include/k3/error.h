// The one exception type for expected failures: files, drives, budgets, requests, checkpoints.
//
// A message is one line that says what was tried on what, what was found, what was expected and
// what to do. `main` prints it and ends with exit_code(kind). Our own mistakes are not Errors: see
// base/check.h.
#pragma once

#include <stdexcept>
#include <string_view>

namespace k3 {

enum class ErrorKind {
  kInternal,     // not finite numbers, an output that cannot be written
  kUsage,        // options, prompts, ids that make no sense
  kCheckpoint,   // checkpoint or trunk file not usable
  kRead,         // reading failed: the drive, or bytes that changed
  kBudget,       // the memory budget cannot be met
  kInterrupted,  // SIGINT, SIGTERM, SIGHUP
};

/// The documented exit code of the process for each kind (docs/reliability.md).
constexpr int exit_code(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::kInternal:
      return 1;
    case ErrorKind::kUsage:
      return 2;
    case ErrorKind::kCheckpoint:
      return 3;
    case ErrorKind::kRead:
      return 4;
    case ErrorKind::kBudget:
      return 5;
    case ErrorKind::kInterrupted:
      return 130;
  }
  return 1;
}

class Error : public std::runtime_error {
 public:
  /// What would break the line, or act on a terminal, is written as escapes (base/one_line.h).
  Error(ErrorKind kind, std::string_view message);
  ErrorKind kind() const { return kind_; }

 private:
  ErrorKind kind_;
};

}  // namespace k3
