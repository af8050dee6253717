// Files of a checkpoint that are missing, damaged or something else, as the commands meet them.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <map>
#include <optional>
#include <set>

#include "fault/command_run.h"
#include "support/messages.h"

namespace k3::test {
namespace {

namespace fs = std::filesystem;

struct Damage {
  const char* name;
  void (*apply)(const fs::path&);
};
const Damage kDamages[] = {
    {"missing", [](const fs::path& file) { fs::remove(file); }},
    {"dangling link",
     [](const fs::path& file) {
       fs::remove(file);
       fs::create_symlink("nowhere", file);
     }},
    {"directory",
     [](const fs::path& file) {
       fs::remove(file);
       fs::create_directory(file);
     }},
    {"empty", [](const fs::path& file) { fs::resize_file(file, 0); }},
    {"cut", [](const fs::path& file) { fs::resize_file(file, fs::file_size(file) / 2); }},
    {"extended", [](const fs::path& file) { std::ofstream(file, std::ios::app) << "}"; }},
    {"wrong magic",
     [](const fs::path& file) {
       std::fstream(file, std::ios::in | std::ios::out | std::ios::binary) << "NOTMAGIC";
     }},
};

/// Whether a command has a use for a file of the model: with `--trunk` the index is in the trunk
/// file, and only who speaks or counts memory loads a tokenizer.
bool uses(const std::string& command, const std::string& file) {
  const bool index = file == "model.safetensors.index.json";
  const bool tokenizer = file.starts_with("tok") || file.starts_with("tik");
  if (index) return command == "verify" || command == "doctor" || command == "pack";
  return !tokenizer || (command != "pack" && command != "score");
}

/// A model may be without these.
bool may_be_missing(const std::string& file) {
  return file == "generation_config.json" || file == "tiktoken.model";
}

TEST_F(ModelCopy, EveryDamageOfEveryFileIsExitThreeNamingTheFileWhereverItIsOfUse) {
  const fs::path out = dir_.path() / "t.k3";
  const std::string m = model_.string(), t = fault_trunk(false).string();
  const std::vector<std::vector<std::string>> commands = {
      {"verify", m},
      {"doctor", m, "--trunk", t},
      {"pack", m, "-o", out.string()},
      {"generate", m, "--trunk", t, "--ids", "1,2", "-n", "1", "-q"},
      {"plan", m, "--trunk", t, "--disk-gbps", "1"},
      {"score", m, "--trunk", t, "--ids", "1,2", "-q"}};
  for (const std::string name :
       {"config.json", "generation_config.json", "model.safetensors.index.json",
        "model-00001-of-000014.safetensors", "model-00014-of-000014.safetensors", "tiktoken.model",
        "tokenizer_config.json"}) {
    for (const Damage& damage : kDamages) {
      restore();
      std::ofstream(model_ / "generation_config.json") << R"({"eos_token_id": 1026})";
      const std::string size = std::to_string(fs::file_size(model_ / name));
      damage.apply(model_ / name);
      const bool harmless = std::string(damage.name) == "missing" && may_be_missing(name);
      for (const std::vector<std::string>& args : commands) {
        SCOPED_TRACE(name + ": " + damage.name + ": " + args[0]);
        const K3Result result = run_k3({.args = args});
        fs::remove(out);
        if (harmless || !uses(args[0], name)) {
          EXPECT_EQ(result.exit_code, 0) << result.err;
          continue;
        }
        expect_one_line(result, 3);
        EXPECT_TRUE(mentions(result.err, name));
        const std::string kind = damage.name;
        if (!name.ends_with(".safetensors") || (kind != "cut" && kind != "extended")) continue;
        EXPECT_TRUE(mentions(result.err, size));
        EXPECT_TRUE(mentions(result.err, std::to_string(fs::file_size(model_ / name)) + " bytes"));
      }
    }
  }
}

/// Keys that mean nothing to the mathematics, with all that is in them.
const std::set<std::string> kUnusedKeys = {
    "/architectures",
    "/auto_map",
    "/bos_token_id",
    "/dtype",
    "/eos_token_id",
    "/model_type",
    "/pad_token_id",
    "/tie_word_embeddings",
    "/text_config/architectures",
    "/text_config/auto_map",
    "/text_config/bos_token_id",
    "/text_config/dtype",
    "/text_config/initializer_range",
    "/text_config/model_type",
    "/text_config/pad_token_id",
    "/text_config/use_cache",
    "/text_config/use_grouped_topk",
    "/text_config/quantization_config/global_compression_ratio",
    "/text_config/quantization_config/ignore",
    "/text_config/quantization_config/kv_cache_scheme",
    "/text_config/quantization_config/quant_method",
    "/text_config/quantization_config/quantization_status",
    "/text_config/quantization_config/config_groups/group_0/input_activations",
    "/text_config/quantization_config/config_groups/group_0/output_activations",
    "/text_config/quantization_config/config_groups/group_0/targets",
    "/text_config/quantization_config/config_groups/group_0/weights/actorder",
    "/text_config/quantization_config/config_groups/group_0/weights/block_structure",
    "/text_config/quantization_config/config_groups/group_0/weights/dynamic",
    "/text_config/quantization_config/config_groups/group_0/weights/observer",
    "/text_config/quantization_config/config_groups/group_0/weights/observer_kwargs",
    "/text_config/quantization_config/config_groups/group_0/weights/scale_dtype",
    "/text_config/quantization_config/config_groups/group_0/weights/strategy",
    "/text_config/quantization_config/config_groups/group_0/weights/zp_dtype",
};
/// Used, and yet as good without a value, or with this other one: ids of an end that is not waited
/// for; how experts are stored, which their tensors say too.
const std::set<std::string> kHarmlessChanges = {
    "/text_config/eos_token_id = []",
    "/text_config/quantization_config (removed)",
    "/text_config/quantization_config = null",
    "/text_config/quantization_config/config_groups/group_0/format (removed)",
    "/text_config/quantization_config/config_groups/group_0/weights/type (removed)",
};
/// Other numbers of these are those of another model.
const std::set<std::string> kNumbersOfAModel = {
    "/text_config/activation_situ_beta",
    "/text_config/activation_situ_linear_beta",
    "/text_config/rms_norm_eps",
    "/text_config/routed_scaling_factor",
};

/// JSON pointers of all keys, whole objects and lists among them, and of the first element of every
/// list.
void add_keys(const Json& value, const Json::json_pointer& at, std::vector<std::string>& keys) {
  for (const auto& [key, inner] : value.items()) {
    if (value.is_array() && key != "0") break;  // one will do
    const Json::json_pointer pointer = at / key;
    keys.push_back(pointer.to_string());
    if (inner.is_structured()) add_keys(inner, pointer, keys);
  }
}

bool is_unused(const std::string& key) {
  for (Json::json_pointer at(key); !at.empty(); at.pop_back()) {
    if (kUnusedKeys.contains(at.to_string())) return true;
  }
  return false;
}

struct ConfigChange {
  std::string key;
  std::optional<Json> value;  // none: without the key

