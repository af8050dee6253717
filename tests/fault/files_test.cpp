// Files of a checkpoint that are missing, damaged or something else, as the commands meet them.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstring>
#include <fstream>
#include <functional>
#include <map>
#include <optional>

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
};

TEST_F(ModelCopy, EveryDamageOfEveryFileIsExitThreeNamingTheFile) {
  for (const char* name :
       {"config.json", "model.safetensors.index.json", "model-00001-of-000014.safetensors",
        "model-00005-of-000014.safetensors", "model-00014-of-000014.safetensors", "tiktoken.model",
        "tokenizer_config.json"}) {
    const bool text = std::string(name).starts_with("tok") || std::string(name).starts_with("tik");
    for (const Damage& damage : kDamages) {
      SCOPED_TRACE(std::string(name) + ": " + damage.name);
      restore();
      damage.apply(model_ / name);
      const K3Result verify = run_k3({.args = {"verify", model_.string()}});
      EXPECT_EQ(verify.exit_code, 3);
      EXPECT_TRUE(mentions(verify.out, name));
      if (!text) {  // pack has no use for the tokenizer
        const auto trunk = dir_.path() / "t.k3";
        const K3Result pack = run_k3({.args = {"pack", model_.string(), "-o", trunk.string()}});
        expect_one_line(pack, 3);
        EXPECT_TRUE(mentions(pack.err, name));
        EXPECT_FALSE(fs::exists(trunk));
      }
      if (std::string(name) == "model.safetensors.index.json") continue;  // the trunk file knows
      const K3Result generate = run_k3(generate_command(model_));
      expect_one_line(generate, 3);
      EXPECT_TRUE(mentions(generate.err, name));
    }
  }
}

/// Every key of config.json, and the first element of every list, with this value in place of its
/// own; no value: without the key.
void for_each_changed_config(const Json& config, const std::optional<Json>& value,
                             const std::function<void(const std::string&, const Json&)>& use) {
  const Json flat = config.flatten();
  for (const auto& [pointer, old] : flat.items()) {
    Json changed = config;
    const Json::json_pointer key(pointer);
    if (changed[key.parent_pointer()].is_array() && key.back() != "0") continue;  // one will do
    if (value) {
      changed[key] = *value;
    } else if (changed[key.parent_pointer()].is_object()) {
      changed[key.parent_pointer()].erase(key.back());
    } else {
      continue;
    }
    use(pointer, changed);
  }
}

TEST_F(ModelCopy, AnyKeyOfTheConfigRemovedOrOfAnotherTypeIsRefusedOrChangesNothing) {
  std::ifstream in(fault_model() / "config.json");
  const Json config = Json::parse(in);
  const fs::path trunk = dir_.path() / "t.k3";
  fs::copy_file(fault_trunk(false), trunk);
  size_t refused = 0;
  for (const std::optional<Json>& value :
       {std::optional<Json>(), std::optional<Json>("text"), std::optional<Json>(-1),
        std::optional<Json>(Json::array({nullptr}))}) {
    for_each_changed_config(config, value, [&](const std::string& key, const Json& changed) {
      SCOPED_TRACE(key + " = " + (value ? value->dump() : "(removed)"));
      std::ofstream(model_ / "config.json") << changed;
      const K3Result result = run_k3(generate_command(model_));
      if (!value || value->is_string()) {  // numbers may be those of another model
        const K3Result pack = run_k3({.args = {"pack", model_.string(), "-o", trunk.string()}});
        EXPECT_EQ(pack.exit_code, result.exit_code) << pack.err;  // the trunk file is there already
        EXPECT_TRUE(pack.exit_code == 0 || mentions(pack.err, "config.json"));
      }
      if (result.exit_code == 0) {
        EXPECT_EQ(receipt_of(result), undisturbed_receipt());
        return;
      }
      expect_one_line(result, 3);
      EXPECT_TRUE(mentions(result.err, "config.json"));
      ++refused;
    });
  }
  EXPECT_GT(refused, 50u);
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
