#include "weights/checkpoint_index.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <span>
#include <unordered_map>

#include "base/hash.h"
#include "io/direct_file.h"
#include "k3/error.h"
#include "weights/index_file.h"
#include "weights/model_directory.h"
#include "weights/safetensors.h"

namespace k3::weights {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPartLabels[kExpertParts] = {"w1 packed", "w1 scale",  "w2 packed",
                                                        "w2 scale",  "w3 packed", "w3 scale"};
constexpr uint8_t kAllParts = (1u << kExpertParts) - 1;

/// Names are compared as hashes: 4 MB at the full shape, where the names take 30.
uint64_t name_hash(std::string_view name) {
  return checksum(std::as_bytes(std::span(name)));
}

/// What the index file says: for each shard the hashes of its tensors' names, sorted.
using ShardNames = std::map<std::string, std::vector<uint64_t>>;

ShardNames read_shard_names(const fs::path& index_file) {
  ShardNames shards;
  read_index_file(index_file, [&](const std::string& tensor, const std::string& shard) {
    shards[shard].push_back(name_hash(tensor));
  });
  for (auto& [shard, names] : shards) {
    names.shrink_to_fit();
    std::sort(names.begin(), names.end());
  }
  return shards;
}

std::string name_of(const fs::path& index_file, uint64_t hash) {
  std::string found;
  read_index_file(index_file, [&](const std::string& tensor, const std::string&) {
    if (found.empty() && name_hash(tensor) == hash) found = tensor;
  });
  return found;
}

std::string and_more(uint64_t count, std::string_view what) {
  return count == 0 ? "" : fmt::format("; {} more {}", count, what);
}

/// Many like problems as one line: the first in full, and how many more.
class Tally {
 public:
  /// `describe` is called for the first only.
  template <typename Describe>
  void add(Describe&& describe) {
    if (count_++ == 0) first_ = describe();
  }
  void report(std::string_view more, std::vector<std::string>& problems) const {
    if (count_ != 0) problems.push_back(first_ + and_more(count_ - 1, more));
  }

 private:
  std::string first_;
  uint64_t count_ = 0;
};

std::string describe_form(DType dtype, std::span<const uint64_t> shape) {
  return fmt::format("{} [{}]", dtype_name(dtype), fmt::join(shape, ", "));
}

/// The names in the index file, or the one file of a checkpoint without.
ShardNames find_shards(const fs::path& directory, bool& has_index) {
  require_model_directory(directory);
  has_index = io::is_there(directory / kIndexFile);
  if (has_index) {
    ShardNames shards = read_shard_names(directory / kIndexFile);
    if (!shards.empty()) return shards;
    throw Error(ErrorKind::kCheckpoint,
                fmt::format("{}: weight_map is empty", (directory / kIndexFile).string()));
  }
  if (io::is_there(directory / kSingleFile)) return {{kSingleFile, {}}};
  throw Error(ErrorKind::kCheckpoint,
              fmt::format("{}: no {} and no {}; expected the directory of a Kimi K3 checkpoint",
                          directory.string(), kIndexFile, kSingleFile));
}

}  // namespace

/// Reads every shard's header once and compares it with the index file and with the request.
class IndexBuilder {
 public:
  IndexBuilder(const fs::path& directory, const CheckpointRequest& request,
               std::vector<std::string>& problems)
      : directory_(directory), request_(request), problems_(problems) {
    for (const std::string& name : request.tensors) wanted_.try_emplace(name);
    for (size_t rank = 0; rank < request.expert_layers.size(); ++rank) {
      layer_ranks_[request.expert_layers[rank]] = rank;
    }
    const size_t experts = request.expert_layers.size() * request.experts_per_layer;
    index_.experts_per_layer_ = request.experts_per_layer;
    index_.experts_.resize(experts);
    parts_found_.resize(experts, 0);
  }

  CheckpointIndex build() {
    const size_t before = problems_.size();
    names_ = find_shards(directory_, has_index_);
    if (has_index_) check_named_once();
    for (const auto& [shard, names] : names_) read_shard(shard, names);
    // What is missing for the model says nothing new while shards are missing or damaged.
    if (problems_.size() == before) {
      collect_tensors();
      check_experts();
    }
    return std::move(index_);
  }