  std::string name() const { return key + (value ? " = " + value->dump() : " (removed)"); }

  void apply(Json& config) const {
    const Json::json_pointer pointer(key);
    if (value) {
      config[pointer] = *value;
    } else if (Json& parent = config[pointer.parent_pointer()]; parent.is_array()) {
      parent.erase(0);
    } else {
      parent.erase(pointer.back());
    }
  }

  bool is_harmless(const Json& config) const {
    return value == config.at(Json::json_pointer(key)) || kHarmlessChanges.contains(name());
  }
  bool is_of_another_model() const {
    return value && value->is_number() && kNumbersOfAModel.contains(key);
  }
  /// By the key; of what is gone by what it was in, or what was in it.
  bool is_named_by(const std::string& message, const Json& config) const {
    const Json::json_pointer pointer(key), parent = pointer.parent_pointer();
    const auto named = [&](const std::string& part) { return message.find(part) != message.npos; };
    if (pointer.back() == "0") return named(parent.back());
    if (named(pointer.back())) return true;
    if (value) return false;
    if (!parent.empty() && named(parent.back())) return true;
    const auto inner = config.at(pointer).items();
    return std::any_of(inner.begin(), inner.end(),
                       [&](const auto& item) { return named("config.json: " + item.key()); });
  }
};

/// A copy with another config.json, as `generate` and `pack` meet it at the same time.
class ChangedConfig : public ModelCopy {
 protected:
  void SetUp() override {
    ModelCopy::SetUp();
    fs::copy_file(fault_trunk(false), trunk_);
    std::ifstream in(fault_model() / "config.json");
    config_ = Json::parse(in);
  }

  std::pair<K3Result, K3Result> generate_and_pack(const Json& config) const {
    std::ofstream(model_ / "config.json") << config;
    K3Process generate(generate_command(model_));
    K3Process pack({.args = {"pack", model_.string(), "-o", trunk_.string()}});  // it is there
    return {generate.wait(), pack.wait()};
  }

  void expect_the_same(const Json& config) const {
    const auto [generated, packed] = generate_and_pack(config);
    EXPECT_EQ(receipt_of(generated), undisturbed_receipt());
    EXPECT_EQ(packed.exit_code, 0) << packed.err;
  }

