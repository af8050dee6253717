#include "commands/app.h"

#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <exception>
#include <new>
#include <string>

#include "base/one_line.h"
#include "commands/commands.h"
#include "commands/interrupts.h"
#include "commands/streams.h"
#include "k3/error.h"

namespace k3::commands {
namespace {

constexpr const char* kVersionLine = "k3 " K3_VERSION "\n";

using AddCommand = void (*)(CLI::App&);
constexpr AddCommand kCommands[] = {
    add_pack,  add_generate, add_plan,       add_doctor, add_verify,
    add_score, add_tokenize, add_detokenize, add_bench,  add_version,
};

constexpr const char* kNotReadNote = "; stdout was not read, the end of the result is lost";

/// The kernels keep tiles on the stack, and where that ends there is only a signal. The computing
/// threads have as much.
constexpr rlim_t kLeastStack = 512 * 1024;

bool stack_is_too_small() {
  rlimit limit{};
  return ::getrlimit(RLIMIT_STACK, &limit) == 0 && limit.rlim_cur < kLeastStack;
}

/// What nobody would read to its end, as with an argument of a whole file in it, loses its middle:
/// the end says what to do. The names of all shards of a model are shorter.
std::string shortened(std::string_view message) {
  constexpr size_t kBeginning = 16'000, kEnd = 500;
  if (message.size() <= kBeginning + kEnd) return std::string(message);
  return fmt::format("{} ... {}", message.substr(0, kBeginning),
                     message.substr(message.size() - kEnd));
}

int fail(std::string_view message, int code) {
  say("k3: " + one_line(shortened(message)) + "\n");
  return code;
}

/// The command that was being parsed: the top level when none was named.
const CLI::App& parsed_command(const CLI::App& app) {
  const auto commands = app.get_subcommands();
  return commands.empty() ? app : *commands.front();
}

std::string command_name(const CLI::App& app) {
  const CLI::App& command = parsed_command(app);
  return &command == &app ? "k3" : "k3 " + command.get_name();
}

int usage_error(const CLI::App& app, const CLI::ParseError& error) {
  std::string message = error.what();
  while (!message.empty() && (message.back() == '.' || message.back() == '\n')) message.pop_back();
  return fail(fmt::format("{}; see `{} --help`", message, command_name(app)),
              exit_code(ErrorKind::kUsage));
}

void describe(CLI::App& app) {
  app.name("k3");
  app.get_formatter()->column_width(34);
  app.set_help_flag("-h,--help", "This help");
  app.add_flag_callback(
      "--version", [] { throw CLI::CallForVersion(kVersionLine, 0); }, "Version of this program");
  app.require_subcommand(0, 1);
  app.footer(
      "Typical use:\n"
      "  k3 doctor MODEL                           is this machine fit, and what to do next\n"
      "  k3 pack MODEL                             once: write MODEL/trunk.k3\n"
      "  k3 generate MODEL --budget 8G -p \"Once\"   continue a text\n"
      "\n"
      "Each command explains itself: k3 COMMAND --help. Sizes: 8G = 8 x 10^9, 8GiB = 8 x 2^30.\n"
      "Exit codes: 0 done, 1 internal fault, 2 usage, 3 checkpoint or trunk file not usable,\n"
      "4 reading failed, 5 budget cannot be met, 130 interrupted (128 and the signal\n"
      "where that was SIGTERM or SIGHUP).");
  for (const AddCommand add : kCommands) add(app);
}

/// Parses and runs: the callbacks of the commands are called at the end of parsing.
int parse_and_run(CLI::App& app, int argc, char** argv) {
  try {
    if (argc <= 1) {
      print(app.help());
      return 0;
    }
    app.parse(argc, argv);
    if (app.get_subcommands().empty()) throw CLI::RequiredError("A command");
  } catch (const CLI::CallForHelp&) {
    print(app.help());  // of the command, if one was named
  } catch (const CLI::CallForVersion&) {
    print(kVersionLine);
  } catch (const CLI::ParseError& error) {
    return usage_error(app, error);
  }
  return 0;
}

/// Where no exception can be thrown any more: the C++ library ends the process when it cannot even
/// allocate one.
[[noreturn]] void on_terminate() {
  say("k3: internal fault: the process cannot go on, most likely because memory ran out\n");
  ::_exit(exit_code(ErrorKind::kInternal));
}

}  // namespace

int run_app(int argc, char** argv) {
  // A closed pipe is then an error of write(), handled in print(); a file that may not grow, one of
  // pwrite().
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);
  std::set_terminate(on_terminate);
  occupy_closed_streams();
  end_on_interrupt("interrupted");
  if (stack_is_too_small()) {
    return fail("the limit of the stack is below 512 kB; raise it: ulimit -s 8192",
                exit_code(ErrorKind::kBudget));
  }
  try {
    CLI::App app("Runs Kimi K3 on a CPU from disk, exactly, inside a memory budget.");
    describe(app);
    const int code = parse_and_run(app, argc, argv);
    if (!stdout_not_read()) return code;
    return fail(std::string("interrupted") + kNotReadNote, code_of(ErrorKind::kInterrupted));
  } catch (const Error& error) {
    return fail(error.what(), code_of(error.kind()));
  } catch (const std::bad_alloc&) {
    return fail(
        "memory ran out: the system refused an allocation; free memory, raise the limit of "
        "this process, or give a smaller --budget",
        exit_code(ErrorKind::kBudget));
  } catch (const std::exception& error) {
    return fail(fmt::format("internal fault: {}", error.what()), exit_code(ErrorKind::kInternal));
  }
}

void end_process(ErrorKind kind, const std::string& message) {
  say(clear_line());
  ::_exit(fail(message + (stdout_not_read() ? kNotReadNote : ""), code_of(kind)));
}

}  // namespace k3::commands
