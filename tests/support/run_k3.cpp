#include "support/run_k3.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <system_error>
#include <thread>

extern char** environ;

namespace k3::test {
namespace {

int checked(int result, const char* what) {
  if (result < 0) throw std::system_error(errno, std::generic_category(), what);
  return result;
}

/// A file in memory that holds the program's standard input.
UniqueFd input_file(const std::string& bytes) {
  UniqueFd fd(checked(::memfd_create("k3-test-input", MFD_CLOEXEC), "memfd_create"));
  for (size_t done = 0; done < bytes.size();) {
    const auto written = ::write(fd.get(), bytes.data() + done, bytes.size() - done);
    if (written < 0) throw std::system_error(errno, std::generic_category(), "write");
    done += static_cast<size_t>(written);
  }
  ::lseek(fd.get(), 0, SEEK_SET);
  return fd;
}

struct Pipe {
  UniqueFd read;
  UniqueFd write;
};

Pipe make_pipe() {
  std::array<int, 2> ends{};
  checked(::pipe2(ends.data(), O_CLOEXEC), "pipe2");
  return {UniqueFd(ends[0]), UniqueFd(ends[1])};
}

std::vector<std::string> environment(const std::map<std::string, std::string>& additions) {
  std::vector<std::string> all;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    if (!additions.contains(text.substr(0, text.find('=')))) all.push_back(text);
  }
  for (const auto& [name, value] : additions) all.push_back(name + "=" + value);
  return all;
}

std::vector<char*> pointers(std::vector<std::string>& strings) {
  std::vector<char*> out;
  for (std::string& s : strings) out.push_back(s.data());
  out.push_back(nullptr);
  return out;
}

/// Between fork and exec: nothing here allocates, another thread may hold the heap's lock.
struct Child {
  char* const* argv;
  char* const* envp;
  const char* directory;
  const std::map<int, rlim_t>& limits;
  std::array<int, 3> streams;
  bool ignores_interrupts;

  [[noreturn]] void run() const {
    for (int i = 0; i < 3; ++i) {
      if (::dup2(streams[static_cast<size_t>(i)], i) < 0) ::_exit(127);
    }
    for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
      ::signal(signal, ignores_interrupts ? SIG_IGN : SIG_DFL);
    }
    if (*directory != '\0' && ::chdir(directory) != 0) ::_exit(127);
    for (const auto& [resource, value] : limits) {
      const rlimit limit{value, value};
      if (::setrlimit(static_cast<__rlimit_resource>(resource), &limit) != 0) ::_exit(127);
    }
    ::execve(argv[0], argv, envp);
    ::_exit(127);
  }
};

/// Appends what can be read now; closes the descriptor at the end of the stream.
void drain(UniqueFd& fd, std::string& to) {
  std::array<char, 65536> buffer;
  const auto n = ::read(fd.get(), buffer.data(), buffer.size());
  if (n > 0) to.append(buffer.data(), static_cast<size_t>(n));
  if (n == 0 || (n < 0 && errno != EINTR)) fd.reset();
}

}  // namespace

K3Process::K3Process(const K3Command& command)
    : deadline_(std::chrono::steady_clock::now() + command.patience) {
  std::vector<std::string> args = {command.program.string()};
  args.insert(args.end(), command.args.begin(), command.args.end());
  std::vector<std::string> env = environment(command.env);
  const std::vector<char*> argv = pointers(args);
  const std::vector<char*> envp = pointers(env);
  const UniqueFd input = input_file(command.input);
  Pipe out = make_pipe();
  Pipe err = make_pipe();
  const Child child{argv.data(),
                    envp.data(),
                    command.directory.c_str(),
                    command.limits,
                    {command.in < 0 ? input.get() : command.in,
                     command.out < 0 ? out.write.get() : command.out, err.write.get()},
                    command.ignores_interrupts};
  pid_ = checked(::fork(), "fork");
  if (pid_ == 0) child.run();
  out_ = std::move(out.read);
  err_ = std::move(err.read);
}

K3Process::~K3Process() {
  if (pid_ < 0) return;
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
}

void K3Process::pump(int timeout_ms) {
  std::array<pollfd, 2> fds{pollfd{out_.get(), POLLIN, 0}, pollfd{err_.get(), POLLIN, 0}};
  if (::poll(fds.data(), fds.size(), timeout_ms) <= 0) return;
  if (fds[0].revents != 0) drain(out_, result_.out);
  if (fds[1].revents != 0) drain(err_, result_.err);
}

const std::string& K3Process::read_out(size_t bytes) {
  while (out_.valid() && result_.out.size() < bytes && !late()) pump(100);
  return result_.out;
}

void K3Process::close_out() {
  out_.reset();
}

void K3Process::send_signal(int signal) {
  checked(::kill(pid_, signal), "kill");
}

K3Result K3Process::wait() {
  int status = 0;
  bool ended = false;
  while (!ended) {
    if (late() && !result_.timed_out) {
      result_.timed_out = true;
      ::kill(pid_, SIGKILL);
    }
    if (out_.valid() || err_.valid()) pump(100);
    if (out_.valid() || err_.valid()) continue;
    ended = checked(::waitpid(pid_, &status, WNOHANG), "waitpid") == pid_;
    if (!ended) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  pid_ = -1;
  result_.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  result_.signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
  return std::move(result_);
}

K3Result run_k3(const K3Command& command) {
  return K3Process(command).wait();
}

}  // namespace k3::test
