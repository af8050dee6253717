// Where results may be written: never over the checkpoint.
#pragma once

#include <filesystem>

namespace k3::commands {

/// Error(kUsage) when `place`, given by `option`, lies in the model directory, or is the trunk file
/// or a file that an entry of the model directory links to.
void refuse_place_of_model(const std::filesystem::path& place, const char* option,
                           const std::filesystem::path& model, const std::filesystem::path& trunk);

}  // namespace k3::commands
