// A drive that cannot read one place: K3_TEST_BAD_BLOCK=OFFSET:PATH makes each pread(2) that
// touches the byte at OFFSET of the file PATH fail with EIO.
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <string>

namespace {

struct BadBlock {
  std::string path;
  off_t offset = 0;
};

BadBlock read_variable() {
  const char* const variable = std::getenv("K3_TEST_BAD_BLOCK");
  const std::string text = variable == nullptr ? "" : variable;
  const size_t colon = text.find(':');
  if (colon == text.npos) return {};
  return {text.substr(colon + 1), std::stoll(text.substr(0, colon))};
}

bool is_open_as(int fd, const std::string& path) {
  std::error_code ignored;
  return std::filesystem::read_symlink("/proc/self/fd/" + std::to_string(fd), ignored) == path;
}

}  // namespace

/// In the place of the C library's.
extern "C" ssize_t pread(int fd, void* buffer, size_t count, off_t offset) {
  static const BadBlock bad = read_variable();
  const bool touched = offset <= bad.offset && bad.offset - offset < static_cast<off_t>(count);
  if (!bad.path.empty() && touched && is_open_as(fd, bad.path)) {
    errno = EIO;
    return -1;
  }
  return ::syscall(SYS_pread64, fd, buffer, count, offset);
}
