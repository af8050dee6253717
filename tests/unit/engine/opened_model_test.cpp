#include "engine/opened_model.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "support/messages.h"
#include "unit/weights/trunk_model.h"

namespace k3::engine {
namespace {

namespace fs = std::filesystem;
using test::error_of;
using test::mentions;

class OpenModel : public testing::Test {
 protected:
  test::MadeModel made_;
  fs::path model_ = made_.directory();
  fs::path trunk_ = model_ / "trunk.k3";

  std::string refusal(const fs::path& model, const fs::path& trunk) {
    return error_of(ErrorKind::kCheckpoint, [&] { open_model(model, trunk); });
  }

  /// Writes config.json with another value of a text key.
  void change_config(const char* key, const Json& value) {
    Json config = test::tiny_config();
    config["text_config"][key] = value;
    std::ofstream(model_ / "config.json") << config.dump();
  }
};

TEST_F(OpenModel, OpensWhatBelongsTogetherAndKnowsItsSizes) {
  test::TrunkModel(model_).pack(trunk_);
  const OpenedModel opened = open_model(model_, trunk_);
  EXPECT_EQ(opened.config.num_hidden_layers, 7);
  EXPECT_GT(opened.head_chunk_rows(), 0);
  EXPECT_LT(opened.head_chunk_rows(), 300);  // chunks of 4 KiB: the head has several
  EXPECT_EQ(opened.expert_payload().value, 3 * 96 * 64 / 2 + 3 * 96 * 64 / 32);
}

TEST_F(OpenModel, AModelWithoutATrunkSaysHowToMakeIt) {
  const std::string beside = refusal(model_, trunk_);
  EXPECT_TRUE(mentions(beside, trunk_.string() + ": no trunk file there"));
  EXPECT_TRUE(mentions(beside, "`k3 pack " + model_.string() + "`"));
  const std::string elsewhere = (made_.dir.path() / "other.k3").string();
  EXPECT_TRUE(mentions(refusal(model_, elsewhere), " -o " + elsewhere + "`"));
}

TEST_F(OpenModel, AConfigurationOfOtherMathematicsIsRefusedThoughNoShapeDiffers) {
  test::TrunkModel(model_).pack(trunk_);
  for (const char* key : {"routed_scaling_factor", "activation_situ_beta", "rms_norm_eps"}) {
    change_config(key, 0.5);
    const std::string refused = refusal(model_, trunk_);
    EXPECT_TRUE(mentions(refused, trunk_.string()));
    EXPECT_TRUE(mentions(refused, "another configuration than that of ")) << key;
  }
  change_config("max_position_embeddings", 8192);  // a limit only
  EXPECT_NO_THROW(open_model(model_, trunk_));
}

TEST_F(OpenModel, ACheckpointOfTheSameShapesAndOtherWeightsIsRefusedByTheNamesOfItsShards) {
  const test::MadeModel other(2);
  test::TrunkModel(other.directory()).pack(trunk_);
  const std::string refused = refusal(model_, trunk_);
  EXPECT_TRUE(mentions(refused, trunk_.string()));
  EXPECT_TRUE(mentions(refused, "model-00001-of-000008.safetensors"));
}

TEST_F(OpenModel, ATrunkInAnotherOrderThanAStepsIsRefused) {
  test::TrunkModel model(model_);
  const auto is = [](model::Role role) {
    return [role](const weights::TrunkTensor& t) { return t.role == static_cast<uint16_t>(role); };
  };
  const auto down = std::ranges::find_if(model.tensors, is(model::Role::kSharedGate));
  const auto up = std::ranges::find_if(model.tensors, is(model::Role::kSharedUp));
  std::swap(down->role, up->role);
  model.pack(trunk_);
  EXPECT_TRUE(mentions(refusal(model_, trunk_), "in the order of use"));
}

TEST_F(OpenModel, ATrunkWithAnExpertPartOfAnotherSizeIsRefused) {
  const test::TrunkModel model(model_);
  for (size_t part = 0; part < weights::kExpertParts; ++part) {
    weights::PackInput input = model.input();
    input.expert_part_bytes[part] /= 2;  // still inside the shard
    weights::write_trunk(input, trunk_, {});
    EXPECT_TRUE(mentions(refusal(model_, trunk_), "its experts or embedding")) << part;
  }
}

TEST_F(OpenModel, ATrunkWithChunksThatAStepDoesNotTakeAtOnceIsRefused) {
  const auto refused_with = [&](auto&& regroup) {
    test::TrunkModel model(model_);
    regroup(model.tensors);
    model.pack(trunk_);
    return refusal(model_, trunk_);
  };
  const auto matrix = [](std::vector<weights::TrunkTensor>& tensors) {
    return std::ranges::find(tensors, 0u, &weights::TrunkTensor::group);
  };
  const std::string two_matrices = refused_with([&](auto& tensors) {
    const auto first = matrix(tensors);
    first[0].group = first[1].group = 77;
  });
  const std::string with_a_matrix =
      refused_with([&](auto& tensors) { matrix(tensors)->group = tensors.front().group; });
  const std::string split = refused_with([&](auto& tensors) { tensors[2].group = 78; });
  const std::string without_the_first = refused_with([&](auto& tensors) { tensors[0].group = 79; });
  const std::string alone = refused_with([&](auto& tensors) { tensors[0].group = 0; });
  for (const std::string& refused :
       {two_matrices, with_a_matrix, split, without_the_first, alone}) {
    EXPECT_TRUE(mentions(refused, "is neither rows of one matrix nor all small tensors"));
  }
}

}  // namespace
}  // namespace k3::engine
