// The standard streams: results on stdout, everything else on stderr; nothing there blocks an
// interrupted process.
#pragma once

#include <string_view>

namespace k3::commands {

/// Descriptors 0 to 2 that are closed would be given to the next file that is opened, the trunk
/// file perhaps, and results written into it. What takes their place can be neither read nor
/// written.
void occupy_closed_streams();

/// Writes a result to stdout, all of it, at once. When the reader has gone, or stdout was closed
/// from the start, this and all that follows is dropped: what the command has to say by its exit
/// code stays. So is what nobody reads after an interrupt; the process then ends as an interrupted
/// one and says so. Any other failure is Error(kInternal), and what follows is dropped.
void print(std::string_view text);
/// The reader of stdout has gone: a command that has only text to give may end, quietly.
bool reader_gone();
/// After an interrupt nobody read stdout: what was printed since is lost.
bool stdout_not_read();

/// Writes to stderr, the last resort: what cannot be written there is lost.
void say(std::string_view text);

/// What removes a moving line of progress from the terminal.
const char* clear_line();

}  // namespace k3::commands
