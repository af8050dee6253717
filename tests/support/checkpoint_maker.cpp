#include "support/checkpoint_maker.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <fstream>
#include <numeric>
#include <tuple>

namespace k3::test {
namespace {

namespace fs = std::filesystem;

const std::string kModel = "language_model.model.";

/// How the values of a tensor are drawn.
enum class Kind { kNormal, kGain, kALog, kNibbles, kScale, kZero };

struct Recipe {
  std::string name;
  TensorForm form;
  Kind kind = Kind::kNormal;
  double deviation = 1;  // kNormal; of the matrix's values for kScale; live entries for kALog
  double mean = 0;
};

struct Shard {
  std::string name;
  std::vector<Recipe> tensors;
};

// ---- The tensors. Gains follow what makes mistakes visible: SiTU caps are reached, decays differ
// by head and channel, the router's bias changes the choice, no norm or residual gain is trivial.

class Tensors {
 public:
  explicit Tensors(const Json& text) : text_(text), linear_(text.at("linear_attn_config")) {}

  std::vector<Recipe> layer(uint64_t number) {
    prefix_ = fmt::format("{}layers.{}.", kModel, number);
    for (const char* norm : {"input_layernorm", "post_attention_layernorm",
                             "self_attention_res_norm", "mlp_res_norm"}) {
      gain(fmt::format("{}.weight", norm), hidden(), "BF16");
    }
    normal("self_attention_res_proj.weight", {1, hidden()}, 0.15);
    normal("mlp_res_proj.weight", {1, hidden()}, 0.15);
    const std::vector<uint64_t> full = linear_.at("full_attn_layers");
    const bool mla = std::find(full.begin(), full.end(), number + 1) != full.end();
    mla ? add_mla() : add_kda();
    number < get("first_k_dense_replace") ? add_glu("mlp.", get("intermediate_size"), 3)
                                          : add_moe();
    return std::move(out_);
  }

  std::vector<Recipe> output() {
    prefix_ = kModel;
    normal("embed_tokens.weight", {get("vocab_size"), hidden()}, 1);
    gain("norm.weight", hidden(), "BF16");
    gain("output_attn_res_norm.weight", hidden(), "BF16");
    normal("output_attn_res_proj.weight", {1, hidden()}, 0.15);
    prefix_ = "language_model.";
    matrix("lm_head.weight", get("vocab_size"), hidden(), 2);
    return std::move(out_);
  }

 private:
  uint64_t get(const char* key) const { return text_.at(key); }
  uint64_t hidden() const { return get("hidden_size"); }

  void add(Recipe recipe) {
    recipe.name = prefix_ + recipe.name;
    out_.push_back(std::move(recipe));
  }
  void matrix(const std::string& name, uint64_t rows, uint64_t cols, double factor = 1) {
    normal(name, {rows, cols}, factor / std::sqrt(static_cast<double>(cols)));
  }
  void normal(const std::string& name, std::vector<uint64_t> shape, double deviation) {
    add({.name = name, .form = {"BF16", std::move(shape)}, .deviation = deviation});
  }
  void normal_f32(const std::string& name, std::vector<uint64_t> shape, double deviation,
                  double mean = 0) {
    add({.name = name, .form = {"F32", std::move(shape)}, .deviation = deviation, .mean = mean});
  }
  void gain(const std::string& name, uint64_t size, const char* dtype) {
    add({.name = name, .form = {dtype, {size}}, .kind = Kind::kGain});
  }

  void add_kda() {
    const uint64_t heads = linear_.at("num_heads"), dim = linear_.at("head_dim");
    const uint64_t width = heads * dim, taps = linear_.at("short_conv_kernel_size");
    for (char x : {'q', 'k', 'v'}) {
      normal_f32(fmt::format("self_attn.{}_conv1d.weight", x), {width, 1, taps}, 0.6);
    }
    for (char x : {'q', 'k', 'v', 'g'}) {
      matrix(fmt::format("self_attn.{}_proj.weight", x), width, hidden(), 1.5);
    }
    matrix("self_attn.o_proj.weight", hidden(), width);
    matrix("self_attn.f_a_proj.weight", dim, hidden());
    matrix("self_attn.f_b_proj.weight", width, dim);
    matrix("self_attn.b_proj.weight", heads, hidden(), 1.5);
    add({.name = "self_attn.A_log",
         .form = {"F32", {std::max(heads, dim)}},
         .kind = Kind::kALog,
         .deviation = static_cast<double>(heads)});
    normal_f32("self_attn.dt_bias", {width}, 1.5, -2);
    gain("self_attn.o_norm.weight", dim, "F32");
  }

