// Messages that have no other way up, and the command line's level (-q, -v). The only file that
// uses spdlog; everything goes to stderr.
#pragma once

#include <string_view>

namespace k3::log {

enum class Level { kError, kWarn, kInfo, kDebug };

void set_level(Level level);
Level level();

void error(std::string_view message);
void warn(std::string_view message);
void info(std::string_view message);
void debug(std::string_view message);

}  // namespace k3::log
