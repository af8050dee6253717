#include "engine/opened_model.h"

#include <fmt/format.h>

#include <algorithm>

#include "k3/error.h"
#include "model/trunk_order.h"

namespace k3::engine {
namespace {

[[noreturn]] void refuse(const std::filesystem::path& trunk, const std::string& why) {
  throw Error(ErrorKind::kCheckpoint,
              fmt::format("{}: {}; run `k3 pack --force` again", trunk.string(), why));
}

void require_trunk(const std::filesystem::path& directory, const std::filesystem::path& trunk) {
  std::error_code ignored;
  if (std::filesystem::exists(trunk, ignored)) return;
  const bool elsewhere = trunk != directory / "trunk.k3";
  throw Error(
      ErrorKind::kCheckpoint,
      fmt::format("{}: no trunk file there; make it once with `k3 pack {}{}`", trunk.string(),
                  directory.string(), elsewhere ? " -o " + trunk.string() : std::string()));
}

bool same_tensor(const weights::TrunkTensor& wanted, const weights::TensorRecord& found) {
  return wanted.layer == found.layer && wanted.role == found.role && wanted.rows == found.rows &&
         wanted.cols == found.cols;
}

/// The step takes chunks blindly in order: what it relies on is checked here.
void check_order(const OpenedModel& model) {
  const auto wanted = model::trunk_order(model.config);
  const auto found = model.trunk.tensors();
  if (!std::equal(wanted.begin(), wanted.end(), found.begin(), found.end(), same_tensor)) {
    refuse(model.trunk.path(), "its tensors are not those of config.json in the order of use");
  }
  uint32_t tensor = 0;
  uint64_t row = 0;
  for (const weights::SegmentRecord& segment : model.trunk.segments()) {
    if (segment.tensor != tensor || segment.row_begin != row || segment.row_count == 0) {
      refuse(model.trunk.path(), "its chunks do not cover the tensors in order");
    }
    row += segment.row_count;
    if (row == found[tensor].rows) {
      ++tensor;
      row = 0;
    }
  }
  if (tensor != found.size()) refuse(model.trunk.path(), "its chunks do not cover all tensors");
}

void check_experts(const OpenedModel& model) {
  const model::Config& c = model.config;
  const weights::ManifestHeader& header = model.trunk.header();
  if (header.expert_layer_count != c.moe_layers() ||
      (c.moe_layers() > 0 && header.experts_per_layer != c.num_experts) ||
      header.embedding_rows != c.vocab_size || header.embedding_cols != c.hidden_size) {
    refuse(model.trunk.path(), "its experts or embedding are not those of config.json");
  }
}

}  // namespace

size_t OpenedModel::head_chunk_rows() const {
  size_t most = 0;
  for (const weights::SegmentRecord& segment : trunk.segments()) {
    const auto role = static_cast<model::Role>(trunk.tensors()[segment.tensor].role);
    if (role == model::Role::kLmHead) most = std::max<size_t>(most, segment.row_count);
  }
  return most;
}

Bytes OpenedModel::expert_payload() const {
  Bytes sum;
  if (trunk.header().expert_layer_count == 0) return sum;
  for (uint64_t bytes : trunk.header().expert_part_bytes) sum += Bytes{bytes};
  return sum;
}

OpenedModel open_model(const std::filesystem::path& directory, const std::filesystem::path& trunk) {
  model::Config config = model::load_config(directory);
  require_trunk(directory, trunk);
  OpenedModel model{directory, std::move(config), weights::TrunkFile::open(trunk)};
  if (model.trunk.header().config_fingerprint != model.config.fingerprint()) {
    refuse(trunk, fmt::format("it was made for another configuration than that of {}",
                              (directory / "config.json").string()));
  }
  model.trunk.check_shards(directory, false);
  check_order(model);
  check_experts(model);
  return model;
}

}  // namespace k3::engine