  void add_mla() {
    const uint64_t heads = get("num_attention_heads"), value = get("v_head_dim");
    const uint64_t nope = get("qk_nope_head_dim"), rope = get("qk_rope_head_dim");
    const uint64_t query_rank = get("q_lora_rank"), rank = get("kv_lora_rank");
    matrix("self_attn.q_a_proj.weight", query_rank, hidden());
    gain("self_attn.q_a_layernorm.weight", query_rank, "BF16");
    matrix("self_attn.q_b_proj.weight", heads * (nope + rope), query_rank, 2);
    matrix("self_attn.kv_a_proj_with_mqa.weight", rank + rope, hidden());
    gain("self_attn.kv_a_layernorm.weight", rank, "BF16");
    matrix("self_attn.kv_b_proj.weight", heads * (nope + value), rank);
    matrix("self_attn.g_proj.weight", heads * value, hidden(), 2);
    matrix("self_attn.o_proj.weight", hidden(), heads * value);
  }

  void add_glu(const std::string& part, uint64_t inner, double factor) {
    matrix(part + "gate_proj.weight", inner, hidden(), factor);
    matrix(part + "up_proj.weight", inner, hidden(), 4 * factor);
    matrix(part + "down_proj.weight", hidden(), inner, 0.3);
  }

  void add_moe() {
    const uint64_t latent = get("routed_expert_hidden_size"), inner = get("moe_intermediate_size");
    const uint64_t experts = get("num_experts");
    const std::string moe = "block_sparse_moe.";
    matrix(moe + "gate.weight", experts, hidden());
    normal_f32(moe + "gate.e_score_correction_bias", {experts}, 0.15);
    matrix(moe + "routed_expert_down_proj.weight", latent, hidden());
    gain(moe + "routed_expert_norm.weight", latent, "BF16");
    matrix(moe + "routed_expert_up_proj.weight", hidden(), latent);
    add_glu(moe + "shared_experts.", inner * get("num_shared_experts"), 2);
    for (uint64_t e = 0; e < experts; ++e) {
      const std::string expert = fmt::format("{}experts.{}.", moe, e);
      add_mxfp4(expert + "w1", inner, latent, 3);
      add_mxfp4(expert + "w2", latent, inner, 1);
      add_mxfp4(expert + "w3", inner, latent, 12);
    }
  }

  void add_mxfp4(const std::string& name, uint64_t rows, uint64_t cols, double factor) {
    add({.name = name + ".weight_packed",
         .form = {"U8", {rows, cols / 2}},
         .kind = Kind::kNibbles});
    add({.name = name + ".weight_scale",
         .form = {"U8", {rows, cols / 32}},
         .kind = Kind::kScale,
         .deviation = factor / std::sqrt(static_cast<double>(cols))});
  }

