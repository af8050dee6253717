// Bytes that arrive token by token, passed on as whole UTF-8 characters.
#pragma once

#include <string>
#include <string_view>

namespace k3::text {

class Utf8Stream {
 public:
  /// The complete characters so far: held back is an incomplete sequence at the end (at most 3
  /// bytes); invalid bytes become U+FFFD, one per maximal ill-formed part.
  std::string push(std::string_view bytes);
  /// What is still held back, as U+FFFD.
  std::string finish();

 private:
  std::string pending_;
};

/// A whole text made valid in the same way; `replaced` receives the number of replacements.
std::string to_valid_utf8(std::string_view bytes, size_t* replaced = nullptr);

}  // namespace k3::text
