// Token ids as people and scripts write them: 1008,10484,318
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace k3::commands {

/// Reads ids separated by commas, blanks allowed around them; none at all gives an empty list.
/// Error(kUsage) naming what is not an id.
std::vector<uint32_t> parse_ids(std::string_view text);

std::string format_ids(std::span<const uint32_t> ids);

}  // namespace k3::commands
