// For parsers that read a file.
#pragma once

#include <filesystem>
#include <string_view>

namespace k3::fuzz {

/// A file with these bytes, replaced by the next call.
std::filesystem::path file_of(std::string_view bytes);

}  // namespace k3::fuzz
