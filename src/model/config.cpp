#include "model/config.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <span>

#include "base/hash.h"
#include "base/json.h"
#include "io/direct_file.h"
#include "model/attn_res.h"
#include "weights/model_directory.h"

namespace k3::model {
namespace {

namespace fs = std::filesystem;

// Above anything sane, and low enough that no size computed from them (rows x columns x 4 bytes x
// experts x layers) leaves 63 bits.
constexpr uint64_t kDimensionMax = 1u << 20;
constexpr uint64_t kLayersMax = 512;
constexpr uint64_t kExpertsMax = 4096;
constexpr uint64_t kPositionsMax = uint64_t{1} << 40;
constexpr uint64_t kConvKernelMax = 8;
constexpr uint64_t kMxfp4Group = 32;
constexpr Bytes kConfigBytesMax{16u << 20};

std::string show(const Json& value) {
  const std::string text = value.dump(-1, ' ', false, Json::error_handler_t::replace);
  return text.size() <= 80 ? text : text.substr(0, 77) + "...";
}

/// One JSON object of a file; every failure names the file and the key with its path.
class Section {
 public:
  Section(const Json& object, std::string file, std::string prefix)
      : object_(&object), file_(std::move(file)), prefix_(std::move(prefix)) {}

  bool has(const char* key) const { return object_->contains(key); }

  const Json& require(const char* key) const {
    const auto found = object_->find(key);
    if (found == object_->end()) {
      fail(fmt::format("{}{} is missing; nothing stands in for it", prefix_, key));
    }
    return *found;
  }

  Section section(const char* key) const {
    const Json& value = require(key);
    if (!value.is_object()) reject(key, "an object");
    return Section(value, file_, fmt::format("{}{}.", prefix_, key));
  }

  /// A number without fraction from `least` to `most`.
  uint64_t integer(const char* key, uint64_t least, uint64_t most) const {
    const Json& value = require(key);
    if (!value.is_number_unsigned() || value.get<uint64_t>() < least ||
        value.get<uint64_t>() > most) {
      reject(key, fmt::format("an integer from {} to {}", least, most));
    }
    return value.get<uint64_t>();
  }
  uint32_t dimension(const char* key) const {
    return static_cast<uint32_t>(integer(key, 1, kDimensionMax));
  }

  /// A number that is finite as the float that the mathematics uses, and passes `valid`.
  template <typename Valid>
  float number(const char* key, const char* expected, Valid valid) const {
    const Json& value = require(key);
    const float number = value.is_number() ? static_cast<float>(value.get<double>()) : NAN;
    if (!std::isfinite(number) || !valid(number)) reject(key, expected);
    return number;
  }
  float positive(const char* key) const {
    return number(key, "a finite number above 0", [](float x) { return x > 0; });
  }

  /// The one value that is implemented.
  void expect(const char* key, const Json& expected) const {
    if (require(key) != expected) reject(key, show(expected));
  }

  [[noreturn]] void reject(const char* key, std::string_view expected) const {
    fail(fmt::format("{}{} is {}, expected {}", prefix_, key, show(require(key)), expected));
  }
  [[noreturn]] void fail(const std::string& problem) const {
    throw Error(ErrorKind::kCheckpoint, fmt::format("{}: {}", file_, problem));
  }

  const Json& json() const { return *object_; }
  const std::string& prefix() const { return prefix_; }

