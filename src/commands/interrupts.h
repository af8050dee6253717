// Interrupts: SIGINT, SIGTERM and SIGHUP.
#pragma once

#include "k3/error.h"

namespace k3::commands {

/// From now on one ends the process at once, with exit code 128 + signal and this line on stderr:
/// for what leaves nothing half done at any moment, also while a read hangs. run_app() begins with
/// "interrupted".
void end_on_interrupt(const char* message);
/// From now on the first only makes interrupted() true; a second one ends the process.
void watch_interrupts();
bool interrupted();
/// The exit code of the process: an interrupt's is 128 and its signal, as a shell has it.
int code_of(ErrorKind kind);

}  // namespace k3::commands
