// tiktoken.model + tokenizer_config.json: bytes to token ids and back, exactly as the reference.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "k3/units.h"

namespace k3::text {

enum class Specials { kAsText, kRecognised };

class Tokenizer {
 public:
  /// Error(kCheckpoint) when a file is damaged (bad base64, gaps or repeats in the ranks, a missing
  /// single byte); nullopt when the directory has no tiktoken.model.
  static std::optional<Tokenizer> load(const std::filesystem::path& directory);

  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;
  ~Tokenizer();

  /// Ids of a text in time linear in its length. Invalid UTF-8 becomes U+FFFD, one per maximal
  /// ill-formed part; `replaced`, if given, receives how many. Of a text of more than `enough` ids
  /// only the first are given, more than that.
  std::vector<uint32_t> encode(std::string_view text, Specials specials, size_t* replaced = nullptr,
                               size_t enough = SIZE_MAX) const;

  /// Bytes of a token (the literal of a special one), not necessarily whole characters.
  /// Error(kUsage) for an id outside the vocabulary.
  std::string_view token_bytes(uint32_t id) const;
  /// Text of ids: invalid UTF-8 becomes U+FFFD.
  std::string decode(std::span<const uint32_t> ids) const;

  bool is_special(uint32_t id) const;
  std::optional<uint32_t> special_id(std::string_view literal) const;
  size_t vocabulary_size() const;  // ranks and specials
  size_t longest_token() const;    // its bytes
  Bytes memory() const;            // heap held, for the plan

 private:
  struct Impl;
  explicit Tokenizer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace k3::text
