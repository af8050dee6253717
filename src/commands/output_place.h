// Where results may be written: never over the checkpoint, nor over another file that was named.
#pragma once

#include <filesystem>

namespace k3::commands {

/// Error(kUsage) when `place`, given by `option`, lies in the model directory, or is the trunk file
/// or a file that an entry of the model directory links to.
void refuse_place_of_model(const std::filesystem::path& place, const char* option,
                           const std::filesystem::path& model, const std::filesystem::path& trunk);

/// Error(kUsage) when `place`, given by `option`, is the file `other` of `other_option`: writing
/// the one would destroy the other.
void refuse_shared_place(const std::filesystem::path& place, const char* option,
                         const std::filesystem::path& other, const char* other_option);

}  // namespace k3::commands
