#include "commands/text_input.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "base/log.h"
#include "base/unique_fd.h"
#include "commands/token_ids.h"
#include "k3/error.h"

namespace k3::commands {
namespace {

constexpr uint64_t kAlwaysTaken = 1u << 20;
constexpr uint64_t kBytesOfAnId = 32;  // with its comma, and blanks

std::string name_of(const std::string& file) {
  return file == "-" ? "standard input" : file;
}

InputLimit limit_of(uint64_t positions, uint64_t bytes_each) {
  const InputLimit general;
  if (positions > general.bytes.value / bytes_each) return general;
  return {Bytes{std::max(kAlwaysTaken, positions * bytes_each)},
          fmt::format("more than the {} positions of the model can hold", positions)};
}

}  // namespace

InputLimit text_limit(const text::Tokenizer& tokenizer, uint64_t positions) {
  return limit_of(positions, tokenizer.longest_token());
}

InputLimit ids_limit(uint64_t positions) {
  return limit_of(positions, kBytesOfAnId);
}

std::string read_input(const std::string& file, const InputLimit& limit) {
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
      if (Bytes{text.size()} > limit.bytes) {
        throw Error(ErrorKind::kUsage,
                    fmt::format("{} has more than {}, {}; give a part of it", name_of(file),
                                format_bytes(limit.bytes), limit.reason));
      }
    } else if (errno != EINTR) {
      break;
    }
  }
  throw Error(ErrorKind::kUsage,
              fmt::format("reading {} failed: {}; name a file that can be read, or - for standard "
                          "input",
                          name_of(file),
                          errno == EBADF ? "it is not open for reading" : std::strerror(errno)));
}

std::vector<uint32_t> read_ids(const std::string& ids, uint64_t positions) {
  return parse_ids(ids == "-" ? read_input("-", ids_limit(positions)) : ids);
}

std::vector<uint32_t> encode_text(const text::Tokenizer& tokenizer, std::string_view text,
                                  bool special, uint64_t positions) {
  const uint64_t enough = std::max(kAlwaysTaken, positions);
  size_t replaced = 0;
  std::vector<uint32_t> ids = tokenizer.encode(
      text, special ? text::Specials::kRecognised : text::Specials::kAsText, &replaced, enough);
  if (ids.size() > enough) {
    throw Error(ErrorKind::kUsage,
                fmt::format("the text has more than {} tokens, the model takes {} positions at "
                            "most; give a part of it",
                            enough, positions));
  }
  if (replaced > 0) {
    log::warn(fmt::format("the text is not valid UTF-8: U+FFFD stands for {} ill-formed parts",
                          replaced));
  }
  return ids;
}

}  // namespace k3::commands
