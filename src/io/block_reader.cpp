#include "io/block_reader.h"

#include <fmt/format.h>

#include <cstdlib>

#include "k3/error.h"

namespace k3::io {

std::unique_ptr<BlockReader> make_reader(size_t depth, std::string* fallback_reason) {
  const char* const variable = std::getenv("K3_IO");
  const std::string_view forced = variable == nullptr ? "" : variable;
  if (!forced.empty() && forced != "uring" && forced != "pread") {
    throw Error(ErrorKind::kUsage, fmt::format("K3_IO={}: expected uring or pread", forced));
  }
  if (forced == "pread") return make_pread_reader(depth);
  std::string reason;
  auto reader = make_uring_reader(depth, &reason);
  if (reader != nullptr) return reader;
  if (forced == "uring") {
    throw Error(ErrorKind::kUsage, fmt::format("K3_IO=uring: {}; use K3_IO=pread", reason));
  }
  *fallback_reason = std::move(reason);
  return make_pread_reader(depth);
}

}  // namespace k3::io
