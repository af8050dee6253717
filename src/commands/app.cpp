#include "commands/app.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstring>
#include <ctime>
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

// A terminal that closes, timeout(1) and a service that is stopped mean the same as Ctrl-C.
constexpr int kInterrupts[] = {SIGINT, SIGTERM, SIGHUP};
// What comes twice within this time was meant once: timeout(1) signals its child and then the group
// that the child is in.
constexpr int64_t kSameInterruptMs = 200;
// An interrupted process gives whoever reads its streams this many times so long to go on.
constexpr int kWaitMs = 100, kWaitsWhenInterrupted = 5;

// Written by the signal handler, read by the computing and the watching thread: a sig_atomic_t is
// for one thread only.
std::atomic<int> interrupt_signal = 0;    // the first one
std::atomic<int64_t> interrupted_at = 0;  // by now_ms()
static_assert(std::atomic<int>::is_always_lock_free && std::atomic<int64_t>::is_always_lock_free);

enum class Stdout { kOpen, kReaderGone, kNotRead, kFailed };
Stdout stdout_state = Stdout::kOpen;
constexpr const char* kNotReadNote = "; stdout was not read, the end of the result is lost";

/// What the signal handler says before it ends the process; never destroyed, since an interrupt may
/// come while the process ends.
std::string& last_words = *new std::string;

/// Descriptors 0 to 2 that are closed would be given to the next file that is opened, the trunk
/// file perhaps, and results written into it. What takes their place here can be neither read nor
/// written.
void occupy_closed_streams() {
  for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; ++fd) {
    if (::fcntl(fd, F_GETFD) < 0) ::open("/", O_PATH);  // the lowest free: fd
  }
}

/// The kernels keep tiles on the stack, and where that ends there is only a signal. The computing
/// threads have as much.
constexpr rlim_t kLeastStack = 512 * 1024;

bool stack_is_too_small() {
  rlimit limit{};
  return ::getrlimit(RLIMIT_STACK, &limit) == 0 && limit.rlim_cur < kLeastStack;
}

/// What occupy_closed_streams() left there, and not a file opened for reading alone.
bool stdout_was_closed() {
  return (::fcntl(STDOUT_FILENO, F_GETFL) & O_PATH) != 0;
}

/// False when the process was interrupted and nobody reads from `fd`.
bool wait_until_writable(int fd) {
  pollfd ready{.fd = fd, .events = POLLOUT, .revents = 0};
  for (int waits = 0; waits < kWaitsWhenInterrupted;) {
    if (::poll(&ready, 1, kWaitMs) > 0) return true;
    if (interrupted()) ++waits;
  }
  return false;
}

/// Writes all of it, in pieces for which a pipe that is writable has room: no write blocks. 0, or
/// the error: ETIMEDOUT as wait_until_writable().
int write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    if (!wait_until_writable(fd)) return ETIMEDOUT;
    const ssize_t written = ::write(fd, text.data(), std::min<size_t>(text.size(), PIPE_BUF));
    if (written >= 0) {
      text.remove_prefix(static_cast<size_t>(written));
    } else if (errno != EINTR && errno != EAGAIN && errno != EWOULDBLOCK) {
      return errno;
    }
  }
  return 0;
}

/// The exit code of the process: an interrupt's is 128 and its signal, as a shell has it.
int code_of(ErrorKind kind) {
  const int signal = interrupt_signal;
  return kind == ErrorKind::kInterrupted && signal != 0 ? 128 + signal : exit_code(kind);
}

/// What removes a moving line of progress from the terminal.
const char* clear_line() {
  return ::isatty(STDERR_FILENO) != 0 ? "\r\x1b[K" : "";
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
      "4 reading failed during a run, 5 budget cannot be met, 130 interrupted (128 and the signal\n"
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

int64_t now_ms() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);  // may be called in a signal handler
  return int64_t{now.tv_sec} * 1000 + now.tv_nsec / 1'000'000;
}

/// True for the first one.
bool note_interrupt(int signal) {
  int none = 0;
  if (!interrupt_signal.compare_exchange_strong(none, signal)) return false;
  interrupted_at = now_ms();
  return true;
}

void end_now(int signal) {
  note_interrupt(signal);
  say(last_words);
  ::_exit(128 + signal);
}

void end_at_the_second(int signal) {
  if (!note_interrupt(signal) && now_ms() - interrupted_at >= kSameInterruptMs) end_now(signal);
}

/// What was ignored when the process started, as in a background job of a script or under nohup,
/// stays so.
void on_interrupt(void (*handler)(int)) {
  struct sigaction action {};
  ::sigemptyset(&action.sa_mask);
  for (const int signal : kInterrupts) ::sigaddset(&action.sa_mask, signal);
  action.sa_handler = handler;
  for (const int signal : kInterrupts) {
    struct sigaction present {};
    ::sigaction(signal, nullptr, &present);
    if (present.sa_handler != SIG_IGN) ::sigaction(signal, &action, nullptr);
  }
}

void set_last_words(const char* message) {
  on_interrupt(SIG_DFL);  // the handler must not see the text change
  last_words = fmt::format("{}k3: {}\n", clear_line(), message);
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
    if (stdout_state != Stdout::kNotRead) return code;
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

void say(std::string_view text) {
  write_all(STDERR_FILENO, text);
}

void print(std::string_view text) {
  if (stdout_state != Stdout::kOpen) return;
  const int error = write_all(STDOUT_FILENO, text);
  if (error == EPIPE || (error == EBADF && stdout_was_closed())) {
    stdout_state = Stdout::kReaderGone;
  } else if (error == ETIMEDOUT) {
    stdout_state = Stdout::kNotRead;
  } else if (error != 0) {
    stdout_state = Stdout::kFailed;
    throw Error(ErrorKind::kInternal,
                fmt::format("writing the result to stdout failed: {}", std::strerror(error)));
  }
}

bool reader_gone() {
  return stdout_state == Stdout::kReaderGone;
}

void end_process(ErrorKind kind, const std::string& message) {
  say(clear_line());
  ::_exit(fail(message + (stdout_state == Stdout::kNotRead ? kNotReadNote : ""), code_of(kind)));
}

void end_on_interrupt(const char* message) {
  set_last_words(message);
  on_interrupt(end_now);
}

void watch_interrupts() {
  set_last_words("interrupted again: ended at once, nothing was saved");
  on_interrupt(end_at_the_second);
}

bool interrupted() {
  return interrupt_signal != 0;
}

}  // namespace k3::commands
