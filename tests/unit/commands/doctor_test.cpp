#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "base/json.h"
#include "support/checkpoint_maker.h"
#include "support/run_k3.h"
#include "support/sanitizers.h"
#include "support/test_data.h"

namespace {

namespace fs = std::filesystem;
using namespace k3;        // NOLINT
using namespace k3::test;  // NOLINT

class DoctorCommand : public testing::Test {
 protected:
  DoctorCommand() : model(dir.path() / "model") { make_checkpoint(model); }

  K3Result doctor(std::vector<std::string> more = {}) const {
    more.insert(more.begin(), {"doctor", model.string()});
    return run_k3({.args = std::move(more)});
  }
  Json doctor_json(int exit_code) const {
    const K3Result result = doctor({"--json"});
    EXPECT_EQ(result.exit_code, exit_code) << result.err;
    return parse_json(result.out, "stdout");
  }
  void pack() const { ASSERT_EQ(run_k3({.args = {"pack", model.string()}}).exit_code, 0); }

  TempDir dir;
  fs::path model;
};

std::string last_line(const std::string& text) {
  const size_t end = text.find_last_not_of('\n');
  return text.substr(text.rfind('\n', end) + 1, end - text.rfind('\n', end));
}

TEST_F(DoctorCommand, WithoutAModelDescribesTheMachineAlone) {
  const K3Result result = run_k3({.args = {"doctor"}});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_NE(result.out.find("memory"), std::string::npos);
  EXPECT_EQ(result.out.find("trunk  "), std::string::npos);
}

TEST_F(DoctorCommand, WithoutATrunkSaysWhatItNeedsAndToPack) {
  const Json json = doctor_json(0);
  EXPECT_EQ(json["fit"], true);
  EXPECT_EQ(json["model"]["complete"], true);
  EXPECT_EQ(json["next"], "k3 pack " + model.string());
  EXPECT_EQ(last_line(doctor().out), "next: k3 pack " + model.string());
  pack();
  const uint64_t written = fs::file_size(model / "trunk.k3");
  EXPECT_GE(json["trunk"]["needed_bytes"].get<uint64_t>(), written);
  EXPECT_LE(json["trunk"]["needed_bytes"].get<uint64_t>(), written + (2u << 20));
}

/// Whether the mount of the root is listed; in a plain chroot it is not, and no file system has a
/// name.
bool sees_root_mount() {
  std::ifstream mounts("/proc/self/mountinfo");
  for (std::string line; std::getline(mounts, line);) {
    std::istringstream fields(line);
    std::string id, parent, device, root, point;
    fields >> id >> parent >> device >> root >> point;
    if (point == "/") return true;
  }
  return false;
}

TEST_F(DoctorCommand, WithATrunkMeasuresBothDrivesAndSaysToGenerate) {
  pack();
  const Json json = doctor_json(0);
  for (const char* part : {"model", "trunk"}) {
    const Json& drive = json[part]["drive"];
    EXPECT_GT(drive["gbps"], 0.0) << part;
    EXPECT_TRUE(drive["direct_io"].is_boolean()) << part;
    EXPECT_TRUE(drive["file_system"] != "unknown" || !sees_root_mount()) << part;
  }
  EXPECT_GT(json["plan"]["budget_bytes"], json["plan"]["least_budget_bytes"]);
  EXPECT_EQ(json["next"].get<std::string>().find("k3 generate "), 0u) << json["next"];
}

TEST_F(DoctorCommand, TheLeastBudgetWithoutATrunkIsThatWithOneNearly) {
  const auto least = [&] { return doctor_json(0)["plan"]["least_budget_bytes"].get<double>(); };
  const double before = least();
  pack();
  EXPECT_NEAR(least(), before, 5e6);
}

TEST_F(DoctorCommand, ListsEveryMissingShardAndEndsWithThree) {
  std::vector<std::string> missing;
  for (const auto& entry : fs::directory_iterator(model)) {
    if (entry.path().extension() == ".safetensors") missing.push_back(entry.path().filename());
  }
  std::sort(missing.begin(), missing.end());
  missing.resize(2);
  for (const std::string& name : missing) fs::remove(model / name);
  const Json json = doctor_json(3);
  EXPECT_EQ(json["fit"], false);
  EXPECT_EQ(json["model"]["missing"], Json(missing));
  const K3Result text = doctor();
  for (const std::string& name : missing) EXPECT_NE(text.out.find(name), std::string::npos);
}

TEST_F(DoctorCommand, ATruncatedShardIsNotComplete) {
  for (const auto& entry : fs::directory_iterator(model)) {
    if (entry.path().extension() != ".safetensors") continue;
    fs::resize_file(entry.path(), fs::file_size(entry.path()) - 1);
    break;
  }
  EXPECT_EQ(doctor_json(3)["model"]["complete"], false);
}

TEST_F(DoctorCommand, ATrunkOfAnotherCheckpointIsNotUsable) {
  pack();
  make_checkpoint(model, {.config = tiny_config(), .seed = 2});
  const Json json = doctor_json(3);
  EXPECT_EQ(json["trunk"]["usable"], false);
  EXPECT_EQ(json["next"], "k3 pack " + model.string() + " --force");
}

TEST_F(DoctorCommand, ThePlaceOfATrunkThatIsSomethingElseIsLeftToItAndAnotherOneAdvised) {
  const fs::path pipe = dir.path() / "pipe", letter = dir.path() / "letter";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0666), 0);
  std::ofstream(letter) << "Dear reader\n";
  for (const fs::path& place : {pipe, letter, dir.path()}) {
    const K3Result result = doctor({"--trunk", place.string()});
    EXPECT_EQ(result.exit_code, 3) << result.err;
    EXPECT_EQ(last_line(result.out),
              "next: k3 pack " + model.string() + " -o /another/place/trunk.k3");
  }
}

