#include "weights/checkpoint_index.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>
#include <string>
#include <vector>

#include "model/tensor_names.h"
#include "model/trunk_order.h"
#include "support/checkpoint_maker.h"
#include "support/expert_name.h"
#include "support/messages.h"
#include "support/test_data.h"

namespace k3::weights {
namespace {

namespace fs = std::filesystem;
using test::CheckpointSpec;
using test::mentions;
using test::tiny_config;

constexpr const char* kLayer1 = "language_model.model.layers.1.";
constexpr const char* kShard2 = "model-00002-of-000008.safetensors";
constexpr const char* kShard3 = "model-00003-of-000008.safetensors";
constexpr const char* kLastShard = "model-00008-of-000008.safetensors";
const std::string kExpert5 = std::string(kLayer1) + "block_sparse_moe.experts.5.";

std::string read_file(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

class Index : public ::testing::Test {
 protected:
  void make(const CheckpointSpec& spec) { test::make_checkpoint(path(), spec); }
  void make() { make({.config = tiny_config()}); }

  const fs::path& path() const { return dir_.path(); }
  fs::path index_file() const { return path() / "model.safetensors.index.json"; }

  static CheckpointRequest request(const Json& config = tiny_config()) {
    return model::checkpoint_request(model::parse_config(config.dump(), "config.json"));
  }
  CheckpointIndex open() const { return CheckpointIndex::open(path(), request()); }
  std::string refusal() const {
    return test::error_of(ErrorKind::kCheckpoint, [&] { open(); });
  }
  std::vector<std::string> problems() const {
    std::vector<std::string> found;
    CheckpointIndex::inspect(path(), request(), found);
    return found;
  }

  /// Edits the weight_map of the index file, keeping everything else.
  template <typename Edit>
  void edit_index(Edit&& edit) {
    OrderedJson index = OrderedJson::parse(read_file(index_file()));
    edit(index["weight_map"]);
    write_index(index.dump());
  }
  void write_index(const std::string& text) { std::ofstream(index_file()) << text; }

  test::TempDir dir_;
};

/// Every location of `index` holds the bytes that the maker wrote for that name.
void expect_places(const fs::path& dir, const CheckpointSpec& spec, const CheckpointIndex& index,
                   const CheckpointRequest& request) {
  std::map<std::string, std::pair<std::string, uint64_t>> places;  // shard, offset
  std::map<std::string, uint64_t> ends;
  for (const test::MadeTensor& t : test::list_tensors(spec)) {
    uint64_t bytes = t.form.dtype == "F32" ? 4 : t.form.dtype == "BF16" ? 2 : 1;
    for (uint64_t size : t.form.shape) bytes *= size;
    if (!ends.contains(t.shard)) {
      const std::string file = read_file(dir / t.shard);
      ends[t.shard] = 8 + static_cast<unsigned char>(file[0]) +
                      256u * static_cast<unsigned char>(file[1]) +
                      65536u * static_cast<unsigned char>(file[2]);
    }
    places[t.name] = {t.shard, ends[t.shard]};
    ends[t.shard] += bytes;
  }
  const auto expect = [&](const std::string& name, uint32_t shard, uint64_t offset) {
    EXPECT_EQ(index.shards()[shard].name, places.at(name).first) << name;
    EXPECT_EQ(offset, places.at(name).second) << name;
  };
  for (size_t i = 0; i < request.tensors.size(); ++i) {
    expect(request.tensors[i], index.tensor(i).shard, index.tensor(i).offset);
  }
  for (size_t rank = 0; rank < request.expert_layers.size(); ++rank) {
    for (uint32_t e = 0; e < request.experts_per_layer; ++e) {
      const ExpertLocation& expert = index.expert(rank, e);
      for (size_t part = 0; part < kExpertParts; ++part) {
        expect(test::expert_name(request.expert_layers[rank], e, static_cast<ExpertPart>(part)),
               expert.shard, expert.offset[part]);
      }
    }
  }
}

TEST_F(Index, FindsEveryTensorAndExpertByNameInAnyLayout) {
  const std::vector<CheckpointSpec> layouts = {
      {.config = tiny_config()},
      {.config = tiny_config(), .shards = 3},
      {.config = tiny_config(), .shards = 1},
      {.config = tiny_config(), .single_file = true},
      {.config = tiny_config(), .experts_w1_w3_w2 = true},
  };
  for (const CheckpointSpec& spec : layouts) {
    test::TempDir dir;
    test::make_checkpoint(dir.path(), spec);
    expect_places(dir.path(), spec, CheckpointIndex::open(dir.path(), request()), request());
  }
}

TEST_F(Index, ListsShardsByNameWithSizesAndHashes) {
  make();
  const CheckpointIndex index = open();
  ASSERT_EQ(index.shards().size(), 8u);
  EXPECT_EQ(index.shards()[1].name, kShard2);
  EXPECT_EQ(index.shards()[1].bytes, fs::file_size(path() / kShard2));
  EXPECT_EQ(index.shards()[7].tensor_count, 5u);
  EXPECT_NE(index.shards()[1].header_hash, index.shards()[2].header_hash);
  EXPECT_EQ(list_shards(path()).names.size(), 8u);
  EXPECT_TRUE(list_shards(path()).missing.empty());
}

TEST_F(Index, IgnoresTensorsThatTheModelDoesNotNeed) {
  make({.config = tiny_config(),
        .extra = {{"vision_tower.patch_embed.proj.weight", {"BF16", {2, 3}}},
                  {"mm_projector.proj.0.weight", {"F16", {2, 3}}},
                  {"other.counts", {"I64", {5}}}}});
  EXPECT_NO_THROW(open());
}

TEST_F(Index, FollowsSymlinkedShards) {
  make();
  fs::rename(path() / kShard2, path() / "blob");
  fs::create_symlink("blob", path() / kShard2);
  EXPECT_NO_THROW(open());
}

TEST_F(Index, ListsAllMissingAndDamagedShardsInOneError) {
  make();
  fs::remove(path() / kShard2);
  const uint64_t size = fs::file_size(path() / kShard3);
  fs::resize_file(path() / kShard3, size - 100);
  std::ofstream(path() / kLastShard) << "version https://git-lfs.github.com/spec/v1\n";
  const std::string message = refusal();
  EXPECT_TRUE(mentions(message, fmt::format("{}: No such file or directory; download this shard "
                                            "again",
                                            kShard2)));
  EXPECT_TRUE(mentions(message, fmt::format("{}: {} bytes found, {} expected by its header; "
                                            "download this shard again",
                                            kShard3, size - 100, size)));
  EXPECT_TRUE(mentions(
      message, fmt::format("{}: not a safetensors file but a Git LFS pointer", kLastShard)));
  EXPECT_EQ(problems().size(), 3u);
  EXPECT_EQ(list_shards(path()).missing, std::vector<std::string>{kShard2});
}

TEST_F(Index, RefusesATensorThatItsShardLacks) {
  make();
  edit_index([](OrderedJson& map) { map["language_model.model.extra"] = kShard2; });
  EXPECT_TRUE(mentions(refusal(), fmt::format("{}: tensor language_model.model.extra is not in "
                                              "this shard",
                                              kShard2)));
}

TEST_F(Index, RefusesATensorThatTheIndexDoesNotName) {
  make();
  const std::string name = std::string(kLayer1) + "input_layernorm.weight";
  edit_index([&](OrderedJson& map) { map.erase(name); });
  EXPECT_TRUE(mentions(refusal(), "tensor " + name + " is in this shard, but"));
  EXPECT_TRUE(mentions(refusal(), "does not name it"));
}

TEST_F(Index, RefusesATensorPlacedInAnotherShard) {
  make();
  const std::string name = std::string(kLayer1) + "input_layernorm.weight";
  edit_index([&](OrderedJson& map) { map[name] = kShard3; });
  EXPECT_TRUE(mentions(refusal(), std::string("places it in ") + kShard3));
  EXPECT_TRUE(mentions(refusal(), std::string(kShard3) + ": tensor " + name));
}

TEST_F(Index, RefusesATensorInTwoShards) {
  // Shard 2 is a copy of shard 3's layer: each of its tensors is in two shards.
  make();
  fs::copy_file(path() / kShard3, path() / kShard2, fs::copy_options::overwrite_existing);
  EXPECT_TRUE(mentions(refusal(), std::string("places it in ") + kShard3));
}

TEST_F(Index, RefusesATensorThatTheIndexNamesTwice) {
  make();
  std::string text = read_file(index_file());
  const size_t at = text.find("\"weight_map\": {") + 15;
  text.insert(at, fmt::format("\"{}input_layernorm.weight\": \"{}\",", kLayer1, kShard3));
  write_index(text);
  EXPECT_TRUE(mentions(refusal(), std::string(kLayer1) + "input_layernorm.weight appears twice"));
}

TEST_F(Index, RefusesShardNamesThatLeadElsewhere) {
  make();
  for (const char* name : {"../x.safetensors", "a/b.safetensors", "/etc/passwd", "..", ".", ""}) {
    edit_index([&](OrderedJson& map) { map[kExpert5 + "w1.weight_scale"] = name; });
    EXPECT_TRUE(mentions(refusal(), fmt::format("is placed in \"{}\"", name)));
  }
}

TEST_F(Index, RefusesABrokenIndexFile) {
  make();
  const std::vector<std::pair<std::string, const char*>> files = {
      {"", "not JSON"},
      {"{", "not JSON"},
      {"[]", "weight_map is missing"},
      {"{}", "weight_map is missing"},
      {R"({"a":{"weight_map":{"x":"y"}}})", "weight_map is missing"},
      {R"({"weight_map":{}})", "weight_map is empty"},
      {R"({"weight_map":[]})", "weight_map is a list"},
      {R"({"weight_map":"x"})", "weight_map is text"},
      {R"({"weight_map":3})", "weight_map is a number"},
      {R"({"weight_map":{"x":3}})", "tensor x has a number"},
      {R"({"weight_map":{"x":null}})", "tensor x has null"},
      {R"({"weight_map":{"x":["y"]}})", "tensor x has a list"},
      {R"({"weight_map":{"x":{"y":"z"}}})", "tensor x has an object"},
      {R"({"weight_map":{"x":"y"},"weight_map":{"z":"y"}})", "weight_map appears twice"},
      {R"({"weight_map":{"x":"y"}} x)", "not JSON"},
  };
  for (const auto& [text, reason] : files) {
    write_index(text);
    EXPECT_TRUE(mentions(refusal(), reason)) << text;
    EXPECT_TRUE(mentions(refusal(), "model.safetensors.index.json")) << text;
  }
}

TEST_F(Index, PassesOverOtherKeysOfTheIndex) {
  make();
  OrderedJson index = OrderedJson::parse(read_file(index_file()));
  index["metadata"] = {{"weight_map", {{"x", 3}}}, {"list", {1, {2.5, nullptr, true, -1}}}};
  write_index(index.dump());
  EXPECT_NO_THROW(open());
}

TEST_F(Index, NamesEveryPartThatAnExpertLacks) {
  make({.config = tiny_config(),
        .drop = {kExpert5 + "w2.weight_scale", kExpert5 + "w3.weight_packed"}});
  EXPECT_TRUE(mentions(refusal(), "expert 5 of layer 1 lacks w2 scale, w3 packed"));
}

TEST_F(Index, CountsIncompleteExperts) {
  make({.config = tiny_config(),
        .drop = {kExpert5 + "w2.weight_scale",
                 std::string(kLayer1) + "block_sparse_moe.experts.7.w1.weight_packed"}});
  EXPECT_TRUE(mentions(refusal(), "1 more experts are incomplete"));
}

TEST_F(Index, RefusesAnExpertInTwoShards) {
  make({.config = tiny_config(), .move = {{kExpert5 + "w3.weight_scale", kLastShard}}});
  const std::string message = refusal();
  EXPECT_TRUE(mentions(message, "expert 5 of layer 1 lies in two shards"));
  EXPECT_TRUE(mentions(message, kShard2));
  EXPECT_TRUE(mentions(message, kLastShard));
}

TEST_F(Index, RefusesExpertsOfAnotherForm) {
  const std::string name = kExpert5 + "w2.weight_packed";
  make({.config = tiny_config(), .reshape = {{name, {"U8", {64, 64}}}}});
  EXPECT_TRUE(mentions(refusal(), "tensor " + name + " is U8 [64, 64], expected U8 [64, 48]"));
}

TEST_F(Index, RefusesExpertsOfAnotherDtype) {
  const std::string name = kExpert5 + "w1.weight_scale";
  make({.config = tiny_config(), .reshape = {{name, {"BF16", {96, 2}}}}});
  EXPECT_TRUE(mentions(refusal(), "is BF16 [96, 2], expected U8 [96, 2]"));
}

TEST_F(Index, NamesTheFirstTensorThatIsMissing) {
  make({.config = tiny_config(), .drop = {"language_model.model.norm.weight"}});
  EXPECT_TRUE(mentions(refusal(), "tensor language_model.model.norm.weight is in no shard"));
}

TEST_F(Index, NamesTheFirstTensorLookedForWhenNoNameFits) {
  // Another model's names: not one of them may bind.
  test::write_safetensors(path() / "model.safetensors",
                          R"({"model.norm.weight":{"dtype":"U8","shape":[],"data_offsets":[0,1]}})",
                          "x");
  const std::string message = refusal();
  EXPECT_TRUE(mentions(message, "tensor " + request().tensors.front() + " is in no shard"));
  EXPECT_TRUE(mentions(message, "the first tensor found is model.norm.weight"));
}

TEST_F(Index, FailsWhenAnyOneTrunkTensorIsDropped) {
  const CheckpointRequest small = request(test::three_layer_config());
  for (const std::string& name : small.tensors) {
    test::TempDir dir;
    test::make_checkpoint(dir.path(), {.config = test::three_layer_config(), .drop = {name}});
    const std::string message =
        test::error_of(ErrorKind::kCheckpoint, [&] { CheckpointIndex::open(dir.path(), small); });
    EXPECT_TRUE(mentions(message, name));
  }
}

TEST_F(Index, RefusesADirectoryWithoutShards) {
  EXPECT_TRUE(mentions(refusal(), "no model.safetensors.index.json and no model.safetensors"));
}

TEST_F(Index, SaysWhatAFileGivenAsModelIs) {
  make({.config = tiny_config(), .single_file = true});
  const std::vector<std::pair<std::string, const char*>> files = {
      {"GGUF\3", "a GGUF file"},
      {"PK\3\4xx", "a ZIP archive or PyTorch file"},
      {"K3TRUNK\n", "a trunk file"},
      {"", "an unknown kind of file"}};
  for (const auto& [bytes, meaning] : files) {
    std::ofstream(path() / "foreign", std::ios::binary) << bytes;
    EXPECT_TRUE(mentions(
        test::error_of(ErrorKind::kCheckpoint, [&] { list_shards(path() / "foreign"); }), meaning));
  }
  const auto open_path = [&](const char* name) {
    return test::error_of(ErrorKind::kCheckpoint,
                          [&] { CheckpointIndex::open(path() / name, request()); });
  };
  EXPECT_TRUE(mentions(open_path("model.safetensors"), "a single safetensors file"));
  EXPECT_TRUE(mentions(open_path("absent"), "no such file or directory"));
}

TEST_F(Index, ReadsTheReleasedIndexFile) {
  const fs::path packed = test::shared_dir() / "data/model.safetensors.index.json.gz";
  if (!fs::exists(packed)) GTEST_SKIP() << "no released index at " << packed;
  const std::string command =
      fmt::format("gzip -dc '{}' > '{}'", packed.string(), index_file().string());
  ASSERT_EQ(std::system(command.c_str()), 0);
  const ShardListing listing = list_shards(path());
  EXPECT_EQ(listing.names.size(), 96u);
  EXPECT_EQ(listing.names.back(), "model-00096-of-000096.safetensors");
  EXPECT_EQ(listing.missing, listing.names);
}

}  // namespace
}  // namespace k3::weights
