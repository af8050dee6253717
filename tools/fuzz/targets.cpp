#include "tools/fuzz/targets.h"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "base/check.h"
#include "commands/token_ids.h"
#include "k3/error.h"
#include "k3/units.h"
#include "model/config.h"
#include "support/plain_tokenizer.h"
#include "text/special_tokens.h"
#include "text/tokenizer.h"
#include "text/vocabulary_file.h"
#include "tools/fuzz/input_file.h"
#include "tools/fuzz/sealed.h"
#include "weights/index_file.h"
#include "weights/safetensors.h"
#include "weights/trunk_codec.h"
#include "weights/trunk_file.h"

namespace k3::fuzz {

std::filesystem::path file_of(std::string_view bytes) {
  static const std::filesystem::path path =
      std::filesystem::temp_directory_path() / ("k3-fuzz-" + std::to_string(::getpid()));
  static const int at_exit = std::atexit([] { std::filesystem::remove(path); });
  static_cast<void>(at_exit);
  std::ofstream(path, std::ios::binary).write(bytes.data(), static_cast<long>(bytes.size()));
  return path;
}

namespace {

void safetensors(std::string_view bytes) {
  uint64_t end = 0;
  const auto header = weights::read_safetensors(
      file_of(bytes), [&](const weights::TensorEntry& entry) { end = entry.offset + entry.bytes; });
  K3_CHECK(end <= header.file_bytes);
}

void index(std::string_view bytes) {
  weights::read_index_file(file_of(bytes), [](const std::string&, const std::string& shard) {
    K3_CHECK(shard.find('/') == shard.npos);
  });
}

void config(std::string_view bytes) {
  const model::Config parsed = model::parse_config(bytes, "config.json");
  K3_CHECK(parsed.is_mla.size() == parsed.num_hidden_layers);
}

/// Packed chunks are unpacked as far as they are sound.
void open_trunk(std::string_view bytes) {
  const weights::TrunkFile file = weights::TrunkFile::open(file_of(bytes));
  for (const weights::ChunkRecord& chunk : file.chunks()) {
    K3_CHECK(chunk.offset + chunk.stored_bytes <= file.file_bytes().value);
    const auto codec = static_cast<weights::Codec>(chunk.codec);
    const auto stored = std::as_bytes(std::span(bytes)).subspan(chunk.offset, chunk.stored_bytes);
    if (codec == weights::Codec::kRaw || !weights::is_sound(codec, stored, chunk.raw_bytes / 2)) {
      continue;
    }
    std::vector<std::byte> unpacked(chunk.raw_bytes);
    weights::unpack_weights(codec, stored, unpacked);
  }
}

void trunk(std::string_view bytes) {
  try {
    open_trunk(bytes);
  } catch (const Error&) {
    // As most damage does; sealed, some of it goes further.
  }
  open_trunk(sealed_trunk(bytes));
}

void vocabulary(std::string_view bytes) {
  text::parse_vocabulary(bytes, "tiktoken.model");
}

void specials(std::string_view bytes) {
  text::parse_special_tokens(bytes, "tokenizer_config.json", 1024);
}

/// The ids are those of the plain tokenizer, and what is encoded and decoded is the text again, but
/// for what is not UTF-8.
void text_input(std::string_view bytes) {
  constexpr size_t kPlainMax = 256;
  static const auto tokenizer = text::Tokenizer::load(K3_TEST_DATA "/tiny-k3");
  static const test::PlainTokenizer plain(*tokenizer);
  for (const auto specials : {text::Specials::kAsText, text::Specials::kRecognised}) {
    size_t replaced = 0;
    const auto ids = tokenizer->encode(bytes, specials, &replaced);
    std::string back;
    for (const uint32_t id : ids) back += tokenizer->token_bytes(id);
    if (replaced == 0) K3_CHECK(back == bytes);
    if (bytes.size() <= kPlainMax) K3_CHECK(ids == plain.encode(bytes, specials));
  }
}

void numbers(std::string_view bytes) {
  try {
    parse_bytes(bytes);
  } catch (const Error&) {
    // Not a size: it may be a list of ids.
  }
  commands::parse_ids(bytes);
}

/// An Error is the right end of damaged input.
template <void (*kParse)(std::string_view)>
void guarded(std::string_view bytes) {
  try {
    kParse(bytes);
  } catch (const Error&) {
    return;
  }
}

constexpr Target kTargets[] = {
    {"safetensors", guarded<safetensors>},
    {"index", guarded<index>},
    {"config", guarded<config>},
    {"trunk", guarded<trunk>},
    {"chunk", guarded<chunk>},
    {"snapshot", guarded<snapshot>},
    {"vocabulary", guarded<vocabulary>},
    {"specials", guarded<specials>},
    {"text", guarded<text_input>},
    {"numbers", guarded<numbers>},
};

}  // namespace

std::span<const Target> targets() {
  return kTargets;
}

}  // namespace k3::fuzz