TEST_F(DoctorCommand, AnEnvironmentThatNoRunWouldTakeIsAUsageErrorWithOrWithoutAModel) {
  for (const char* variable : {"K3_ISA", "K3_IO"}) {
    for (const std::vector<std::string>& args :
         std::vector<std::vector<std::string>>{{"doctor"}, {"doctor", model.string()}}) {
      const K3Result result = run_k3({.args = args, .env = {{variable, "nonsense"}}});
      EXPECT_EQ(result.exit_code, 2) << variable;
      EXPECT_NE(result.err.find(variable), std::string::npos) << result.err;
      EXPECT_EQ(result.out, "");
    }
  }
}

TEST_F(DoctorCommand, AReadThatFailsIsAFindingAboutTheFileThatHasIt) {
  pack();
  const auto with_bad_block = [&](uint64_t offset, const std::string& file) {
    const std::string place = std::to_string(offset) + ":" + fs::canonical(model / file).string();
    const K3Result result = run_k3({.args = {"doctor", model.string(), "--json"},
                                    .env = {{"K3_TEST_BAD_BLOCK", place}},
                                    .program = K3_FAULTY_BINARY});
    EXPECT_EQ(result.exit_code, 3) << result.err;
    return parse_json(result.out, "stdout");
  };
  const std::string shard = "model-00002-of-000008.safetensors";
  const Json of_shard = with_bad_block(fs::file_size(model / shard) - 1, shard);
  EXPECT_EQ(of_shard["model"]["complete"], false);
  EXPECT_NE(of_shard["problems"][0].get<std::string>().find(shard), std::string::npos) << of_shard;
  EXPECT_EQ(of_shard["next"], "k3 verify " + model.string() + " --hashes");
  const Json of_trunk = with_bad_block(4096, "trunk.k3");
  EXPECT_EQ(of_trunk["model"]["complete"], true);
  EXPECT_EQ(of_trunk["trunk"]["usable"], false);
  EXPECT_EQ(of_trunk["next"], "k3 pack " + model.string() + " --force");
}

TEST_F(DoctorCommand, ShardsMayHaveAnyName) {
  rename_shards(model, ".bin");
  EXPECT_GT(doctor_json(0)["model"]["drive"]["gbps"], 0.0);
}

TEST_F(DoctorCommand, TooLittleMemoryIsNotFitWithOrWithoutATrunk) {
  if (kSanitized) GTEST_SKIP() << "sanitizers need more address space than this test allows";
  // 148 MB of address space: less than the margin that is kept and the least budget.
  const K3Command command{.args = {"doctor", model.string()}, .limits = {{RLIMIT_AS, 148'000'000}}};
  K3Result result = run_k3(command);
  EXPECT_EQ(result.exit_code, 5) << result.out << result.err;
  pack();
  result = run_k3(command);
  EXPECT_EQ(result.exit_code, 5) << result.out << result.err;
}

TEST_F(DoctorCommand, WorksWithThePreadReader) {
  const K3Result result =
      run_k3({.args = {"doctor", model.string(), "--json"}, .env = {{"K3_IO", "pread"}}});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(parse_json(result.out, "stdout")["model"]["drive"]["io"], "pread");
}

}  // namespace
