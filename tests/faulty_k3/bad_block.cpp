// A drive that cannot read one place, or does not read once:
//   K3_TEST_BAD_BLOCK=OFFSET:PATH   each pread(2) that touches this byte of the file fails with EIO
//   K3_TEST_FAIL_PREAD=N:PATH       the Nth pread(2) of the process does; then an empty file PATH
//                                   says that there was one
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <string>

namespace {

struct Variable {
  off_t number = 0;
  std::string path;
};

Variable read_variable(const char* name) {
  const char* const variable = std::getenv(name);
  const std::string text = variable == nullptr ? "" : variable;
  const size_t colon = text.find(':');
  if (colon == text.npos) return {};
  return {std::stoll(text.substr(0, colon)), text.substr(colon + 1)};
}

bool is_open_as(int fd, const std::string& path) {
  std::error_code ignored;
  return std::filesystem::read_symlink("/proc/self/fd/" + std::to_string(fd), ignored) == path;
}

bool touches_bad_block(int fd, size_t count, off_t offset) {
  static const Variable bad = read_variable("K3_TEST_BAD_BLOCK");
  const bool touched = offset <= bad.number && bad.number - offset < static_cast<off_t>(count);
  return !bad.path.empty() && touched && is_open_as(fd, bad.path);
}

bool is_the_one_to_fail() {
  static const Variable nth = read_variable("K3_TEST_FAIL_PREAD");
  static std::atomic<off_t> count{0};
  if (nth.path.empty() || ++count != nth.number) return false;
  ::close(::open(nth.path.c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
  return true;
}

}  // namespace

/// In the place of the C library's.
extern "C" ssize_t pread(int fd, void* buffer, size_t count, off_t offset) {
  if (touches_bad_block(fd, count, offset) || is_the_one_to_fail()) {
    errno = EIO;
    return -1;
  }
  return ::syscall(SYS_pread64, fd, buffer, count, offset);
}
