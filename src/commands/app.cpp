#include "commands/app.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <exception>
#include <new>
#include <string>

#include "base/one_line.h"
#include "commands/commands.h"
#include "k3/error.h"

namespace k3::commands {
namespace {

constexpr const char* kVersionLine = "k3 " K3_VERSION "\n";

using AddCommand = void (*)(CLI::App&);
constexpr AddCommand kCommands[] = {
    add_pack,  add_generate, add_plan,       add_doctor, add_verify,
    add_score, add_tokenize, add_detokenize, add_bench,  add_version,
};

// Set by the signal handler, read by the computing and the watching thread: a sig_atomic_t is for
// one thread only.
std::atomic<bool> interrupt_seen = false;
static_assert(std::atomic<bool>::is_always_lock_free);
bool stdout_reader_gone = false;

/// What end_on_interrupt() leaves for the signal handler; never destroyed, since an interrupt may
/// come while the process ends.
std::string& last_words = *new std::string;

/// Descriptors 0 to 2 that are closed would be given to the next file that is opened, the trunk
/// file perhaps, and results written into it. What takes their place here can be neither read nor
/// written.
void occupy_closed_streams() {
  for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; ++fd) {
    if (::fcntl(fd, F_GETFD) < 0) ::open("/", O_RDONLY | O_DIRECTORY);  // the lowest free: fd
  }
}

/// A stdout that does not block is shared with a program that asked for that.
void wait_until_writable() {
  pollfd stdout_ready{.fd = STDOUT_FILENO, .events = POLLOUT, .revents = 0};
  ::poll(&stdout_ready, 1, -1);
}

/// What removes a moving line of progress from the terminal.
const char* clear_line() {
  return ::isatty(STDERR_FILENO) != 0 ? "\r\x1b[K" : "";
}

int fail(std::string_view message, int code) {
  say("k3: " + one_line(message) + "\n");
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
      "4 reading failed during a run, 5 budget cannot be met, 130 interrupted.");
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

void note_interrupt(int) {
  interrupt_seen = true;
}

void end_now(int) {
  say(last_words);
  ::_exit(exit_code(ErrorKind::kInterrupted));
}

/// A process started with SIGINT ignored (a background job of a script) goes on ignoring it.
void on_interrupt(void (*handler)(int)) {
  struct sigaction action {};
  ::sigaction(SIGINT, nullptr, &action);
  if (action.sa_handler == SIG_IGN) return;
  action.sa_handler = handler;
  action.sa_flags = static_cast<int>(SA_RESETHAND);
  ::sigemptyset(&action.sa_mask);
  ::sigaction(SIGINT, &action, nullptr);
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
  try {
    CLI::App app("Runs Kimi K3 on a CPU from disk, exactly, inside a memory budget.");
    describe(app);
    return parse_and_run(app, argc, argv);
  } catch (const Error& error) {
    return fail(error.what(), exit_code(error.kind()));
  } catch (const std::bad_alloc&) {
    return fail(
        "memory ran out: the system refused an allocation; free memory, raise the limit of "
        "this process, or give a smaller --budget",
        exit_code(ErrorKind::kBudget));
  } catch (const std::exception& error) {
    return fail(fmt::format("internal fault: {}", error.what()), exit_code(ErrorKind::kInternal));
  }
}

void say(std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(STDERR_FILENO, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return;
    text.remove_prefix(static_cast<size_t>(written));
  }
}

void print(std::string_view text) {
  while (!text.empty() && !stdout_reader_gone) {
    const ssize_t written = ::write(STDOUT_FILENO, text.data(), text.size());
    if (written >= 0) {
      text.remove_prefix(static_cast<size_t>(written));
    } else if (errno == EPIPE || errno == EBADF) {
      stdout_reader_gone = true;
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      wait_until_writable();
    } else if (errno != EINTR) {
      throw Error(ErrorKind::kInternal,
                  fmt::format("writing the result to stdout failed: {}", std::strerror(errno)));
    }
  }
}

bool reader_gone() {
  return stdout_reader_gone;
}

void end_process(ErrorKind kind, const std::string& message) {
  say(clear_line());
  ::_exit(fail(message, exit_code(kind)));
}

void end_on_interrupt(const char* message) {
  on_interrupt(SIG_DFL);  // the handler must not see the text change
  last_words = fmt::format("{}k3: {}\n", clear_line(), message);
  on_interrupt(end_now);
}

void watch_interrupts() {
  on_interrupt(note_interrupt);
}

bool interrupted() {
  return interrupt_seen;
}

void throw_if_interrupted(std::string_view message) {
  if (interrupted()) throw Error(ErrorKind::kInterrupted, std::string(message));
}

}  // namespace k3::commands
