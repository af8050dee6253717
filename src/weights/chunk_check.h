// Are the chunks of a trunk file what was written? Needs no checkpoint beside it.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "k3/units.h"
#include "weights/trunk_file.h"

namespace k3::weights {

/// Reads every chunk and compares it with its checksum; one line for each that differs or that the
/// drive does not give, in order.
std::vector<std::string> damaged_chunks(
    const TrunkFile& trunk, const std::function<void(Bytes done, Bytes total)>& progress);

}  // namespace k3::weights
