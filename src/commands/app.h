// The program around the commands: parsing, exit codes, results on stdout, interruption.
#pragma once

#include <string_view>

namespace k3::commands {

/// Parses the command line, runs one command and returns the exit code of the process. Whatever
/// fails becomes one line on stderr.
int run_app(int argc, char** argv);

/// Writes a result to stdout, all of it, at once. A reader that has gone ends the process quietly
/// (exit 0); any other failure is Error(kInternal).
void print(std::string_view text);

/// From now on the first SIGINT only makes interrupted() true; a second one ends the process.
void watch_interrupts();
bool interrupted();
/// Error(kInterrupted) with this message, if so.
void throw_if_interrupted(std::string_view message);

}  // namespace k3::commands
