// Checksums made right, so that damage gets past them: what a hostile writer would do, and what
// fuzzing cannot find by itself.
#pragma once

#include <string>
#include <string_view>

namespace k3::fuzz {

/// With the checksums of header and manifest of a trunk file, where there are such.
std::string sealed_trunk(std::string_view bytes);
/// With the checksums of header, ids and whole of a snapshot, where there are such.
std::string sealed_snapshot(std::string_view bytes);

}  // namespace k3::fuzz
