#include "commands/standard_input.h"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "k3/error.h"

namespace k3::commands {

std::string read_standard_input() {
  std::string text;
  std::array<char, 65536> block;
  for (;;) {
    const ssize_t count = ::read(STDIN_FILENO, block.data(), block.size());
    if (count == 0) return text;
    if (count > 0) {
      text.append(block.data(), static_cast<size_t>(count));
    } else if (errno != EINTR) {
      throw Error(ErrorKind::kRead,
                  fmt::format("reading standard input failed: {}", std::strerror(errno)));
    }
  }
}

}  // namespace k3::commands
