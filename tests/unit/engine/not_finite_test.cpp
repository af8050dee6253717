// Numbers that are not finite, or become so on the way: the run ends and says where. What hides an
// infinity is the point: a norm makes zeros of it, softmax, sigmoid and SiTU a plausible number.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <string>
#include <vector>

#include "support/messages.h"
#include "support/run_k3.h"
#include "unit/weights/trunk_model.h"

namespace k3::engine {
namespace {

namespace fs = std::filesystem;

const std::string kModel = "language_model.model.";

class NotFinite : public testing::Test {
 protected:
  test::MadeModel made_;
  test::TrunkModel model_{made_.directory()};

  fs::path shard(uint32_t number) const {
    return made_.directory() / model_.index.shards()[number].name;
  }

  /// The same scale byte in row 5 of w1 of every expert of the first layer that has experts.
  void set_scales(uint8_t byte) {
    for (uint32_t expert = 0; expert < model_.config.num_experts; ++expert) {
      const weights::ExpertLocation& at = model_.index.expert(0, expert);
      const auto part = static_cast<size_t>(weights::ExpertPart::kW1Scale);
      const uint64_t row = model_.config.latent_size / 32;
      test::write_bytes(shard(at.shard), at.offset[part] + 5 * row,
                        std::string(row, static_cast<char>(byte)));
    }
  }

  const weights::TensorLocation& location(const std::string& name) const {
    const auto found = std::ranges::find(model_.request.tensors, name);
    return model_.index.tensor(static_cast<size_t>(found - model_.request.tensors.begin()));
  }

  /// Every element of a tensor.
  void fill(const std::string& name, float value) {
    const weights::TensorLocation& at = location(name);
    const auto bits = std::bit_cast<uint32_t>(value);
    const size_t size = weights::dtype_bytes(at.dtype);
    std::string bytes;
    for (uint64_t done = 0; done < at.bytes; done += size) {
      bytes.append(reinterpret_cast<const char*>(&bits) + sizeof(bits) - size, size);
    }
    test::write_bytes(shard(at.shard), at.offset, bytes);
  }

  test::K3Result run() {
    const std::string trunk = (made_.dir.path() / "trunk.k3").string();
    model_.pack(trunk);
    return test::run_k3({.args = {"generate", made_.directory().string(), "--trunk", trunk, "-n",
                                  "1", "--ids", "1,2,3"}});
  }
};

TEST_F(NotFinite, AProductThatOverflowsEndsTheRunNamingLayerAndOperation) {
  set_scales(254);  // 2^127: sums of such weights are infinite, and SiTU would cap them
  const test::K3Result result = run();
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_TRUE(
      test::mentions(result.err, "not a finite number in layer 1, routed expert, w1 and w3"));
}

TEST_F(NotFinite, TheFormatsNaNAmongScalesIsAnErrorOfReadingNamingExpertAndRow) {
  set_scales(255);
  const test::K3Result result = run();
  EXPECT_EQ(result.exit_code, 4);
  EXPECT_TRUE(test::mentions(result.err, "scale byte 255 (not a number) in w1 row 5"));
  EXPECT_TRUE(test::mentions(result.err, "layer 1"));
}

TEST_F(NotFinite, ANaNInTheEmbeddingIsFoundThoughNoTrunkHoldsIt) {
  fill(kModel + "embed_tokens.weight", std::numeric_limits<float>::quiet_NaN());
  const test::K3Result result = run();
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_TRUE(test::mentions(result.err, "not a finite number in layer 0, embedding"));
}

struct Huge {
  std::vector<const char*> tensors;
  float value;
  const char* where;
};

class HugeWeights : public NotFinite, public testing::WithParamInterface<Huge> {};

TEST_P(HugeWeights, WhoseResultsANormOrASaturatingFunctionWouldHideEndTheRun) {
  for (const char* name : GetParam().tensors) fill(kModel + name, GetParam().value);
  const test::K3Result result = run();
  EXPECT_EQ(result.exit_code, 1) << result.err;
  EXPECT_TRUE(test::mentions(result.err, std::string("not a finite number in ") + GetParam().where))
      << result.err;
}

// 1e20: finite, and its square is not. Layer 2 is the first of latent attention.
INSTANTIATE_TEST_SUITE_P(
    Places, HugeWeights,
    testing::Values(
        Huge{{"embed_tokens.weight"}, 1e20f, "layer 0, embedding"},
        Huge{{"layers.0.self_attn.q_proj.weight"}, 1e20f, "layer 0, delta rule"},
        Huge{{"layers.0.self_attn.k_proj.weight"}, 1e20f, "layer 0, delta rule"},
        Huge{{"layers.0.self_attn.v_proj.weight"}, 1e20f, "layer 0, delta rule"},
        Huge{{"layers.0.self_attn.A_log"}, 1e20f, "layer 0, delta rule"},
        Huge{{"layers.0.self_attn.A_log", "layers.0.self_attn.dt_bias"}, 3e38f, "layer 0, delta"},
        Huge{{"layers.0.self_attn.o_proj.weight"}, 1e20f, "layer 0, residual sum"},
        Huge{{"layers.0.mlp_res_proj.weight"}, 3e38f, "layer 0, post_attention_layernorm"},
        Huge{{"layers.1.block_sparse_moe.routed_expert_down_proj.weight"},
             3e38f,
             "layer 1, routed_expert_down_proj"},
        Huge{{"layers.2.self_attn.q_a_proj.weight"}, 1e20f, "layer 2, q_a_layernorm"},
        Huge{{"layers.2.self_attn.kv_a_proj_with_mqa.weight"}, 1e20f, "layer 2, latent cache"},
        Huge{{"layers.2.self_attn.q_b_proj.weight", "layers.2.self_attn.kv_a_layernorm.weight"},
             1e20f,
             "layer 2, attention"},
        Huge{{"output_attn_res_proj.weight"}, 3e38f, "the output, norm"}));

/// Tensors of which any finite value may leave every number finite.
bool may_be_huge(const std::string& name, float value) {
  const auto ends_with = [&](const char* end) { return name.ends_with(end); };
  if (name.find("layers.0.self_attention_res_") != name.npos) return true;  // nothing to mix yet
  if (ends_with("e_score_correction_bias")) return true;  // is added to what is at most 1
  return ends_with("A_log") && value < 0;                 // its exponential is 0: no decay
}

// Of each kind of layer one: 0 is dense, 1 has experts, 2 is of latent attention.
TEST_F(NotFinite, AnyOtherTensorOfHugeWeightsEndsTheRunNamingThePlace) {
  const test::MadeModel whole;
  for (const std::string& name : model_.request.tensors) {
    const size_t layer = name.find("layers.");
    if (layer != name.npos && name[layer + 7] > '2') continue;
    for (const float value : {3e38f, -3e38f}) {
      SCOPED_TRACE(name + (value < 0 ? " < 0" : " > 0"));
      fs::remove(made_.dir.path() / "trunk.k3");
      fill(name, value);
      const test::K3Result result = run();
      EXPECT_EQ(result.exit_code, may_be_huge(name, value) ? 0 : 1) << result.err;
      EXPECT_EQ(test::mentions(result.err, "not a finite number in "), result.exit_code == 1);
      const fs::path damaged = shard(location(name).shard);
      fs::copy_file(whole.directory() / damaged.filename(), damaged,
                    fs::copy_options::overwrite_existing);
    }
  }
}

}  // namespace
}  // namespace k3::engine
