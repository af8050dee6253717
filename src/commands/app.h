// The program around the commands: parsing and exit codes.
#pragma once

#include <string>

#include "k3/error.h"

namespace k3::commands {

/// Parses the command line, runs one command and returns the exit code of the process. Whatever
/// fails becomes one line on stderr.
int run_app(int argc, char** argv);

/// Ends the process at once with this line on stderr and the exit code of the kind: no destructor
/// waits for a read that hangs. What was printed is on stdout already.
[[noreturn]] void end_process(ErrorKind kind, const std::string& message);

}  // namespace k3::commands
