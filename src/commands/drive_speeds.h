// How fast the drives of the trunk and of the experts read, and what that means for a token.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "io/drive.h"
#include "k3/plan.h"

namespace k3::commands {

struct DriveSpeeds {
  double trunk_gbps = 0;
  double experts_gbps = 0;
  bool one_drive = true;  // trunk and shards are on one file system
  bool holes = false;     // measured on files with holes: the drive itself was hardly asked
  bool measured = true;   // else given by the user
};

/// The file itself, or some of the shards of a checkpoint directory. Error(kCheckpoint) when it has
/// none.
std::vector<std::filesystem::path> files_to_measure(const std::filesystem::path& path);

/// Reads some of the shards far apart, as experts are.
io::ReadSpeed measure_experts(const std::filesystem::path& model);
/// Reads the trunk file in order.
io::ReadSpeed measure_trunk(const std::filesystem::path& trunk);

/// Both measured, a second each at most.
DriveSpeeds measure_drives(const std::filesystem::path& model, const std::filesystem::path& trunk);

/// Seconds that the drives need for a token's bytes with nothing in the expert cache. One drive
/// reads trunk and experts one after the other, two at the same time.
double read_seconds(const Plan& plan, const DriveSpeeds& speeds);

}  // namespace k3::commands
