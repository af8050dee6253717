// The program around the commands: parsing, exit codes, results on stdout, interruption.
#pragma once

#include <string>
#include <string_view>

#include "k3/error.h"

namespace k3::commands {

/// Parses the command line, runs one command and returns the exit code of the process. Whatever
/// fails becomes one line on stderr.
int run_app(int argc, char** argv);

/// Writes a result to stdout, all of it, at once. When the reader has gone, or stdout was closed
/// from the start, this and all that follows is dropped: what the command has to say by its exit
/// code stays. So is what nobody reads after an interrupt; the process then ends as an interrupted
/// one and says so. Any other failure is Error(kInternal), and what follows is dropped.
void print(std::string_view text);
/// The reader of stdout has gone: a command that has only text to give may end, quietly.
bool reader_gone();

/// Writes to stderr, the last resort: what cannot be written there is lost.
void say(std::string_view text);

/// Ends the process at once with this line on stderr and the exit code of the kind: no destructor
/// waits for a read that hangs. What was printed is on stdout already.
[[noreturn]] void end_process(ErrorKind kind, const std::string& message);

/// Interrupts are SIGINT, SIGTERM and SIGHUP.
///
/// From now on one ends the process at once, with exit code 128 + signal and this line on stderr:
/// for what leaves nothing half done at any moment, also while a read hangs. run_app() begins with
/// "interrupted".
void end_on_interrupt(const char* message);
/// From now on the first only makes interrupted() true; a second one ends the process.
void watch_interrupts();
bool interrupted();

}  // namespace k3::commands