  const Json& text_;
  const Json& linear_;
  std::string prefix_;
  std::vector<Recipe> out_;
};

// ---- The order.

/// The key by which a tensor is sorted: expert matrices may be asked for in another order.
std::string sort_name(const CheckpointSpec& spec, std::string name) {
  if (!spec.experts_w1_w3_w2 || name.find(".experts.") == std::string::npos) return name;
  const size_t digit = name.rfind(".weight_") - 1;
  if (name[digit] == '2') {
    name[digit] = '3';
  } else if (name[digit] == '3') {
    name[digit] = '2';
  }
  return name;
}

int dtype_rank(const std::string& dtype) {
  return dtype == "F32" ? 0 : dtype == "BF16" ? 1 : dtype == "U8" ? 2 : 3;
}

void sort_as_released(const CheckpointSpec& spec, std::vector<Recipe>& tensors) {
  std::sort(tensors.begin(), tensors.end(), [&](const Recipe& a, const Recipe& b) {
    return std::make_tuple(dtype_rank(a.form.dtype), sort_name(spec, a.name)) <
           std::make_tuple(dtype_rank(b.form.dtype), sort_name(spec, b.name));
  });
}

std::vector<Shard> name_shards(const CheckpointSpec& spec, size_t count) {
  std::vector<Shard> shards(count);
  for (size_t i = 0; i < count; ++i) {
    shards[i].name = fmt::format("model-{:05}-of-{:06}.safetensors", i + 1, count);
  }
  if (spec.single_file) shards.at(0).name = "model.safetensors";
  return shards;
}

std::vector<Shard> distribute(const CheckpointSpec& spec) {
  const Json& text = spec.config.at("text_config");
  const size_t layers = text.at("num_hidden_layers");
  const size_t count = spec.single_file ? 1 : spec.shards == 0 ? layers + 1 : spec.shards;
  std::vector<Shard> shards = name_shards(spec, count);
  const size_t body = std::max<size_t>(1, count - 1);
  Tensors tensors(text);
  for (size_t layer = 0; layer < layers; ++layer) {
    const std::vector<Recipe> some = tensors.layer(layer);
    std::vector<Recipe>& into = shards[layer * body / layers].tensors;
    into.insert(into.end(), some.begin(), some.end());
  }
  const std::vector<Recipe> output = tensors.output();
  shards.back().tensors.insert(shards.back().tensors.end(), output.begin(), output.end());
  return shards;
}

/// Takes a tensor out of its shard.
Recipe take_tensor(std::vector<Shard>& shards, const std::string& name) {
  for (Shard& shard : shards) {
    const auto found = std::find_if(shard.tensors.begin(), shard.tensors.end(),
                                    [&](const Recipe& t) { return t.name == name; });
    if (found == shard.tensors.end()) continue;
    Recipe taken = std::move(*found);
    shard.tensors.erase(found);
    return taken;
  }
  throw std::runtime_error("no tensor " + name);
}

void move_tensors(const CheckpointSpec& spec, std::vector<Shard>& shards) {
  for (const auto& item : spec.move) {
    const auto target = std::find_if(shards.begin(), shards.end(),
                                     [&](const Shard& s) { return s.name == item.second; });
    Recipe taken = take_tensor(shards, item.first);
    target->tensors.push_back(std::move(taken));
  }
}

std::vector<Shard> plan_shards(const CheckpointSpec& spec) {
  std::vector<Shard> shards = distribute(spec);
  for (const auto& [name, form] : spec.extra) {
    shards.back().tensors.push_back({.name = name, .form = form});
  }
  move_tensors(spec, shards);
  for (Shard& shard : shards) {
    std::erase_if(shard.tensors, [&](const Recipe& t) { return spec.drop.contains(t.name); });
    for (Recipe& tensor : shard.tensors) {
      const auto form = spec.reshape.find(tensor.name);
      if (form != spec.reshape.end()) tensor.form = form->second;
    }
    sort_as_released(spec, shard.tensors);
  }
  return shards;
}

// ---- The values: a pure function of seed and name.

class Random {
 public:
  Random(uint64_t seed, const std::string& name) : state_(seed) {
    for (unsigned char c : name) state_ = (state_ ^ c) * 0x100000001b3u;
  }
  uint64_t next() {  // splitmix64
    uint64_t z = (state_ += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  double uniform() { return static_cast<double>(next() >> 11) * 0x1p-53; }
  /// Mean 0, deviation 1, within 3.5: the sum of four uniform numbers.
  double normal() { return (uniform() + uniform() + uniform() + uniform() - 2) * std::sqrt(3.0); }

 private:
  uint64_t state_;
};

uint64_t element_count(const TensorForm& form) {
  return std::accumulate(form.shape.begin(), form.shape.end(), uint64_t{1}, std::multiplies<>());
}

uint64_t element_bytes(const std::string& dtype) {
  const std::map<std::string, uint64_t> sizes = {{"F32", 4}, {"BF16", 2}, {"U8", 1}, {"F16", 2},
                                                 {"I64", 8}, {"F64", 8},  {"I32", 4}};
  return sizes.at(dtype);
}

void append_value(std::string& out, const std::string& dtype, double value) {
  uint32_t bits = std::bit_cast<uint32_t>(static_cast<float>(value));
  size_t size = 4;
  if (dtype == "BF16") {  // round to nearest even
    bits = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
    size = 2;
  }
  for (size_t i = 0; i < size; ++i) out.push_back(static_cast<char>(bits >> (8 * i)));
}

double draw(const Recipe& tensor, uint64_t element, Random& random) {
  switch (tensor.kind) {
    case Kind::kGain:
      return 0.5 + random.uniform();
    case Kind::kALog: {  // -0.7 to 1.4 over the heads; what follows is padding
      const double heads = tensor.deviation, head = static_cast<double>(element);
      return head < heads ? -0.7 + 2.1 * head / std::max(heads - 1, 1.0) : 0;
    }
    default:
      return tensor.mean + tensor.deviation * random.normal();
  }
}

uint8_t draw_byte(const Recipe& tensor, Random& random) {
  if (tensor.kind != Kind::kScale) return static_cast<uint8_t>(random.next() >> 56);
  // Uniform E2M1 codes have a root mean square of 2.926.
  const int middle = 127 + static_cast<int>(std::lround(std::log2(tensor.deviation / 2.926)));
  const uint64_t die = random.next() >> 62;
  return static_cast<uint8_t>(middle + (die == 0 ? -1 : die == 1 ? 1 : 0));
}

std::string draw_bytes(const Recipe& tensor, uint64_t seed) {
  const uint64_t count = element_count(tensor.form);
  const std::string& dtype = tensor.form.dtype;
  if (dtype_rank(dtype) > 2) return std::string(count * element_bytes(dtype), '\0');
  Random random(seed, tensor.name);
  std::string out;
  out.reserve(count * element_bytes(dtype));
  for (uint64_t i = 0; i < count; ++i) {
    if (dtype == "U8") {
      out.push_back(static_cast<char>(draw_byte(tensor, random)));
    } else {
      append_value(out, dtype, draw(tensor, i, random));
    }
  }
  return out;
}

// ---- The files.

void write_file(const fs::path& path, const std::string& bytes) {
  std::ofstream file(path, std::ios::binary);
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  file.close();
  if (!file) throw std::runtime_error("cannot write " + path.string());
}

std::string header_of(const std::vector<Recipe>& tensors) {
  std::string header = "{";
  uint64_t offset = 0;
  for (const Recipe& t : tensors) {
    const uint64_t end = offset + element_count(t.form) * element_bytes(t.form.dtype);
    header += fmt::format(R"({}"{}":{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})",
                          offset == 0 && header.size() == 1 ? "" : ",", t.name, t.form.dtype,
                          fmt::join(t.form.shape, ","), offset, end);
    offset = end;
  }
  header += "}";
  header.append((8 - header.size() % 8) % 8, ' ');
  return header;
}

void write_index(const fs::path& directory, const std::vector<Shard>& shards) {
  OrderedJson map = OrderedJson::object();
  uint64_t total = 0;
  for (const Shard& shard : shards) {
    for (const Recipe& t : shard.tensors) {
      map.emplace(t.name, shard.name);
      total += element_count(t.form) * element_bytes(t.form.dtype);
    }
  }
  OrderedJson index = {{"metadata", {{"total_size", total}}}, {"weight_map", std::move(map)}};
  write_file(directory / "model.safetensors.index.json", index.dump(2));
}

}  // namespace

Json tiny_config() {
  Json text = {{"activation_situ_beta", 4.0},
               {"activation_situ_linear_beta", 25.0},
               {"attn_res_block_size", 3},
               {"bos_token_id", 44},
               {"dtype", "bfloat16"},
               {"eos_token_id", 46},
               {"first_k_dense_replace", 1},
               {"hidden_act", "situ"},
               {"hidden_size", 72},
               {"intermediate_size", 54},
               {"kv_lora_rank", 28},
               {"latent_moe_use_norm", true},
               {"max_position_embeddings", 4096},
               {"mla_use_nope", true},
               {"mla_use_output_gate", true},
               {"model_type", "kimi_linear"},
               {"moe_intermediate_size", 96},
               {"moe_layer_freq", 1},
               {"moe_renormalize", true},
               {"moe_router_activation_func", "sigmoid"},
               {"num_attention_heads", 3},
               {"num_expert_group", 1},
               {"num_experts", 12},
               {"num_experts_per_token", 3},
               {"num_hidden_layers", 7},
               {"num_key_value_heads", 3},
               {"num_nextn_predict_layers", 0},
               {"num_shared_experts", 2},
               {"pad_token_id", 299},
               {"q_lora_rank", 20},
               {"qk_nope_head_dim", 12},
               {"qk_rope_head_dim", 4},
               {"rms_norm_eps", 1e-5},
               {"routed_expert_hidden_size", 64},
               {"routed_scaling_factor", 1.0},
               {"tie_word_embeddings", false},
               {"topk_group", 1},
               {"topk_method", "noaux_tc"},
               {"use_grouped_topk", true},
               {"v_head_dim", 14},
               {"vocab_size", 300}};
  text["linear_attn_config"] = {
      {"full_attn_layers", {3, 7}},    {"gate_lower_bound", -5.0}, {"head_dim", 24},
      {"kda_layers", {1, 2, 4, 5, 6}}, {"num_heads", 3},           {"short_conv_kernel_size", 4},
      {"use_full_rank_gate", true}};
  const Json weights = {
      {"group_size", 32}, {"num_bits", 4}, {"symmetric", true}, {"type", "float"}};
  text["quantization_config"] = {
      {"config_groups", {{"group_0", {{"format", "mxfp4-pack-quantized"}, {"weights", weights}}}}},
      {"format", "mxfp4-pack-quantized"},
      {"quant_method", "compressed-tensors"}};
  return {{"architectures", {"KimiK3ForConditionalGeneration"}},
          {"bos_token_id", 44},
          {"dtype", "bfloat16"},
          {"eos_token_id", 46},
          {"model_type", "kimi_k3"},
          {"pad_token_id", 299},
          {"text_config", std::move(text)},
          {"tie_word_embeddings", false}};
}

Json three_layer_config() {
  Json config = tiny_config();
  Json& text = config["text_config"];
  text["num_hidden_layers"] = 3;
  text["num_experts"] = text["num_experts_per_token"] = 1;
  text["linear_attn_config"]["full_attn_layers"] = {3};
  text["linear_attn_config"]["kda_layers"] = {1, 2};
  return config;
}

void make_checkpoint(const fs::path& directory, const CheckpointSpec& spec) {
  fs::create_directories(directory);
  write_file(directory / "config.json", spec.config.dump(2));
  const std::vector<Shard> shards = plan_shards(spec);
  for (const Shard& shard : shards) {
    std::string data;
    for (const Recipe& tensor : shard.tensors) data += draw_bytes(tensor, spec.seed);
    const auto raw = spec.raw_header.find(shard.name);
    write_safetensors(directory / shard.name,
                      raw == spec.raw_header.end() ? header_of(shard.tensors) : raw->second, data);
  }
  if (!spec.single_file) write_index(directory, shards);
}

std::vector<MadeTensor> list_tensors(const CheckpointSpec& spec) {
  std::vector<MadeTensor> out;
  for (const Shard& shard : plan_shards(spec)) {
    for (const Recipe& t : shard.tensors) out.push_back({t.name, t.form, shard.name});
  }
  return out;
}

void write_safetensors(const fs::path& path, const std::string& header, const std::string& data) {
  write_safetensors(path, header.size(), header, data);
}

void write_safetensors(const fs::path& path, uint64_t length, const std::string& header,
                       const std::string& data) {
  std::string bytes;
  for (int i = 0; i < 8; ++i) bytes.push_back(static_cast<char>(length >> (8 * i)));
  write_file(path, bytes + header + data);
}

void rename_shards(const std::filesystem::path& directory, const std::string& extension) {
  const std::filesystem::path path = directory / "model.safetensors.index.json";
  std::ifstream in(path);
  Json index = Json::parse(in);
  for (Json& shard : index.at("weight_map")) {
    const std::filesystem::path old = directory / shard.get<std::string>();
    const std::filesystem::path renamed = std::filesystem::path(old).replace_extension(extension);
    if (std::filesystem::exists(old)) std::filesystem::rename(old, renamed);
    shard = renamed.filename().string();
  }
  std::ofstream(path) << index;
}

}  // namespace k3::test