  void expect_refused_or_the_same(const ConfigChange& change) const {
    SCOPED_TRACE(change.name());
    Json changed = config_;
    change.apply(changed);
    if (change.is_harmless(config_)) return expect_the_same(changed);
    const auto [generated, packed] = generate_and_pack(changed);
    expect_one_line(generated, 3);
    expect_one_line(packed, change.is_of_another_model() ? 2 : 3);
    for (const std::string& said : {generated.err, packed.err}) {
      EXPECT_TRUE(mentions(said, "config.json"));
      EXPECT_TRUE(change.is_of_another_model() || change.is_named_by(said, config_)) << said;
    }
  }

  fs::path trunk_ = dir_.path() / "t.k3";
  Json config_;
};

const std::vector<std::optional<Json>> kOtherValues = {
    std::nullopt, Json(true),     Json(0.5),     Json(uint64_t{1} << 63),
    Json(),       Json::object(), Json::array(), Json("text")};

TEST_F(ChangedConfig, WithoutAnyKeyOrWithAnotherTypeOfItIsRefusedNamingTheKey) {
  std::vector<std::string> keys;
  add_keys(config_, Json::json_pointer(), keys);
  std::erase_if(keys, is_unused);
  ASSERT_GT(keys.size(), 50u);
  for (const std::string& key : keys) {
    for (const std::optional<Json>& value : kOtherValues) expect_refused_or_the_same({key, value});
  }
}

TEST_F(ChangedConfig, OfKeysThatMeanNothingChangesNothing) {
  for (const std::optional<Json>& value : kOtherValues) {
    SCOPED_TRACE(value ? value->dump() : "(removed)");
    Json changed = config_;
    for (const std::string& key : kUnusedKeys) {
      ASSERT_TRUE(config_.contains(Json::json_pointer(key))) << key;
      ConfigChange{key, value}.apply(changed);
    }
    expect_the_same(changed);
  }
}

TEST(Files, WhatIsNoModelIsExitThreeForEveryCommandSayingWhatItIs) {
  const TempDir dir;
  const std::string gguf = (dir.path() / "model.gguf").string();
  std::ofstream(gguf) << "GGUF" << std::string(1000, '\0');
  for (const auto& [path, what] : std::map<std::string, std::string>{
           {gguf, "this is a GGUF file"},
           {(dir.path() / "absent").string(), "no such file or directory"},
           {fault_model() / "model-00001-of-000014.safetensors", "a single safetensors file"},
           {fault_trunk(false), "a trunk file of k3 (give it with --trunk)"}}) {
    for (const std::vector<std::string>& command :
         std::vector<std::vector<std::string>>{{"pack"},
                                               {"generate", "-p", "The"},
                                               {"generate", "--ids", "1"},
                                               {"plan"},
                                               {"doctor"},
                                               {"verify"},
                                               {"score", gguf},
                                               {"tokenize", "text"},
                                               {"detokenize", "1"}}) {
      SCOPED_TRACE(command[0] + " " + path);
      std::vector<std::string> args = {command[0], path};
      args.insert(args.end(), command.begin() + 1, command.end());
      const K3Result result = run_k3({.args = args});
      expect_one_line(result, 3);
      EXPECT_TRUE(mentions(result.err, what)) << result.err;
      EXPECT_TRUE(mentions(result.err, "no other format is read")) << result.err;
    }
  }
}

/// Every command that looks at the files of a model.
std::vector<std::vector<std::string>> commands_on(const fs::path& model, const fs::path& trunk,
                                                  const fs::path& out) {
  const std::string m = model.string();
  const std::string t = trunk.string();
  return {{"pack", m, "-o", out.string(), "--force", "-q"},
          {"verify", m, "--trunk", t, "-q"},
          {"verify", m, "--hashes", "-q"},
          {"doctor", m, "--trunk", t, "-q"},
          {"plan", m, "--trunk", t, "--disk-gbps", "1", "-q"},
          {"generate", m, "--trunk", t, "-p", "The", "-n", "1", "-q"},
          {"score", m, "--trunk", t, "--ids", "1,2", "-q"},
          {"tokenize", m, "text"},
          {"detokenize", m, "1"}};
}

TEST_F(ModelCopy, APlaceOfAnyFileThatHoldsSomethingElseIsExitThreeAndNeverWaitedFor) {
  const std::pair<const char*, void (*)(const fs::path&)> kinds[] = {
      {"pipe", [](const fs::path& file) { ::mkfifo(file.c_str(), 0666); }},
      {"link to itself", [](const fs::path& f) { fs::create_symlink(f.filename(), f); }},
      {"link to nowhere", [](const fs::path& file) { fs::create_symlink("nowhere", file); }},
      {"link to a name too long",
       [](const fs::path& file) { fs::create_symlink(std::string(300, 'x'), file); }},
      {"endless device", [](const fs::path& file) { fs::create_symlink("/dev/zero", file); }},
  };
  for (const char* name : {"config.json", "generation_config.json", "model.safetensors.index.json",
                           "model-00005-of-000014.safetensors", "tiktoken.model",
                           "tokenizer_config.json", "SHA256SUMS", "trunk.k3"}) {
    for (const auto& [kind, make] : kinds) {
      restore();
      fs::remove(model_ / name);
      make(model_ / name);
      const fs::path trunk = std::string(name) == "trunk.k3" ? model_ / name : fault_trunk(false);
      size_t refused = 0;
      for (const auto& args : commands_on(model_, trunk, dir_.path() / "out.k3")) {
        SCOPED_TRACE(std::string(name) + ": " + kind + ": " + args[0]);
        const K3Result result = run_k3({.args = args, .patience = std::chrono::seconds(30)});
        EXPECT_FALSE(result.timed_out);
        if (result.exit_code == 0) continue;  // it has no use for this file
        expect_one_line(result, 3);
        EXPECT_TRUE(mentions(result.err + result.out, name));
        ++refused;
      }
      EXPECT_GT(refused, 0u) << name << ": " << kind;
    }
  }
}

/// The names that the model's own files give reach messages.
TEST_F(ModelCopy, NamesThatWouldActOnATerminalReachItAsEscapesOnOneLine) {
  const std::string evil = R"(\u001b[31mred\u0007\r\nk3: \u009b31m \u2028\u202egnp)";
  const std::string shard = "model-00001-of-000014.safetensors";
  const auto index = [&](const std::string& name, const std::string& place) {
    return std::pair(model_ / "model.safetensors.index.json",
                     R"({"weight_map": {")" + name + R"(": ")" + place + R"("}})");
  };
  const std::pair<fs::path, std::string> files[] = {
      {model_ / "config.json", "{\"" + evil + "\": 1, \"" + evil + "\": 2}"},
      {model_ / "config.json", "{\"\xff\": 1}"},
      index("a", evil),
      index(evil, shard),
      index("a", evil + "/"),
      index("a", R"(x\u0000)"),
      index("a", std::string(5000, 'x')),
  };
  for (const auto& [file, text] : files) {
    restore();
    std::ofstream(file) << text;
    for (const char* command : {"pack", "verify", "doctor"}) {
      SCOPED_TRACE(command + (": " + text.substr(0, 80)));
      const K3Result result = run_k3({.args = {command, model_.string(), "-q"}});
      expect_one_line(result, 3);
      for (const std::string& said : {result.err, result.out}) {
        EXPECT_EQ(said.find_first_of(std::string("\x1b\x07\r\0", 4)), std::string::npos) << said;
        EXPECT_EQ(said.find("\nk3: "), std::string::npos) << said;
        EXPECT_NO_THROW(Json(said).dump()) << "not UTF-8";
        EXPECT_EQ(said.find("\xE2\x80\xAE"), std::string::npos);
      }
      EXPECT_LT(result.err.size(), 2000u);
    }
  }
}

TEST_F(ModelCopy, AHeaderOf120MegabytesIsRefusedStatingTheLimit) {
  const std::string name = "model-00003-of-000014.safetensors";
  std::ifstream in(fault_model() / name, std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(in), {}};
  uint64_t length = 0;
  std::memcpy(&length, bytes.data(), sizeof(length));
  const uint64_t padded = 120'000'000 / 8 * 8;
  std::ofstream out(model_ / name, std::ios::binary | std::ios::trunc);
  out.write(reinterpret_cast<const char*>(&padded), sizeof(padded));
  out << bytes.substr(8, length) << std::string(padded - length, ' ') << bytes.substr(8 + length);
  out.close();
  const K3Result result =
      run_k3({.args = {"pack", model_.string(), "-o", (dir_.path() / "t.k3").string(), "-q"}});
  expect_one_line(result, 3);
  EXPECT_TRUE(mentions(result.err, name)) << result.err;
  EXPECT_TRUE(mentions(result.err, "header length 120000000, expected 1 to 100000000"));
}

TEST_F(ModelCopy, ATrunkFileThatIsSomethingElseIsExitThreeNamingIt) {
  const fs::path trunk = dir_.path() / "other.k3";
  for (const Damage& damage : kDamages) {
    SCOPED_TRACE(damage.name);
    fs::remove_all(trunk);
    fs::copy_file(fault_trunk(false), trunk);
    damage.apply(trunk);
    K3Command command = generate_command(model_);
    command.args.back() = trunk.string();
    const K3Result result = run_k3(command);
    expect_one_line(result, 3);
    EXPECT_TRUE(mentions(result.err, "other.k3"));
  }
}

}  // namespace
}  // namespace k3::test
