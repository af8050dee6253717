// Runs the k3 program as its users do: arguments, standard input, environment and limits in; exit
// code and what it printed out. The program never inherits the test's standard streams.
#pragma once

#include <sys/resource.h>
#include <sys/types.h>

#include <chrono>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "base/unique_fd.h"

namespace k3::test {

struct K3Command {
  std::vector<std::string> args;                // without the program's name
  std::string input = {};                       // standard input, a file of these bytes
  std::map<std::string, std::string> env = {};  // added to the test's own environment
  std::map<int, rlim_t> limits = {};            // soft and hard, such as {RLIMIT_NOFILE, 64}
  std::filesystem::path directory = {};         // working directory; empty: the test's own
  std::filesystem::path program = K3_BINARY;
  std::chrono::seconds patience{120};  // then the program is killed and timed_out set
  int in = -1;                         // standard input; -1: a file of `input`
  int out = -1;                        // standard output; -1: a pipe to K3Result::out
  bool ignores_interrupts = false;     // started as a script starts a background job
};

struct K3Result {
  int exit_code = -1;  // -1 when a signal ended it
  int signal = 0;
  bool timed_out = false;
  std::string out;
  std::string err;
};

/// A running program. Not yet waited for at destruction: killed.
class K3Process {
 public:
  explicit K3Process(const K3Command& command);
  ~K3Process();
  K3Process(const K3Process&) = delete;
  K3Process& operator=(const K3Process&) = delete;

  /// Reads until standard output has given `bytes` bytes in all, or ended; what it gave so far.
  const std::string& read_out(size_t bytes);
  /// The reader of a pipe goes away, as `head -c` does.
  void close_out();
  void send_signal(int signal);
  pid_t pid() const { return pid_; }

  /// Reads both streams to their end and waits; once only.
  K3Result wait();

 private:
  void pump(int timeout_ms);
  bool late() const { return std::chrono::steady_clock::now() >= deadline_; }

  pid_t pid_ = -1;
  UniqueFd out_;
  UniqueFd err_;
  std::chrono::steady_clock::time_point deadline_;
  K3Result result_;
};

/// Starts, waits.
K3Result run_k3(const K3Command& command);

}  // namespace k3::test
