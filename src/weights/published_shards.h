// The shards of the release as published: what a download must be, byte for byte.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace k3::weights {

struct PublishedFile {
  std::string_view name;
  uint64_t bytes;
  std::string_view sha256;  // lower-case hexadecimal
};

/// All 96, in order of their numbers.
std::span<const PublishedFile> published_shards();

}  // namespace k3::weights
