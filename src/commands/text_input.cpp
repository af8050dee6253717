#include "commands/text_input.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "base/log.h"
#include "base/unique_fd.h"
#include "commands/token_ids.h"
#include "k3/error.h"
#include "k3/units.h"

namespace k3::commands {
namespace {

// Far more than the positions of any model hold, and a bound for what never ends, as /dev/zero.
constexpr Bytes kInputMax{256u << 20};

std::string name_of(const std::string& file) {
  return file == "-" ? "standard input" : file;
}

}  // namespace

std::string read_input(const std::string& file) {
  UniqueFd opened;
  if (file != "-") opened.reset(::open(file.c_str(), O_RDONLY | O_CLOEXEC));
  const int fd = file == "-" ? STDIN_FILENO : opened.get();
  std::string text;
  std::array<char, 65536> block;
  while (fd >= 0) {
    const ssize_t count = ::read(fd, block.data(), block.size());
    if (count == 0) return text;
    if (count > 0) {
      text.append(block.data(), static_cast<size_t>(count));
      if (Bytes{text.size()} > kInputMax) {
        throw Error(ErrorKind::kUsage,
                    fmt::format("{} has more than {}, the most that is taken; give a part of it",
                                name_of(file), format_bytes(kInputMax)));
      }
    } else if (errno != EINTR) {
      break;
    }
  }
  throw Error(ErrorKind::kUsage,
              fmt::format("reading {} failed: {}", name_of(file), std::strerror(errno)));
}

std::vector<uint32_t> read_ids(const std::string& ids) {
  return parse_ids(ids == "-" ? read_input("-") : ids);
}

std::vector<uint32_t> encode_text(const text::Tokenizer& tokenizer, std::string_view text,
                                  bool special) {
  size_t replaced = 0;
  std::vector<uint32_t> ids = tokenizer.encode(
      text, special ? text::Specials::kRecognised : text::Specials::kAsText, &replaced);
  if (replaced > 0) {
    log::warn(fmt::format("the text is not valid UTF-8: U+FFFD stands for {} ill-formed parts",
                          replaced));
  }
  return ids;
}

}  // namespace k3::commands