 private:
  const Json* object_;
  std::string file_;
  std::string prefix_;
};

void read_sizes(const Section& text, Config& c) {
  c.hidden_size = text.dimension("hidden_size");
  c.num_hidden_layers = static_cast<uint32_t>(text.integer("num_hidden_layers", 1, kLayersMax));
  c.vocab_size = text.dimension("vocab_size");
  c.rms_norm_eps = text.positive("rms_norm_eps");
  c.max_position_embeddings = text.integer("max_position_embeddings", 1, kPositionsMax);
  c.attn_res_block_size = text.dimension("attn_res_block_size");
  if (c.attn_res_sources() > kAttnResSourcesMax) {
    text.reject("attn_res_block_size", fmt::format("blocks that give {} sources at most over {} "
                                                   "layers",
                                                   kAttnResSourcesMax, c.num_hidden_layers));
  }
  text.expect("num_nextn_predict_layers", 0);
  text.expect("tie_word_embeddings", false);
}

void read_mla(const Section& text, Config& c) {
  c.mla_heads = text.dimension("num_attention_heads");
  if (text.integer("num_key_value_heads", 1, kDimensionMax) != c.mla_heads) {
    text.reject("num_key_value_heads", fmt::format("{}, as num_attention_heads", c.mla_heads));
  }
  c.q_lora_rank = text.dimension("q_lora_rank");
  c.kv_lora_rank = text.dimension("kv_lora_rank");
  c.qk_nope_head_dim = text.dimension("qk_nope_head_dim");
  c.qk_rope_head_dim = text.dimension("qk_rope_head_dim");
  c.v_head_dim = text.dimension("v_head_dim");
  text.expect("mla_use_nope", true);  // else rotation, with parameters that are not published
  text.expect("mla_use_output_gate", true);  // else there is no g_proj
}

std::vector<uint32_t> read_layers(const Section& kda, const char* key, uint32_t layers) {
  const Json& list = kda.require(key);
  if (!list.is_array()) kda.reject(key, "a list of one-based layer numbers");
  std::vector<uint32_t> numbers;
  for (const Json& item : list) {
    if (!item.is_number_unsigned() || item.get<uint64_t>() < 1 || item.get<uint64_t>() > layers) {
      kda.fail(fmt::format("{}{} has {}, expected layer numbers from 1 to {}", kda.prefix(), key,
                           show(item), layers));
    }
    numbers.push_back(item.get<uint32_t>());
  }
  std::sort(numbers.begin(), numbers.end());
  const auto twice = std::adjacent_find(numbers.begin(), numbers.end());
  if (twice != numbers.end()) {
    kda.fail(fmt::format("{}{} has {} twice, expected each layer once", kda.prefix(), key, *twice));
  }
  return numbers;
}

/// `with_kda_list`: the flat spelling has full_attn_layers alone, which says the same.
void read_layer_kinds(const Section& kda, bool with_kda_list, Config& c) {
  const std::vector<uint32_t> full = read_layers(kda, "full_attn_layers", c.num_hidden_layers);
  if (full.empty()) kda.reject("full_attn_layers", "at least one layer");
  c.is_mla.assign(c.num_hidden_layers, false);
  for (uint32_t number : full) c.is_mla[number - 1] = true;
  if (!with_kda_list) return;
  std::vector<bool> is_kda(c.num_hidden_layers, false);
  for (uint32_t number : read_layers(kda, "kda_layers", c.num_hidden_layers)) {
    is_kda[number - 1] = true;
  }
  for (uint32_t layer = 0; layer < c.num_hidden_layers; ++layer) {
    if (is_kda[layer] == c.is_mla[layer]) {
      kda.fail(
          fmt::format("layer {} is in {} of {}full_attn_layers and kda_layers, expected each "
                      "layer in exactly one",
                      layer + 1, is_kda[layer] ? "both" : "neither", kda.prefix()));
    }
  }
}

/// Key spellings of the linear_attn_config object, and of configurations that have none.
struct KdaKeys {
  const char* heads;
  const char* head_dim;
};

void read_kda(const Section& text, bool nested, Config& c) {
  const bool flat = !nested && !text.has("linear_attn_config") && text.has("kda_num_heads");
  const Section kda = flat ? text : text.section("linear_attn_config");
  const KdaKeys keys =
      flat ? KdaKeys{"kda_num_heads", "kda_head_dim"} : KdaKeys{"num_heads", "head_dim"};
  c.kda_heads = kda.dimension(keys.heads);
  c.kda_head_dim = kda.dimension(keys.head_dim);
  c.conv_kernel = static_cast<uint32_t>(kda.integer("short_conv_kernel_size", 1, kConvKernelMax));
  c.gate_lower_bound =
      kda.number("gate_lower_bound", "a finite number below 0", [](float x) { return x < 0; });
  kda.expect("use_full_rank_gate", true);  // else g_a_proj and g_b_proj in place of g_proj
  read_layer_kinds(kda, !flat || kda.has("kda_layers"), c);
}

void read_moe(const Section& text, Config& c) {
  c.dense_layers =
      static_cast<uint32_t>(text.integer("first_k_dense_replace", 0, c.num_hidden_layers));
  text.expect("moe_layer_freq", 1);
  c.intermediate_size = text.dimension("intermediate_size");
  c.num_experts = static_cast<uint32_t>(text.integer("num_experts", 1, kExpertsMax));
  c.experts_per_token =
      static_cast<uint32_t>(text.integer("num_experts_per_token", 1, c.num_experts));
  c.num_shared_experts = text.dimension("num_shared_experts");
  c.moe_intermediate_size = text.dimension("moe_intermediate_size");
  c.latent_size = text.dimension("routed_expert_hidden_size");
  for (const char* key : {"moe_intermediate_size", "routed_expert_hidden_size"}) {
    if (text.dimension(key) % kMxfp4Group != 0) {
      text.reject(key, fmt::format("a multiple of {} (one MXFP4 scale each)", kMxfp4Group));
    }
  }
  c.routed_scaling_factor =
      text.number("routed_scaling_factor", "a finite number", [](float) { return true; });
  text.expect("latent_moe_use_norm", true);
  text.expect("moe_router_activation_func", "sigmoid");
  text.expect("moe_renormalize", true);
  text.expect("topk_method", "noaux_tc");
  text.expect("num_expert_group", 1);
  text.expect("topk_group", 1);
}

void read_activation(const Section& text, bool nested, Config& c) {
  text.expect("hidden_act", "situ");
  const bool flat = !nested && !text.has("activation_situ_beta") && text.has("situ_beta");
  c.situ_beta = text.positive(flat ? "situ_beta" : "activation_situ_beta");
  c.situ_linear_beta = text.positive(flat ? "situ_linear_beta" : "activation_situ_linear_beta");
}

/// Which tensors are quantised is decided by their presence; here only the format is checked.
void check_quantization(const Section& text) {
  if (!text.has("quantization_config") || text.require("quantization_config").is_null()) return;
  const Section quantization = text.section("quantization_config");
  quantization.expect("format", "mxfp4-pack-quantized");
  const Section groups = quantization.section("config_groups");
  if (groups.json().empty()) quantization.reject("config_groups", "at least one group");
  for (const auto& item : groups.json().items()) {
    const Section group = groups.section(item.key().c_str());
    if (group.has("format")) group.expect("format", "mxfp4-pack-quantized");
    const Section weights = group.section("weights");
    weights.expect("num_bits", 4);
    weights.expect("group_size", kMxfp4Group);
    weights.expect("symmetric", true);
    if (weights.has("type")) weights.expect("type", "float");
  }
}

/// The widths that are products of keys.
void check_widths(const Section& text, const Config& c) {
  const struct {
    const char* what;
    uint64_t width;
  } widths[] = {
      {"the KDA width, num_heads x head_dim,", uint64_t{c.kda_heads} * c.kda_head_dim},
      {"num_attention_heads x (qk_nope_head_dim + qk_rope_head_dim)",
       uint64_t{c.mla_heads} * (uint64_t{c.qk_nope_head_dim} + c.qk_rope_head_dim)},
      {"num_attention_heads x (qk_nope_head_dim + v_head_dim)",
       uint64_t{c.mla_heads} * (uint64_t{c.qk_nope_head_dim} + c.v_head_dim)},
      {"num_shared_experts x moe_intermediate_size",
       uint64_t{c.num_shared_experts} * c.moe_intermediate_size},
  };
  for (const auto& [what, width] : widths) {
    if (width > kDimensionMax) {
      text.fail(fmt::format("{} is {}, expected at most {}", what, width, kDimensionMax));
    }
  }
}

/// One id or a list of ids.
std::vector<uint32_t> read_eos(const Section& section) {
  const Json& value = section.require("eos_token_id");
  std::vector<uint32_t> ids;
  for (const Json& item : value.is_array() ? value : Json::array({value})) {
    if (!item.is_number_unsigned() || item.get<uint64_t>() > UINT32_MAX) {
      section.reject("eos_token_id", "a token id or a list of token ids");
    }
    ids.push_back(item.get<uint32_t>());
  }
  return ids;
}

void add_eos(Config& c, const std::vector<uint32_t>& ids) {
  for (uint32_t id : ids) {
    if (std::find(c.eos_ids.begin(), c.eos_ids.end(), id) == c.eos_ids.end()) {
      c.eos_ids.push_back(id);
    }
  }
}

void add_generation_eos(const fs::path& path, Config& c) {
  if (!io::is_there(path)) return;
  const Json json = parse_json(io::read_text_file(path, kConfigBytesMax), path.string());
  const Section section(json, path.string(), "");
  if (!json.is_object()) section.fail("expected a JSON object");
  if (section.has("eos_token_id") && !section.require("eos_token_id").is_null()) {
    add_eos(c, read_eos(section));
  }
}

}  // namespace

uint32_t Config::mla_layers() const {
  return static_cast<uint32_t>(std::count(is_mla.begin(), is_mla.end(), true));
}

uint32_t Config::attn_res_sources() const {
  return (num_hidden_layers + attn_res_block_size - 1) / attn_res_block_size + 1;
}

uint64_t Config::fingerprint() const {
  std::vector<uint32_t> values = {hidden_size,
                                  num_hidden_layers,
                                  vocab_size,
                                  std::bit_cast<uint32_t>(rms_norm_eps),
                                  mla_heads,
                                  q_lora_rank,
                                  kv_lora_rank,
                                  qk_nope_head_dim,
                                  qk_rope_head_dim,
                                  v_head_dim,
                                  kda_heads,
                                  kda_head_dim,
                                  conv_kernel,
                                  std::bit_cast<uint32_t>(gate_lower_bound),
                                  dense_layers,
                                  intermediate_size,
                                  num_experts,
                                  experts_per_token,
                                  num_shared_experts,
                                  moe_intermediate_size,
                                  latent_size,
                                  std::bit_cast<uint32_t>(routed_scaling_factor),
                                  std::bit_cast<uint32_t>(situ_beta),
                                  std::bit_cast<uint32_t>(situ_linear_beta),
                                  attn_res_block_size};
  values.insert(values.end(), is_mla.begin(), is_mla.end());
  return checksum(std::as_bytes(std::span(values)));
}

Config parse_config(std::string_view json, const std::string& what) {
  const Json root = parse_json(json, what);
  const Section top(root, what, "");
  if (!root.is_object()) top.fail("expected a JSON object");
  // All keys come from text_config where there is one, else from the top level: never mixed, or a
  // decoy at the other level would be taken for the model.
  const bool nested = top.has("text_config");
  const Section text = nested ? top.section("text_config") : top;
  Config config{};
  read_sizes(text, config);
  read_mla(text, config);
  read_kda(text, nested, config);
  read_moe(text, config);
  read_activation(text, nested, config);
  check_quantization(text);
  check_widths(text, config);
  add_eos(config, read_eos(text));
  return config;
}

Config load_config(const fs::path& directory) {
  weights::require_model_directory(directory);
  const fs::path path = directory / "config.json";
  Config config = parse_config(io::read_text_file(path, kConfigBytesMax), path.string());
  add_generation_eos(directory / "generation_config.json", config);
  return config;
}

}  // namespace k3::model
