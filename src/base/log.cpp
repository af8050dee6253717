#include "base/log.h"

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include "base/one_line.h"

namespace k3::log {
namespace {

spdlog::level::level_enum to_spdlog(Level level) {
  switch (level) {
    case Level::kError:
      return spdlog::level::err;
    case Level::kWarn:
      return spdlog::level::warn;
    case Level::kInfo:
      return spdlog::level::info;
    case Level::kDebug:
      return spdlog::level::debug;
  }
  return spdlog::level::info;
}

Level from_spdlog(spdlog::level::level_enum level) {
  switch (level) {
    case spdlog::level::err:
      return Level::kError;
    case spdlog::level::warn:
      return Level::kWarn;
    case spdlog::level::debug:
      return Level::kDebug;
    default:
      return Level::kInfo;
  }
}

// Never destroyed: a thread may still have something to say while the process ends.
spdlog::logger& logger() {
  static spdlog::logger* const instance = [] {
    auto* made = new spdlog::logger("k3", std::make_shared<spdlog::sinks::stderr_color_sink_mt>());
    made->set_pattern("%^%l%$: %v");  // coloured on a terminal alone
    return made;
  }();
  return *instance;
}

void write(Level level, std::string_view message) {
  if (from_spdlog(logger().level()) < level) return;
  logger().log(to_spdlog(level), spdlog::string_view_t(one_line(message)));
}

}  // namespace

void set_level(Level level) {
  logger().set_level(to_spdlog(level));
}
Level level() {
  return from_spdlog(logger().level());
}

void error(std::string_view message) {
  write(Level::kError, message);
}
void warn(std::string_view message) {
  write(Level::kWarn, message);
}
void info(std::string_view message) {
  write(Level::kInfo, message);
}
void debug(std::string_view message) {
  write(Level::kDebug, message);
}

}  // namespace k3::log
