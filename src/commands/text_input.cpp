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

namespace k3::commands {

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
    } else if (errno != EINTR) {
      break;
    }
  }
  throw Error(ErrorKind::kUsage,
              fmt::format("reading {} failed: {}", file == "-" ? "standard input" : file,
                          std::strerror(errno)));
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
