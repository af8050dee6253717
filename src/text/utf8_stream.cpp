#include "text/utf8_stream.h"

#include "text/utf8.h"

namespace k3::text {

std::string Utf8Stream::push(std::string_view bytes) {
  pending_.append(bytes);
  std::string out;
  size_t replaced = 0;
  pending_.erase(0, append_valid_utf8(pending_, out, replaced));
  return out;
}

std::string Utf8Stream::finish() {
  const bool incomplete = !pending_.empty();
  pending_.clear();
  return std::string(incomplete ? kReplacement : std::string_view());
}

std::string to_valid_utf8(std::string_view bytes, size_t* replaced) {
  std::string out;
  out.reserve(bytes.size());
  size_t count = 0;
  if (append_valid_utf8(bytes, out, count) < bytes.size()) {
    out.append(kReplacement);
    ++count;
  }
  if (replaced != nullptr) *replaced = count;
  return out;
}

}  // namespace k3::text