 private:
  /// The parser of the index file lets a name appear twice.
  void check_named_once() {
    std::vector<uint64_t> all;
    for (const auto& [shard, names] : names_) all.insert(all.end(), names.begin(), names.end());
    std::sort(all.begin(), all.end());
    const auto twice = std::adjacent_find(all.begin(), all.end());
    if (twice == all.end()) return;
    const fs::path file = directory_ / kIndexFile;
    problems_.push_back(
        fmt::format("{}: tensor {} appears twice", file.string(), name_of(file, *twice)));
  }

  void read_shard(const std::string& shard, const std::vector<uint64_t>& names) {
    std::vector<bool> seen(names.size(), false);
    Tally unnamed;
    SafetensorsHeader header = {};
    try {
      header = read_safetensors(directory_ / shard, [&](const TensorEntry& entry) {
        if (has_index_) check_named(entry, shard, names, seen, unnamed);
        take(entry);
      });
    } catch (const Error& error) {
      problems_.push_back(error.what());
      if (error.kind() == ErrorKind::kRead) index_.kind_of_problems_ = ErrorKind::kRead;
    }
    if (header.file_bytes != 0) {
      unnamed.report("of its tensors likewise", problems_);
      report_absent(shard, names, seen);
    }
    index_.shards_.push_back({shard, header.file_bytes, header.header_hash, header.tensor_count});
  }

  void check_named(const TensorEntry& entry, const std::string& shard,
                   const std::vector<uint64_t>& names, std::vector<bool>& seen, Tally& unnamed) {
    const uint64_t hash = name_hash(entry.name);
    const auto place = std::lower_bound(names.begin(), names.end(), hash);
    if (place != names.end() && *place == hash) {
      seen[static_cast<size_t>(place - names.begin())] = true;
      return;
    }
    unnamed.add([&] {
      return fmt::format("{}: tensor {} is in this shard, but {} {}", (directory_ / shard).string(),
                         entry.name, kIndexFile, where_else(hash));
    });
  }

  std::string where_else(uint64_t hash) const {
    for (const auto& [shard, names] : names_) {
      if (std::binary_search(names.begin(), names.end(), hash)) return "places it in " + shard;
    }
    return "does not name it";
  }

  void report_absent(const std::string& shard, const std::vector<uint64_t>& names,
                     const std::vector<bool>& seen) {
    const auto first = std::find(seen.begin(), seen.end(), false);
    if (first == seen.end()) return;
    const auto more = static_cast<uint64_t>(std::count(first, seen.end(), false)) - 1;
    const uint64_t hash = names[static_cast<size_t>(first - seen.begin())];
    problems_.push_back(fmt::format("{}: tensor {} is not in this shard, where {} places it{}",
                                    (directory_ / shard).string(),
                                    name_of(directory_ / kIndexFile, hash), kIndexFile,
                                    and_more(more, "of its tensors likewise")));
  }

  /// Keeps the location of a tensor that the model needs.
  void take(const TensorEntry& entry) {
    const auto shard = static_cast<uint32_t>(index_.shards_.size());
    if (first_name_.empty()) first_name_ = entry.name;
    if (const auto wanted = wanted_.find(std::string(entry.name)); wanted != wanted_.end()) {
      wanted->second = TensorLocation{.shard = shard,
                                      .dtype = entry.dtype,
                                      .offset = entry.offset,
                                      .bytes = entry.bytes,
                                      .shape = {entry.shape.begin(), entry.shape.end()}};
    } else if (const auto expert = request_.parse_expert(entry.name)) {
      take_expert(*expert, shard, entry);
    }
  }

