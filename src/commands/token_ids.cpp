#include "commands/token_ids.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <limits>

#include "k3/error.h"

namespace k3::commands {
namespace {

constexpr size_t kShown = 40;  // of what is no id, which may be a whole file

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kBlanks = " \t\r\n";
  text.remove_prefix(std::min(text.find_first_not_of(kBlanks), text.size()));
  return text.substr(0, text.find_last_not_of(kBlanks) + 1);
}

uint32_t parse_id(std::string_view text) {
  uint32_t id = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, id);
  if (error != std::errc() || stop != end) {
    throw Error(ErrorKind::kUsage,
                fmt::format("reading token ids: found '{}{}', expected numbers from 0 to {} "
                            "separated by commas, such as 1008,10484,318",
                            text.substr(0, kShown), text.size() > kShown ? "..." : "",
                            std::numeric_limits<uint32_t>::max()));
  }
  return id;
}

}  // namespace

std::vector<uint32_t> parse_ids(std::string_view text) {
  std::vector<uint32_t> ids;
  if (trimmed(text).empty()) return ids;
  for (;;) {
    const size_t comma = text.find(',');
    ids.push_back(parse_id(trimmed(text.substr(0, comma))));
    if (comma == std::string_view::npos) return ids;
    text.remove_prefix(comma + 1);
  }
}

std::string format_ids(std::span<const uint32_t> ids) {
  return fmt::format("{}", fmt::join(ids, ","));
}

}  // namespace k3::commands
