#include "model/config.h"

#include <gtest/gtest.h>

#include <fstream>
#include <functional>
#include <numeric>
#include <vector>

#include "base/json.h"
#include "k3/error.h"
#include "model/attn_res.h"
#include "support/checkpoint_maker.h"
#include "support/messages.h"
#include "support/test_data.h"

namespace k3::model {
namespace {

namespace fs = std::filesystem;
using test::mentions;
using test::tiny_config;

using Edit = std::function<void(Json& text)>;

/// The message of the refusal, "" if the config was accepted.
std::string refusal(const Json& config) {
  try {
    parse_config(config.dump(), "config.json");
    return "";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kCheckpoint);
    return error.what();
  }
}

std::string refusal_of(const Edit& edit) {
  Json config = tiny_config();
  edit(config["text_config"]);
  return refusal(config);
}

/// Sets the value at a JSON pointer of text_config.
Edit set(const std::string& pointer, const Json& value) {
  return [=](Json& text) { text[Json::json_pointer(pointer)] = value; };
}

/// The text keys at the top level, with the KDA keys in their object or spelled flat.
Json flat_config(bool spelled_flat) {
  Json flat = tiny_config()["text_config"];
  if (!spelled_flat) return flat;
  const Json kda = flat["linear_attn_config"];
  flat.erase("linear_attn_config");
  flat["kda_num_heads"] = kda["num_heads"];
  flat["kda_head_dim"] = kda["head_dim"];
  for (const char* key :
       {"short_conv_kernel_size", "gate_lower_bound", "full_attn_layers", "use_full_rank_gate"}) {
    flat[key] = kda[key];
  }
  flat["situ_beta"] = flat["activation_situ_beta"];
  flat["situ_linear_beta"] = flat["activation_situ_linear_beta"];
  flat.erase("activation_situ_beta");
  flat.erase("activation_situ_linear_beta");
  return flat;
}

std::string refusal_to_load(const fs::path& directory) {
  return test::error_of(ErrorKind::kCheckpoint, [&] { load_config(directory); });
}

void write(const fs::path& path, const std::string& text) {
  std::ofstream(path) << text;
}

TEST(Config, ReadsEveryValueOfANestedConfig) {
  Json json = tiny_config();
  json["text_config"]["routed_scaling_factor"] = 1.5;
  const Config c = parse_config(json.dump(), "config.json");
  EXPECT_EQ(c.hidden_size, 72u);
  EXPECT_EQ(c.num_hidden_layers, 7u);
  EXPECT_EQ(c.vocab_size, 300u);
  EXPECT_EQ(c.rms_norm_eps, 1e-5f);
  EXPECT_EQ(c.max_position_embeddings, 4096u);
  EXPECT_EQ(c.mla_heads, 3u);
  EXPECT_EQ(c.q_lora_rank, 20u);
  EXPECT_EQ(c.kv_lora_rank, 28u);
  EXPECT_EQ(c.qk_nope_head_dim, 12u);
  EXPECT_EQ(c.qk_rope_head_dim, 4u);
  EXPECT_EQ(c.v_head_dim, 14u);
  EXPECT_EQ(c.kda_heads, 3u);
  EXPECT_EQ(c.kda_head_dim, 24u);
  EXPECT_EQ(c.conv_kernel, 4u);
  EXPECT_EQ(c.gate_lower_bound, -5.0f);
  EXPECT_EQ(c.dense_layers, 1u);
  EXPECT_EQ(c.intermediate_size, 54u);
  EXPECT_EQ(c.num_experts, 12u);
  EXPECT_EQ(c.experts_per_token, 3u);
  EXPECT_EQ(c.num_shared_experts, 2u);
  EXPECT_EQ(c.moe_intermediate_size, 96u);
  EXPECT_EQ(c.latent_size, 64u);
  EXPECT_EQ(c.routed_scaling_factor, 1.5f);
  EXPECT_EQ(c.situ_beta, 4.0f);
  EXPECT_EQ(c.situ_linear_beta, 25.0f);
  EXPECT_EQ(c.attn_res_block_size, 3u);
  EXPECT_EQ(c.is_mla, (std::vector<bool>{false, false, true, false, false, false, true}));
  EXPECT_EQ(c.eos_ids, (std::vector<uint32_t>{46u}));
}

TEST(Config, DerivesWidthsAndCounts) {
  const Config c = parse_config(tiny_config().dump(), "config.json");
  EXPECT_EQ(c.kda_width(), 72u);
  EXPECT_EQ(c.cache_width(), 32u);
  EXPECT_EQ(c.q_head_dim(), 16u);
  EXPECT_EQ(c.shared_width(), 192u);
  EXPECT_EQ(c.mla_layers(), 2u);
  EXPECT_EQ(c.kda_layers(), 5u);
  EXPECT_EQ(c.moe_layers(), 6u);
  EXPECT_EQ(c.attn_res_sources(), 4u) << "snapshots of layers 0, 3 and 6, and the prefix";
}

TEST(Config, FlatAndNestedConfigsMeanTheSame) {
  const uint64_t nested = parse_config(tiny_config().dump(), "a").fingerprint();
  EXPECT_EQ(parse_config(flat_config(false).dump(), "b").fingerprint(), nested);
  EXPECT_EQ(parse_config(flat_config(true).dump(), "c").fingerprint(), nested);
}

TEST(Config, NeverMixesNestedAndFlatKeys) {
  Json config = tiny_config();
  for (const auto& [key, value] : config["text_config"].items()) {
    config[key] = value.is_number() ? Json(7) : value;
  }
  EXPECT_EQ(parse_config(config.dump(), "a").hidden_size, 72u) << "decoys at the top level";
  config["text_config"].erase("hidden_size");
  EXPECT_TRUE(mentions(refusal(config), "text_config.hidden_size is missing"));
}

TEST(Config, NestedConfigDoesNotTakeFlatSpellings) {
  Json config = tiny_config();
  config["text_config"] = flat_config(true);
  EXPECT_TRUE(mentions(refusal(config), "text_config.linear_attn_config is missing"));
}

TEST(Config, IgnoresUnknownKeys) {
  EXPECT_EQ(refusal_of([](Json& text) {
              text["top_k"] = 50;
              text["new_key"] = {{"a", nullptr}};
              text["linear_attn_config"]["new_key"] = "x";
            }),
            "");
}

TEST(Config, AcceptsAConfigWithoutQuantization) {
  EXPECT_EQ(refusal_of([](Json& text) { text.erase("quantization_config"); }), "");
  EXPECT_EQ(refusal_of(set("/quantization_config", nullptr)), "");
}

TEST(Config, NamesEveryMissingKey) {
  const Json text = tiny_config()["text_config"];
  const std::vector<std::string> unused = {"bos_token_id",     "dtype",
                                           "model_type",       "pad_token_id",
                                           "use_grouped_topk", "quantization_config"};
  for (const auto& item : text.items()) {
    const std::string& key = item.key();
    const bool needed = std::find(unused.begin(), unused.end(), key) == unused.end();
    const std::string message = refusal_of([&](Json& t) { t.erase(key); });
    if (needed) {
      EXPECT_TRUE(mentions(message, "config.json: text_config." + key + " is missing"));
    } else {
      EXPECT_EQ(message, "") << key;
    }
  }
  for (const auto& item : text["linear_attn_config"].items()) {
    const std::string& key = item.key();
    EXPECT_TRUE(mentions(refusal_of([&](Json& t) { t["linear_attn_config"].erase(key); }),
                         "text_config.linear_attn_config." + key + " is missing"));
  }
}

struct Refused {
  const char* pointer;  // in text_config
  Json value;
  const char* found;  // in the message
  const char* expected;
};

class ConfigRefusal : public ::testing::TestWithParam<Refused> {};

TEST_P(ConfigRefusal, NamesKeyFoundAndExpected) {
  const Refused& r = GetParam();
  std::string key = std::string("text_config") + r.pointer;
  std::replace(key.begin(), key.end(), '/', '.');
  const std::string message = refusal_of(set(r.pointer, r.value));
  EXPECT_TRUE(mentions(message, "config.json: "));
  EXPECT_TRUE(mentions(message, key));
  EXPECT_TRUE(mentions(message, r.found));
  EXPECT_TRUE(mentions(message, r.expected));
}

INSTANTIATE_TEST_SUITE_P(
    Layers, ConfigRefusal,
    ::testing::Values(
        Refused{"/linear_attn_config/full_attn_layers", {3, 8}, "has 8", "from 1 to 7"},
        Refused{"/linear_attn_config/full_attn_layers", {0, 3}, "has 0", "from 1 to 7"},
        Refused{"/linear_attn_config/full_attn_layers", {-1, 3}, "has -1", "from 1 to 7"},
        Refused{"/linear_attn_config/full_attn_layers", {3, 3, 7}, "3 twice", "once"},
        Refused{"/linear_attn_config/full_attn_layers", {3}, "layer 7 is in neither", "one"},
        Refused{"/linear_attn_config/full_attn_layers", {3, 4, 7}, "layer 4 is in both", "one"},
        Refused{"/linear_attn_config/full_attn_layers", Json::array(), "is []", "at least one"},
        Refused{"/linear_attn_config/full_attn_layers", 3, "is 3", "a list"},
        Refused{"/linear_attn_config/full_attn_layers", {3, "7"}, "has \"7\"", "from 1 to 7"},
        Refused{"/linear_attn_config/kda_layers", {1, 2, 4, 5, 6, 9}, "has 9", "from 1 to 7"},
        Refused{"/linear_attn_config/kda_layers", {1, 1, 2, 4, 5, 6}, "1 twice", "once"}));

INSTANTIATE_TEST_SUITE_P(
    OtherMathematics, ConfigRefusal,
    ::testing::Values(
        Refused{"/mla_use_nope", false, "is false", "expected true"},
        Refused{"/mla_use_output_gate", false, "is false", "expected true"},
        Refused{"/linear_attn_config/use_full_rank_gate", false, "is false", "expected true"},
        Refused{"/hidden_act", "silu", "is \"silu\"", "expected \"situ\""},
        Refused{"/moe_router_activation_func", "softmax", "is \"softmax\"", "\"sigmoid\""},
        Refused{"/moe_renormalize", false, "is false", "expected true"},
        Refused{"/latent_moe_use_norm", false, "is false", "expected true"},
        Refused{"/latent_moe_use_norm", 1, "is 1", "expected true"},
        Refused{"/topk_method", "greedy", "is \"greedy\"", "\"noaux_tc\""},
        Refused{"/num_expert_group", 2, "is 2", "expected 1"},
        Refused{"/topk_group", 2, "is 2", "expected 1"},
        Refused{"/moe_layer_freq", 2, "is 2", "expected 1"},
        Refused{"/num_nextn_predict_layers", 1, "is 1", "expected 0"},
        Refused{"/tie_word_embeddings", true, "is true", "expected false"},
        Refused{"/num_key_value_heads", 1, "is 1", "expected 3"}));

INSTANTIATE_TEST_SUITE_P(
    Ranges, ConfigRefusal,
    ::testing::Values(
        Refused{"/num_experts_per_token", 0, "is 0", "from 1 to 12"},
        Refused{"/num_experts_per_token", 13, "is 13", "from 1 to 12"},
        Refused{"/first_k_dense_replace", -1, "is -1", "from 0 to 7"},
        Refused{"/first_k_dense_replace", 8, "is 8", "from 0 to 7"},
        Refused{"/attn_res_block_size", 0, "is 0", "from 1"},
        Refused{"/linear_attn_config/short_conv_kernel_size", 0, "is 0", "from 1 to 8"},
        Refused{"/linear_attn_config/short_conv_kernel_size", 9, "is 9", "from 1 to 8"},
        Refused{"/linear_attn_config/num_heads", 0, "is 0", "from 1"},
        Refused{"/linear_attn_config/head_dim", -24, "is -24", "from 1"},
        Refused{"/hidden_size", 0, "is 0", "from 1"},
        Refused{"/hidden_size", -72, "is -72", "from 1"},
        Refused{"/hidden_size", 72.5, "is 72.5", "an integer"},
        Refused{"/hidden_size", "72", "is \"72\"", "an integer"},
        Refused{"/hidden_size", true, "is true", "an integer"},
        Refused{"/hidden_size", nullptr, "is null", "an integer"},
        Refused{"/hidden_size", uint64_t{1} << 62, "is 4611686018427387904", "from 1"},
        Refused{"/num_hidden_layers", 0, "is 0", "from 1"},
        Refused{"/vocab_size", 0, "is 0", "from 1"},
        Refused{"/max_position_embeddings", 0, "is 0", "from 1"},
        Refused{"/num_attention_heads", 0, "is 0", "from 1"},
        Refused{"/q_lora_rank", 0, "is 0", "from 1"}, Refused{"/kv_lora_rank", 0, "is 0", "from 1"},
        Refused{"/qk_nope_head_dim", 0, "is 0", "from 1"},
        Refused{"/qk_rope_head_dim", 0, "is 0", "from 1"},
        Refused{"/v_head_dim", 0, "is 0", "from 1"},
        Refused{"/intermediate_size", 0, "is 0", "from 1"},
        Refused{"/num_experts", 0, "is 0", "from 1"},
        Refused{"/num_shared_experts", 0, "is 0", "from 1"},
        Refused{"/moe_intermediate_size", 80, "is 80", "multiple of 32"},
        Refused{"/routed_expert_hidden_size", 48, "is 48", "multiple of 32"},
        Refused{"/activation_situ_beta", 0, "is 0", "above 0"},
        Refused{"/activation_situ_beta", 1e300, "is 1e+300", "finite"},
        Refused{"/activation_situ_linear_beta", -25.0, "is -25.0", "above 0"},
        Refused{"/activation_situ_linear_beta", "25", "is \"25\"", "finite"},
        Refused{"/rms_norm_eps", 0.0, "is 0.0", "above 0"},
        Refused{"/rms_norm_eps", 1e-60, "is 1e-60", "above 0"},
        Refused{"/routed_scaling_factor", 1e300, "is 1e+300", "finite"},
        Refused{"/linear_attn_config/gate_lower_bound", 0.0, "is 0.0", "below 0"},
        Refused{"/linear_attn_config/gate_lower_bound", -1e300, "is -1e+300", "finite"},
        Refused{"/eos_token_id", "46", "is \"46\"", "token id"},
        Refused{"/eos_token_id", {46, -1}, "is [46,-1]", "token id"}));

INSTANTIATE_TEST_SUITE_P(
    Quantization, ConfigRefusal,
    ::testing::Values(
        Refused{"/quantization_config/format", "pack-quantized", "pack-quantized",
                "mxfp4-pack-quantized"},
        Refused{"/quantization_config/config_groups/group_0/format", "nvfp4", "nvfp4",
                "mxfp4-pack-quantized"},
        Refused{"/quantization_config/config_groups/group_0/weights/num_bits", 8, "is 8", "4"},
        Refused{"/quantization_config/config_groups/group_0/weights/group_size", 16, "is 16", "32"},
        Refused{"/quantization_config/config_groups/group_0/weights/symmetric", false, "is false",
                "true"},
        Refused{"/quantization_config/config_groups/group_0/weights/type", "int", "is \"int\"",
                "float"},
        Refused{"/quantization_config/config_groups", Json::object(), "is {}", "at least one"}));

TEST(Config, RefusesWidthsWhoseProductIsTooLarge) {
  EXPECT_TRUE(mentions(refusal_of([](Json& text) {
                         text["linear_attn_config"]["num_heads"] = 1 << 20;
                         text["linear_attn_config"]["head_dim"] = 1 << 20;
                       }),
                       "num_heads x head_dim, is 1099511627776"));
  EXPECT_TRUE(mentions(refusal_of([](Json& text) {
                         text["num_attention_heads"] = text["num_key_value_heads"] = 1 << 20;
                       }),
                       "num_attention_heads x (qk_nope_head_dim + qk_rope_head_dim) is 16777216"));
}

TEST(Config, RefusesMoreAttentionResidualSourcesThanAStepTakes) {
  const auto layers = [](uint32_t count) {
    return [count](Json& text) {
      text["attn_res_block_size"] = 1;
      text["num_hidden_layers"] = count;
      std::vector<uint32_t> kda(count - 1);
      std::iota(kda.begin(), kda.end(), 1u);
      text["linear_attn_config"]["kda_layers"] = kda;
      text["linear_attn_config"]["full_attn_layers"] = {count};
    };
  };
  EXPECT_EQ(refusal_of(layers(kAttnResSourcesMax - 1)), "");
  EXPECT_TRUE(mentions(refusal_of(layers(kAttnResSourcesMax)),
                       "attn_res_block_size is 1, expected blocks that give 256 sources at most"));
}

TEST(Config, RefusesWhatIsNotAJsonObject) {
  for (const char* text : {"", "{", "[]", "3", "{} x"}) {
    EXPECT_THROW(parse_config(text, "config.json"), Error) << text;
  }
}

TEST(Config, ReadsEosListsFromBothFilesOnce) {
  test::TempDir dir;
  Json config = tiny_config();
  config["text_config"]["eos_token_id"] = {46, 9};
  write(dir.path() / "config.json", config.dump());
  EXPECT_EQ(load_config(dir.path()).eos_ids, (std::vector<uint32_t>{46u, 9u}));
  write(dir.path() / "generation_config.json", R"({"eos_token_id":[9,11],"max_length":5})");
  EXPECT_EQ(load_config(dir.path()).eos_ids, (std::vector<uint32_t>{46u, 9u, 11u}));
  write(dir.path() / "generation_config.json", R"({"eos_token_id":12})");
  EXPECT_EQ(load_config(dir.path()).eos_ids, (std::vector<uint32_t>{46u, 9u, 12u}));
  write(dir.path() / "generation_config.json", R"({"eos_token_id":null})");
  EXPECT_EQ(load_config(dir.path()).eos_ids, (std::vector<uint32_t>{46u, 9u}));
}

TEST(Config, RefusesADamagedGenerationConfigByName) {
  test::TempDir dir;
  write(dir.path() / "config.json", tiny_config().dump());
  for (const char* text : {"{", "[]", R"({"eos_token_id":"x"})"}) {
    write(dir.path() / "generation_config.json", text);
    EXPECT_TRUE(mentions(refusal_to_load(dir.path()), "generation_config.json")) << text;
  }
}

TEST(Config, NamesAConfigThatIsAbsent) {
  test::TempDir dir;
  EXPECT_TRUE(mentions(refusal_to_load(dir.path()), "config.json"));
}

TEST(Config, SaysWhatAFileGivenAsModelIs) {
  test::TempDir dir;
  write(dir.path() / "model.gguf", "GGUF\3\0\0\0 and more");
  EXPECT_TRUE(mentions(refusal_to_load(dir.path() / "model.gguf"), "a GGUF file"));
}

TEST(Config, FingerprintFollowsShapesAndMathematicsAlone) {
  const uint64_t before = parse_config(tiny_config().dump(), "a").fingerprint();
  const auto after = [](const std::string& pointer, const Json& value) {
    Json config = tiny_config();
    set(pointer, value)(config["text_config"]);
    return parse_config(config.dump(), "a").fingerprint();
  };
  EXPECT_EQ(after("/max_position_embeddings", 77), before);
  EXPECT_EQ(after("/eos_token_id", 77), before);
  const std::vector<std::pair<std::string, Json>> changes = {
      {"/hidden_size", 80},
      {"/vocab_size", 301},
      {"/rms_norm_eps", 1e-6},
      {"/q_lora_rank", 24},
      {"/kv_lora_rank", 24},
      {"/qk_nope_head_dim", 16},
      {"/qk_rope_head_dim", 8},
      {"/v_head_dim", 16},
      {"/linear_attn_config/num_heads", 2},
      {"/linear_attn_config/head_dim", 16},
      {"/linear_attn_config/short_conv_kernel_size", 3},
      {"/linear_attn_config/gate_lower_bound", -4},
      {"/first_k_dense_replace", 2},
      {"/intermediate_size", 64},
      {"/num_experts", 13},
      {"/num_experts_per_token", 4},
      {"/num_shared_experts", 1},
      {"/moe_intermediate_size", 64},
      {"/routed_expert_hidden_size", 96},
      {"/routed_scaling_factor", 2.0},
      {"/activation_situ_beta", 5},
      {"/activation_situ_linear_beta", 24},
      {"/attn_res_block_size", 2},
      {"/linear_attn_config",
       {{"full_attn_layers", {2, 7}},
        {"kda_layers", {1, 3, 4, 5, 6}},
        {"gate_lower_bound", -5.0},
        {"head_dim", 24},
        {"num_heads", 3},
        {"short_conv_kernel_size", 4},
        {"use_full_rank_gate", true}}}};
  for (const auto& [pointer, value] : changes) EXPECT_NE(after(pointer, value), before) << pointer;
}

TEST(Config, ReadsTheReleasedConfig) {
  const fs::path spec = test::shared_dir() / "spec";
  if (!fs::exists(spec / "config.json")) GTEST_SKIP() << "no released config.json at " << spec;
  const Config c = load_config(spec);
  EXPECT_EQ(c.hidden_size, 7168u);
  EXPECT_EQ(c.num_hidden_layers, 93u);
  EXPECT_EQ(c.mla_layers(), 24u);
  EXPECT_EQ(c.moe_layers(), 92u);
  EXPECT_EQ(c.attn_res_sources(), 9u);
  EXPECT_EQ(c.kda_width(), 12288u);
  EXPECT_EQ(c.shared_width(), 6144u);
  EXPECT_EQ(c.eos_ids, (std::vector<uint32_t>{163586u}));
}

}  // namespace
}  // namespace k3::model