  void take_expert(const ExpertName& name, uint32_t shard, const TensorEntry& entry) {
    const auto rank = layer_ranks_.find(name.layer);
    if (rank == layer_ranks_.end() || name.expert >= request_.experts_per_layer) return;
    const size_t i = rank->second * request_.experts_per_layer + name.expert;
    const auto part = static_cast<size_t>(name.part);
    const std::vector<uint64_t>& shape = request_.expert_shape.part_shape[part];
    if (entry.dtype != DType::kU8 || !std::ranges::equal(entry.shape, shape)) {
      misshapen_experts_.add([&] {
        return fmt::format("tensor {} is {}, expected {} by config.json", entry.name,
                           describe_form(entry.dtype, entry.shape),
                           describe_form(DType::kU8, shape));
      });
    }
    ExpertLocation& expert = index_.experts_[i];
    if (parts_found_[i] != 0 && expert.shard != shard) {
      split_experts_.add([&] {
        return fmt::format(
            "expert {} of layer {} lies in two shards, {} and {}; expected all six "
            "tensors in one",
            name.expert, name.layer, index_.shards_[expert.shard].name,
            std::next(names_.begin(), shard)->first);
      });
    }
    expert.shard = shard;
    expert.offset[part] = entry.offset;
    parts_found_[i] |= static_cast<uint8_t>(1u << part);
  }

  void collect_tensors() {
    Tally missing;
    for (const std::string& name : request_.tensors) {
      const std::optional<TensorLocation>& found = wanted_.at(name);
      if (!found) {
        missing.add([&] {
          return fmt::format(
              "{}: tensor {} is in no shard (the first tensor found is {}); is this "
              "a Kimi K3 checkpoint?",
              directory_.string(), name, first_name_);
        });
      }
      index_.tensors_.push_back(found.value_or(TensorLocation{}));
    }
    missing.report("tensors are missing", problems_);
  }

  void check_experts() {
    Tally incomplete;
    for (size_t i = 0; i < parts_found_.size(); ++i) {
      if (parts_found_[i] == kAllParts) continue;
      incomplete.add([&] {
        return fmt::format("{}: expert {} of layer {} lacks {}", directory_.string(),
                           i % request_.experts_per_layer,
                           request_.expert_layers[i / request_.experts_per_layer],
                           list_missing(parts_found_[i]));
      });
    }
    incomplete.report("experts are incomplete", problems_);
    split_experts_.report("experts are split", problems_);
    misshapen_experts_.report("expert tensors have another form", problems_);
  }

  static std::string list_missing(uint8_t found) {
    std::vector<std::string_view> missing;
    for (size_t part = 0; part < kExpertParts; ++part) {
      if ((found & (1u << part)) == 0) missing.push_back(kPartLabels[part]);
    }
    return fmt::format("{}", fmt::join(missing, ", "));
  }

  const fs::path& directory_;
  const CheckpointRequest& request_;
  std::vector<std::string>& problems_;
  CheckpointIndex index_;
  bool has_index_ = false;
  ShardNames names_;
  std::unordered_map<std::string, std::optional<TensorLocation>> wanted_;
  std::unordered_map<uint32_t, size_t> layer_ranks_;
  std::vector<uint8_t> parts_found_;  // a bit for each part of each expert
  std::string first_name_;
  Tally split_experts_;
  Tally misshapen_experts_;
};

CheckpointIndex CheckpointIndex::inspect(const fs::path& directory,
                                         const CheckpointRequest& request,
                                         std::vector<std::string>& problems) {
  return IndexBuilder(directory, request, problems).build();
}

CheckpointIndex CheckpointIndex::open(const fs::path& directory, const CheckpointRequest& request) {
  std::vector<std::string> problems;
  CheckpointIndex index = inspect(directory, request, problems);
  if (problems.empty()) return index;
  throw Error(index.kind_of_problems_, fmt::format("{}", fmt::join(problems, "; ")));
}

ShardListing list_shards(const fs::path& directory) {
  bool has_index = false;
  ShardListing listing;
  for (const auto& [shard, names] : find_shards(directory, has_index)) {
    listing.names.push_back(shard);
    std::error_code error;
    if (!fs::exists(directory / shard, error)) listing.missing.push_back(shard);
  }
  return listing;
}

}  // namespace k3::weights
