// Text of others inside our own: names from files, arguments, paths.
#pragma once

#include <string>
#include <string_view>

namespace k3 {

/// `text` as one line that is valid UTF-8 and does nothing to a terminal: control characters, line
/// and paragraph separators, marks that turn the direction of writing, and bytes that are not
/// UTF-8 are written as \x1b, byte by byte. All else stays as it is.
std::string one_line(std::string_view text);

}  // namespace k3
