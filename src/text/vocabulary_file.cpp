#include "text/vocabulary_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <vector>

#include "base/json.h"
#include "k3/error.h"
#include "text/base64.h"

namespace k3::text {
namespace {

[[noreturn]] void fail(const std::string& where, std::string_view found,
                       std::string_view expected) {
  throw Error(ErrorKind::kCheckpoint,
              fmt::format("{}: found {}, expected {}; download it again", where, found, expected));
}

/// A line of a file; spelled out only for a message.
struct Line {
  std::string_view text;
  const std::string& file;
  size_t number = 0;

  [[noreturn]] void fail(std::string_view found, std::string_view expected) const {
    text::fail(fmt::format("{}: line {}", file, number), found, expected);
  }
};

/// Bytes of a file as part of a one-line message.
std::string printable(std::string_view bytes) {
  constexpr size_t kShown = 40;
  std::string out = "'";
  for (const char c : bytes.substr(0, kShown)) {
    if (c >= ' ' && c <= '~') {
      out.push_back(c);
    } else {
      out += fmt::format("\\x{:02x}", static_cast<uint8_t>(c));
    }
  }
  return out + (bytes.size() > kShown ? "'..." : "'");
}

std::optional<uint32_t> parse_id(std::string_view digits) {
  uint32_t id = 0;
  const char* const end = digits.data() + digits.size();
  const auto [stop, error] = std::from_chars(digits.data(), end, id);
  if (error != std::errc() || stop != end) return std::nullopt;
  return id;
}

uint32_t count_lines(std::string_view file) {
  const auto line_ends = static_cast<uint32_t>(std::ranges::count(file, '\n'));
  return file.empty() || file.ends_with('\n') ? line_ends : line_ends + 1;
}

/// Reads one line into the vocabulary; `bytes` is scratch.
void parse_line(const Line& line, Vocabulary& vocabulary, std::string& bytes) {
  const size_t space = line.text.find(' ');
  if (space == std::string_view::npos) line.fail(printable(line.text), "BASE64 RANK");
  const std::string_view base64 = line.text.substr(0, space);
  if (!decode_base64(base64, bytes)) line.fail(printable(base64), "a token in standard base64");
  if (bytes.empty()) line.fail("an empty token", "at least one byte");
  const std::string_view digits = line.text.substr(space + 1);
  const std::optional<uint32_t> rank = parse_id(digits);
  if (!rank || *rank >= vocabulary.size()) {
    line.fail("rank " + printable(digits),
              fmt::format("0 to {}, as many ranks as lines", vocabulary.size() - 1));
  }
  if (vocabulary.is_set(*rank)) line.fail(fmt::format("rank {} again", *rank), "each rank once");
  if (const auto other = vocabulary.set(*rank, bytes)) {
    line.fail(fmt::format("the token of rank {} again, as rank {}", *other, *rank),
              "each token once");
  }
}

void check_single_bytes(const Vocabulary& vocabulary, const std::string& what) {
  for (int byte = 0; byte < 256; ++byte) {
    const char token = static_cast<char>(byte);
    if (vocabulary.rank_of({&token, 1}) == Vocabulary::kNone) {
      fail(what, fmt::format("no token for the byte 0x{:02x} in {} lines", byte, vocabulary.size()),
           "all 256 single bytes");
    }
  }
}

/// The literal of one entry of added_tokens_decoder, and its place in the block.
struct NamedSpecial {
  uint32_t index = 0;
  std::string literal;
};

NamedSpecial parse_named_special(const std::string& key, const Json& entry, const std::string& what,
                                 uint32_t first_id) {
  const std::string where = fmt::format("{}: added_tokens_decoder {}", what, printable(key));
  const std::optional<uint32_t> id = parse_id(key);
  if (!id || *id < first_id || *id - first_id >= kSpecialTokens) {
    fail(where, "that id",
         fmt::format("{} to {}, the ids after the {} ranks of tiktoken.model", first_id,
                     first_id + kSpecialTokens - 1, first_id));
  }
  const auto content = entry.is_object() ? entry.find("content") : entry.end();
  if (!entry.is_object() || content == entry.end() || !content->is_string() ||
      content->get_ref<const std::string&>().empty()) {
    fail(where, printable(entry.dump()), "an object with a literal as \"content\"");
  }
  return {*id - first_id, content->get<std::string>()};
}

}  // namespace

Vocabulary parse_vocabulary(std::string_view file, const std::string& what) {
  Vocabulary vocabulary(count_lines(file), file.size() / 4 * 3);
  std::string bytes;
  size_t line_number = 0;
  for (std::string_view rest = file; !rest.empty();) {
    const Line line{rest.substr(0, rest.find('\n')), what, ++line_number};
    rest.remove_prefix(std::min(line.text.size() + 1, rest.size()));
    parse_line(line, vocabulary, bytes);
  }
  check_single_bytes(vocabulary, what);
  return vocabulary;
}

SpecialTokens parse_special_tokens(std::string_view json, const std::string& what,
                                   uint32_t first_id) {
  const Json config = parse_json(json, what);
  const auto added = config.is_object() ? config.find("added_tokens_decoder") : config.end();
  if (!config.is_object() || added == config.end() || !added->is_object()) {
    fail(what, "no object \"added_tokens_decoder\"", "the special tokens by id");
  }
  std::vector<std::string> literals(kSpecialTokens);
  for (uint32_t i = 0; i < kSpecialTokens; ++i) {
    literals[i] = fmt::format("<|reserved_token_{}|>", first_id + i);
  }
  for (const auto& [key, entry] : added->items()) {
    NamedSpecial special = parse_named_special(key, entry, what, first_id);
    literals[special.index] = std::move(special.literal);
  }
  SpecialTokens specials(first_id, std::move(literals));
  if (const auto repeated = specials.find_repeated()) {
    fail(what,
         fmt::format("{} as the literal of {} and of {}",
                     printable(specials.literal(repeated->first)), repeated->first,
                     repeated->second),
         "a literal of its own for each special token");
  }
  return specials;
}

}  // namespace k3::text
