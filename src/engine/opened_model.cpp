#include "engine/opened_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <span>
#include <vector>

#include "io/direct_file.h"
#include "k3/error.h"
#include "model/trunk_order.h"

namespace k3::engine {
namespace {

[[noreturn]] void refuse(const std::filesystem::path& trunk, const std::string& why) {
  throw Error(ErrorKind::kCheckpoint,
              fmt::format("{}: {}; run `k3 pack --force` again", trunk.string(), why));
}

void require_trunk(const std::filesystem::path& directory, const std::filesystem::path& trunk) {
  if (io::is_there(trunk)) return;
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

/// True for rows of one matrix, or for all the tensors of a group, whole. That segments go through
/// all rows in order is known since the file was opened.
bool is_taken_at_once(std::span<const weights::SegmentRecord> segments,
                      const std::vector<weights::TrunkTensor>& wanted) {
  const size_t first = segments.front().tensor;
  const uint32_t group = wanted[first].group;
  if (group == 0) return segments.size() == 1;
  const auto is_other = [group](const weights::TrunkTensor& tensor) {
    return tensor.group != group;
  };
  const auto begin = wanted.begin() + static_cast<std::ptrdiff_t>(first);
  const auto end = std::find_if(begin, wanted.end(), is_other);
  return (first == 0 || is_other(wanted[first - 1])) && std::ssize(segments) == end - begin &&
         std::ranges::all_of(segments, [&](const weights::SegmentRecord& segment) {
           return segment.row_count == wanted[segment.tensor].rows;
         });
}

void check_chunks(const weights::TrunkFile& trunk, const model::Config& config) {
  const std::vector<weights::TrunkTensor> wanted = model::trunk_order(config);
  if (!std::ranges::equal(wanted, trunk.tensors(), same_tensor)) {
    refuse(trunk.path(), "its tensors are not those of config.json in the order of use");
  }
  for (size_t i = 0; i < trunk.chunks().size(); ++i) {
    if (is_taken_at_once(trunk.segments(trunk.chunks()[i]), wanted)) continue;
    refuse(trunk.path(), fmt::format("chunk {} is neither rows of one matrix nor all small tensors "
                                     "of a layer",
                                     i));
  }
}

void check_experts(const weights::TrunkFile& trunk, const model::Config& c) {
  const weights::ManifestHeader& header = trunk.header();
  const auto& part_bytes = model::checkpoint_request(c).expert_shape.part_bytes;
  const bool same_experts = header.experts_per_layer == c.num_experts &&
                            std::ranges::equal(header.expert_part_bytes, part_bytes);
  if (header.expert_layer_count != c.moe_layers() || (c.moe_layers() > 0 && !same_experts) ||
      header.embedding_rows != c.vocab_size || header.embedding_cols != c.hidden_size) {
    refuse(trunk.path(), "its experts or embedding are not those of config.json");
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

void require_fitting_trunk(const weights::TrunkFile& trunk, const model::Config& config) {
  check_chunks(trunk, config);
  check_experts(trunk, config);
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
  require_fitting_trunk(model.trunk, model.config);
  return model;
}

}  // namespace k3::engine
