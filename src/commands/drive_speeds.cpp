#include "commands/drive_speeds.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "k3/error.h"
#include "weights/checkpoint_index.h"

namespace k3::commands {
namespace {

namespace fs = std::filesystem;

constexpr size_t kShardsMeasured = 8;
constexpr Bytes kExpertRequest{16u << 20};  // an expert of the released model has 17.5 MB
constexpr size_t kExpertsInFlight = 4;

/// Some of those that are there, evenly over their names, whatever the index calls them.
std::vector<fs::path> some_shards(const fs::path& model) {
  std::vector<std::string> names = weights::list_shards(model).names;
  std::error_code error;
  std::erase_if(names, [&](const std::string& name) { return !fs::exists(model / name, error); });
  std::vector<fs::path> some;
  const size_t count = std::min(kShardsMeasured, names.size());
  for (size_t i = 0; i < count; ++i)
    some.push_back(model / names[(2 * i + 1) * names.size() / (2 * count)]);
  return some;
}

double seconds_at(Bytes bytes, double gbps) {
  return gbps > 0 ? static_cast<double>(bytes.value) / (gbps * 1e9) : 0.0;
}

}  // namespace

std::vector<fs::path> files_to_measure(const fs::path& path) {
  std::error_code error;
  if (!fs::is_directory(path, error)) return {path};
  std::vector<fs::path> shards = some_shards(path);
  if (!shards.empty()) return shards;
  throw Error(ErrorKind::kCheckpoint,
              fmt::format("{}: no shard is there; name a file to read", path.string()));
}

io::ReadSpeed measure_experts(const fs::path& model) {
  return io::measure_reading(
      files_to_measure(model),
      {.request = kExpertRequest, .in_flight = kExpertsInFlight, .spread = true});
}

io::ReadSpeed measure_trunk(const fs::path& trunk) {
  return io::measure_reading({trunk}, {});
}

DriveSpeeds measure_drives(const fs::path& model, const fs::path& trunk) {
  const io::ReadSpeed experts = measure_experts(model);
  const io::ReadSpeed chunks = measure_trunk(trunk);
  return {.trunk_gbps = chunks.gbps(),
          .experts_gbps = experts.gbps(),
          .one_drive = io::drive_facts(model).device_id == io::drive_facts(trunk).device_id,
          .holes = experts.holes || chunks.holes};
}

double read_seconds(const Plan& plan, const DriveSpeeds& speeds) {
  const double trunk = seconds_at(plan.trunk_per_token(), speeds.trunk_gbps);
  const double experts =
      seconds_at(plan.experts_per_token_bytes() + plan.embedding_row, speeds.experts_gbps);
  return speeds.one_drive ? trunk + experts : std::max(trunk, experts);
}

}  // namespace k3::commands
