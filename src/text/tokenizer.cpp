#include "text/tokenizer.h"

#include <fmt/format.h>

#include <algorithm>

#include "io/direct_file.h"
#include "k3/error.h"
#include "text/bpe.h"
#include "text/characters.h"
#include "text/scanner.h"
#include "text/special_tokens.h"
#include "text/utf8_stream.h"
#include "text/vocabulary_file.h"

namespace k3::text {
namespace {

namespace fs = std::filesystem;

constexpr uintmax_t kFileBytesMax = 256u << 20;  // the released vocabulary has 2.8 MB

std::string read_file(const fs::path& path) {
  const auto refuse = [&](const std::string& found) {
    throw Error(ErrorKind::kCheckpoint,
                fmt::format("cannot read {}: found {}, expected a file of 1 to {} bytes; download "
                            "it again",
                            path.string(), found, kFileBytesMax));
  };
  std::error_code failed;
  const bool regular = fs::is_regular_file(path, failed);
  if (failed) refuse(failed.message());
  if (!regular) refuse("no regular file");  // opening a pipe would wait for its writer
  const uintmax_t size = fs::file_size(path, failed);
  if (failed) refuse(failed.message());
  if (size == 0 || size > kFileBytesMax) refuse(fmt::format("{} bytes", size));
  return io::read_text_file(path, Bytes{kFileBytesMax});
}

/// One call of encode(): what its steps share.
class Encoder {
 public:
  Encoder(const Vocabulary& vocabulary, const SpecialTokens* specials)
      : specials_(specials), merger_(vocabulary) {}

  std::vector<uint32_t> encode(std::string_view text, size_t enough) {
    while (!text.empty() && ids_.size() <= enough) {
      const CharView slice = characters_.read(text, kSliceChars);
      for (size_t begin = 0; begin < slice.size();) {
        const size_t end = piece_end(slice.classes, begin);
        encode_piece(slice.part(begin, end));
        begin = end;
      }
      text.remove_prefix(slice.text.size());
    }
    return std::move(ids_);
  }

 private:
  void encode_piece(CharView piece) {
    if (specials_ == nullptr) return encode_ordinary(piece);
    size_t ordinary_from = 0;
    for (size_t at = 0; at < piece.size();) {
      const auto special = specials_->match_start(piece.bytes(at, piece.size()));
      if (!special) {
        ++at;
        continue;
      }
      encode_ordinary(piece.part(ordinary_from, at));
      ids_.push_back(special->id);
      const size_t end_offset = piece.offsets[at] + special->length;
      while (piece.offsets[at] < end_offset) ++at;
      ordinary_from = at;
    }
    encode_ordinary(piece.part(ordinary_from, piece.size()));
  }

  void encode_ordinary(CharView part) {
    size_t begin = 0;
    for (Scanner scanner(part); !scanner.done();) {
      const size_t end = scanner.next();
      merger_.encode(part.bytes(begin, end), ids_);
      begin = end;
    }
  }

  const SpecialTokens* specials_;  // null: literals are text
  BpeMerger merger_;
  Characters characters_;
  std::vector<uint32_t> ids_;
};

}  // namespace

struct Tokenizer::Impl {
  Vocabulary vocabulary;
  SpecialTokens specials;
};

std::optional<Tokenizer> Tokenizer::load(const fs::path& directory) {
  const fs::path vocabulary_path = directory / "tiktoken.model";
  const fs::path config_path = directory / "tokenizer_config.json";
  std::error_code failed;
  if (fs::symlink_status(vocabulary_path, failed).type() == fs::file_type::not_found) {
    return std::nullopt;
  }
  Vocabulary vocabulary = parse_vocabulary(read_file(vocabulary_path), vocabulary_path.string());
  SpecialTokens specials =
      parse_special_tokens(read_file(config_path), config_path.string(), vocabulary.size());
  return Tokenizer(std::make_unique<Impl>(Impl{std::move(vocabulary), std::move(specials)}));
}

Tokenizer::Tokenizer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

std::vector<uint32_t> Tokenizer::encode(std::string_view text, Specials specials, size_t* replaced,
                                        size_t enough) const {
  const SpecialTokens* recognised = specials == Specials::kRecognised ? &impl_->specials : nullptr;
  return Encoder(impl_->vocabulary, recognised).encode(to_valid_utf8(text, replaced), enough);
}

std::string_view Tokenizer::token_bytes(uint32_t id) const {
  if (id >= vocabulary_size()) {
    throw Error(ErrorKind::kUsage,
                fmt::format("token id {} is not in the vocabulary: expected 0 to {}", id,
                            vocabulary_size() - 1));
  }
  return is_special(id) ? impl_->specials.literal(id) : impl_->vocabulary.bytes(id);
}

std::string Tokenizer::decode(std::span<const uint32_t> ids) const {
  std::string bytes;
  for (const uint32_t id : ids) bytes.append(token_bytes(id));
  return to_valid_utf8(bytes);
}

bool Tokenizer::is_special(uint32_t id) const {
  return id >= impl_->specials.first_id() && id < vocabulary_size();
}

std::optional<uint32_t> Tokenizer::special_id(std::string_view literal) const {
  const auto match = impl_->specials.match_start(literal);
  if (!match || match->length != literal.size()) return std::nullopt;
  return match->id;
}

size_t Tokenizer::vocabulary_size() const {
  return size_t{impl_->vocabulary.size()} + impl_->specials.size();
}

size_t Tokenizer::longest_token() const {
  size_t longest = 0;
  for (uint32_t id = 0; id < vocabulary_size(); ++id) {
    longest = std::max(longest, token_bytes(id).size());
  }
  return longest;
}

Bytes Tokenizer::memory() const {
  return Bytes{sizeof(Impl)} + impl_->vocabulary.memory() + impl_->specials.memory();
}

}  // namespace k3::text
