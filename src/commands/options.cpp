#include "commands/options.h"

#include <fmt/format.h>

#include <charconv>
#include <limits>

#include "base/log.h"
#include "k3/error.h"

namespace k3::commands {
namespace {

/// Whether `text` is a count in these bounds; then it is put in its plain form.
bool take_count(std::string& text, uint64_t least, uint64_t most) {
  uint64_t count = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, count);
  if (error != std::errc() || rest != end || count < least || count > most) return false;
  text = fmt::format("{}", count);
  return true;
}

}  // namespace

void add_verbosity(CLI::App& command, Output& output) {
  CLI::Option* quiet =
      command.add_flag("-q,--quiet", output.quiet, "Errors only on stderr")->group("Output");
  command.add_flag("-v,--verbose", output.verbose, "More detail on stderr")
      ->group("Output")
      ->excludes(quiet);
}

void add_json(CLI::App& command, Output& output) {
  command.add_flag("--json", output.json, "One JSON object on stdout in place of text")
      ->group("Output");
}

void apply_verbosity(const Output& output) {
  if (output.quiet) log::set_level(log::Level::kError);
  if (output.verbose) log::set_level(log::Level::kDebug);
}

void add_model(CLI::App& command, std::filesystem::path& model) {
  command.add_option("MODEL", model, "Checkpoint directory: config.json and the shards")
      ->required()
      ->check(a_name())
      ->type_name("DIR");
}

CLI::Validator count_from(uint64_t least) {
  const auto check = [least](std::string& text) {
    return take_count(text, least, std::numeric_limits<uint64_t>::max())
               ? std::string()
               : fmt::format("`{}`: expected a whole number from {} on", text, least);
  };
  return {check, fmt::format("from {}", least)};
}

CLI::Validator count_between(uint64_t least, uint64_t most) {
  const auto check = [=](std::string& text) {
    return take_count(text, least, most)
               ? std::string()
               : fmt::format("`{}`: expected a whole number from {} to {}", text, least, most);
  };
  return {check, fmt::format("{} to {}", least, most)};
}

CLI::Validator number_between(double least, double most) {
  const auto check = [=](const std::string& text) -> std::string {
    double number = 0;
    const char* const end = text.data() + text.size();
    const auto [rest, error] = std::from_chars(text.data(), end, number);
    if (error == std::errc() && rest == end && number >= least && number <= most) return "";
    return fmt::format("`{}`: expected a number from {} to {}", text, least, most);
  };
  return {check, fmt::format("in [{} - {}]", least, most)};
}

CLI::Validator a_name() {
  const auto check = [](const std::string& text) -> std::string {
    return text.empty() ? "an empty name; expected the name of a file" : "";
  };
  return {check, ""};
}

CLI::Option* add_size(CLI::App& command, const std::string& name, std::optional<Bytes>& size,
                      const std::string& help) {
  auto parse = [&size, name](const std::string& text) {
    try {
      size = parse_bytes(text);
    } catch (const Error& error) {
      throw CLI::ValidationError(name, error.what());
    }
  };
  return command.add_option_function<std::string>(name, parse, help)->type_name("SIZE");
}

}  // namespace k3::commands
