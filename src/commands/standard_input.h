// Standard input as one string.
#pragma once

#include <string>

namespace k3::commands {

/// Everything up to its end, byte for byte. Error(kRead) when reading fails.
std::string read_standard_input();

}  // namespace k3::commands
