#include "model/trunk_order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "model/tensor_names.h"
#include "support/checkpoint_maker.h"
#include "support/expert_name.h"
#include "support/test_data.h"

namespace k3::model {
namespace {

using weights::ExpertPart;
using weights::TrunkTensor;

Config tiny() {
  return parse_config(test::tiny_config().dump(), "config.json");
}

TEST(TrunkOrder, BindsEveryTensorOfACheckpointAndNoOther) {
  const Config config = tiny();
  const weights::CheckpointRequest request = checkpoint_request(config);
  std::set<std::string> bound(request.tensors.begin(), request.tensors.end());
  for (uint32_t layer : request.expert_layers) {
    for (uint32_t expert = 0; expert < request.experts_per_layer; ++expert) {
      for (size_t part = 0; part < weights::kExpertParts; ++part) {
        bound.insert(test::expert_name(layer, expert, static_cast<ExpertPart>(part)));
      }
    }
  }
  std::set<std::string> made;
  for (const test::MadeTensor& t : test::list_tensors({.config = test::tiny_config()})) {
    made.insert(t.name);
  }
  EXPECT_EQ(bound, made);
}

TEST(TrunkOrder, NamesEachTensorOnceButKvBTwice) {
  std::map<std::string, int> uses;
  for (const TrunkTensor& t : trunk_order(tiny())) ++uses[t.name];
  for (const auto& [name, count] : uses) {
    const bool kv_b = name.ends_with("kv_b_proj.weight");
    EXPECT_EQ(count, kv_b ? 2 : 1) << name;
  }
}

TEST(TrunkOrder, SplitsKvBIntoItsKeyAndValueRowsByHead) {
  const std::vector<TrunkTensor> order = trunk_order(tiny());
  std::set<uint64_t> rows;
  for (const TrunkTensor& t : order) {
    if (t.layer != 2 || !t.name.ends_with("kv_b_proj.weight")) continue;
    const bool key = t.role == static_cast<uint16_t>(Role::kWUK);
    EXPECT_EQ(t.source_rows, 3u * 26);
    EXPECT_EQ(t.rows, key ? 3u * 12 : 3u * 14);
    for (uint64_t i = 0; i < t.rows; ++i) {
      const uint64_t row =
          i / t.pattern.take * t.pattern.period + t.pattern.begin + i % t.pattern.take;
      EXPECT_TRUE(rows.insert(row).second) << "row " << row << " twice";
      EXPECT_EQ(row % 26 < 12, key) << "row " << row;
    }
  }
  EXPECT_EQ(rows.size(), 78u);
}

TEST(TrunkOrder, StartsEachLayerWithOneGroupOfItsSmallTensors) {
  uint32_t last_group = 0;
  for (const TrunkTensor& t : trunk_order(tiny())) {
    const bool small = t.role < 32 || (t.role >= 96 && t.role < 99);
    EXPECT_EQ(t.group != 0, small) << t.name;
    if (t.group == 0) continue;
    EXPECT_EQ(t.group, t.layer == weights::kNoLayer ? 8u : t.layer + 1u);
    EXPECT_GE(t.group, last_group);
    last_group = t.group;
  }
}

TEST(TrunkOrder, KeepsRolesInTheOrderOfUse) {
  const std::vector<Role> mla = {
      Role::kAttnResNorm, Role::kAttnResProj,  Role::kInputNorm,  Role::kMlpResNorm,
      Role::kMlpResProj,  Role::kPostAttnNorm, Role::kQANorm,     Role::kKvANorm,
      Role::kRouterBias,  Role::kRoutedNorm,   Role::kQAProj,     Role::kQBProj,
      Role::kWUK,         Role::kKvAProj,      Role::kWUV,        Role::kGProj,
      Role::kOProj,       Role::kRouter,       Role::kRoutedDown, Role::kSharedGate,
      Role::kSharedUp,    Role::kSharedDown,   Role::kRoutedUp};
  const std::vector<Role> dense_kda = {
      Role::kAttnResNorm, Role::kAttnResProj,  Role::kInputNorm, Role::kMlpResNorm,
      Role::kMlpResProj,  Role::kPostAttnNorm, Role::kALog,      Role::kDtBias,
      Role::kConvQ,       Role::kConvK,        Role::kConvV,     Role::kONorm,
      Role::kQProj,       Role::kKProj,        Role::kVProj,     Role::kFAProj,
      Role::kFBProj,      Role::kBProj,        Role::kGProj,     Role::kOProj,
      Role::kDenseGate,   Role::kDenseUp,      Role::kDenseDown};
  std::map<uint16_t, std::vector<Role>> roles;
  for (const TrunkTensor& t : trunk_order(tiny())) {
    roles[t.layer].push_back(static_cast<Role>(t.role));
  }
  EXPECT_EQ(roles[0], dense_kda);
  EXPECT_EQ(roles[2], mla);
  EXPECT_EQ(roles[weights::kNoLayer], (std::vector<Role>{Role::kOutputResNorm, Role::kOutputResProj,
                                                         Role::kOutputNorm, Role::kLmHead}));
}

TEST(TrunkOrder, NamesEveryRoleDifferently) {
  std::set<std::string_view> names;
  std::set<uint16_t> roles;
  for (const TrunkTensor& t : trunk_order(tiny())) roles.insert(t.role);
  for (uint16_t role : roles) names.insert(role_name(static_cast<Role>(role)));
  EXPECT_EQ(names.size(), roles.size());
  EXPECT_FALSE(names.contains("unknown"));
}

TEST(TrunkOrder, HasTheReleasedSize) {
  const auto spec = test::shared_dir() / "spec";
  if (!std::filesystem::exists(spec / "config.json")) GTEST_SKIP() << "no released config.json";
  const Config config = load_config(spec);
  std::vector<TrunkTensor> order = trunk_order(config);
  uint64_t layer_bytes = 0, head_bytes = 0;
  for (const TrunkTensor& t : order) {
    const Role role = static_cast<Role>(t.role);
    const bool f32 = (role >= Role::kALog && role <= Role::kONorm) || role == Role::kRouterBias;
    const uint64_t bytes = t.rows * t.cols * (f32 ? 4 : 2);
    if (role == Role::kALog) layer_bytes += 32 * 4;  // padding of the stored tensor
    (t.layer == weights::kNoLayer ? head_bytes : layer_bytes) += bytes;
  }
  EXPECT_EQ(layer_bytes, 108'811'877'376u);
  EXPECT_EQ(head_bytes, 2'348'810'240u + 3 * 14'336);
  const weights::CheckpointRequest request = checkpoint_request(config);
  uint64_t expert_bytes = 0;
  for (uint64_t bytes : request.expert_shape.part_bytes) expert_bytes += bytes;
  EXPECT_EQ(expert_bytes, 17'547'264u);
  EXPECT_EQ(request.expert_layers.size() * request.experts_per_layer, 82'432u);
}

TEST(TensorNames, RecognisesExpertsAsReleased) {
  for (uint32_t layer : {0u, 1u, 10u, 92u}) {
    for (uint32_t expert : {0u, 9u, 100u, 895u}) {
      for (size_t part = 0; part < weights::kExpertParts; ++part) {
        const auto p = static_cast<ExpertPart>(part);
        const auto parsed = parse_expert_name(test::expert_name(layer, expert, p));
        ASSERT_TRUE(parsed);
        EXPECT_EQ(parsed->layer, layer);
        EXPECT_EQ(parsed->expert, expert);
        EXPECT_EQ(parsed->part, p);
      }
    }
  }
}

TEST(TensorNames, RecognisesNoOtherName) {
  const std::string layer = "language_model.model.layers.1.";
  for (const std::string& name :
       {std::string(), layer, layer + "block_sparse_moe.experts.",
        layer + "block_sparse_moe.experts.1", layer + "block_sparse_moe.experts.1.",
        layer + "block_sparse_moe.experts.1.w4.weight_scale",
        layer + "block_sparse_moe.experts.1.w1.weight",
        layer + "block_sparse_moe.experts.01.w1.weight_scale",
        layer + "block_sparse_moe.experts.-1.w1.weight_scale",
        layer + "block_sparse_moe.experts.4294967296.w1.weight_scale",
        layer + "block_sparse_moe.experts.1.w1.weight_scale.",
        layer + "block_sparse_moe.gate.weight",
        layer + "block_sparse_moe.shared_experts.1.w1.weight_scale",
        std::string("model.layers.1.block_sparse_moe.experts.1.w1.weight_scale")}) {
    EXPECT_FALSE(parse_expert_name(name)) << name;
  }
}

}  // namespace
}  // namespace k3::model
