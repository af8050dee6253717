#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>

#include "base/hash.h"
#include "base/json.h"
#include "io/direct_file.h"
#include "support/checkpoint_maker.h"
#include "support/messages.h"
#include "support/run_k3.h"
#include "support/test_data.h"
#include "unit/weights/trunk_model.h"
#include "weights/shard_identity.h"
#include "weights/trunk_file.h"
#include "weights/trunk_layout.h"
#include "weights/trunk_manifest.h"

namespace k3::commands {
namespace {

namespace fs = std::filesystem;
using test::K3Result;
using test::mentions;
using test::run_k3;

constexpr const char* kShard2 = "model-00002-of-000004.safetensors";
constexpr const char* kShard3 = "model-00003-of-000004.safetensors";

class Verify : public ::testing::Test {
 protected:
  Verify() { test::make_checkpoint(path(), {.config = test::three_layer_config()}); }

  const fs::path& path() const { return dir_.path(); }
  K3Result verify(std::vector<std::string> more = {}) const {
    more.insert(more.begin(), {"verify", path().string()});
    return run_k3({.args = more});
  }

  test::TempDir dir_;
};

void flip_byte_of(const fs::path& path, uint64_t at) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(static_cast<std::streamoff>(at));
  const int byte = file.get();
  file.seekp(static_cast<std::streamoff>(at));
  file.put(static_cast<char>(byte ^ 1));
}

size_t count_lines(const std::string& text) {
  return static_cast<size_t>(std::count(text.begin(), text.end(), '\n'));
}

TEST_F(Verify, PrintsOneLineForAWholeCheckpoint) {
  const K3Result result = verify();
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.err, "");
  EXPECT_EQ(count_lines(result.out), 1u);
  EXPECT_TRUE(mentions(result.out, ": ok, 4 shards"));
}

TEST_F(Verify, CountsShardsTensorsAndBytesAsJson) {
  const Json json = Json::parse(verify({"--json"}).out);
  uint64_t bytes = 0;
  for (const auto& file : fs::directory_iterator(path())) {
    if (file.path().extension() == ".safetensors") bytes += file.file_size();
  }
  EXPECT_EQ(json["ok"], true);
  EXPECT_EQ(json["problems"], Json::array());
  EXPECT_EQ(json["shards"], 4);
  EXPECT_EQ(json["tensors"], test::list_tensors({.config = test::three_layer_config()}).size());
  EXPECT_EQ(json["bytes"], bytes);
}

TEST_F(Verify, PrintsOneLineForEachProblemAndEndsWithThree) {
  fs::remove(path() / kShard2);
  fs::resize_file(path() / kShard3, 5000);
  std::ofstream(path() / "config.json") << "{}";
  const K3Result result = verify();
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_EQ(count_lines(result.out), 3u) << result.out;
  for (const char* name : {"config.json", kShard2, kShard3}) {
    EXPECT_TRUE(mentions(result.out, name));
  }
  EXPECT_EQ(count_lines(result.err), 1u);
  EXPECT_TRUE(mentions(result.err, "3 problem(s)"));
}

TEST_F(Verify, ReportsProblemsAsJsonToo) {
  fs::remove(path() / kShard2);
  const K3Result result = verify({"--json"});
  EXPECT_EQ(result.exit_code, 3);
  const Json json = Json::parse(result.out);
  EXPECT_EQ(json["ok"], false);
  ASSERT_EQ(json["problems"].size(), 1u);
  EXPECT_TRUE(mentions(json["problems"][0].get<std::string>(), kShard2));
}

TEST_F(Verify, ChecksShapesAgainstTheConfig) {
  Json config = test::three_layer_config();
  config["text_config"]["q_lora_rank"] = 24;
  std::ofstream(path() / "config.json") << config.dump();
  const K3Result result = verify();
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_TRUE(mentions(result.out, "q_a_layernorm.weight is BF16 [20], expected"));
}

TEST_F(Verify, ChecksTheTokenizerWhereThereIsOne) {
  std::ofstream(path() / "tiktoken.model") << "not base64";
  const K3Result result = verify();
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_TRUE(mentions(result.out, "tiktoken.model"));
}

class VerifyTrunk : public Verify {
 protected:
  VerifyTrunk() { EXPECT_EQ(run_k3({.args = {"pack", path().string()}}).exit_code, 0); }

  fs::path trunk() const { return path() / "trunk.k3"; }
  void flip_byte(uint64_t at) const { flip_byte_of(trunk(), at); }
};

TEST_F(VerifyTrunk, ChecksTheTrunkFileBesideTheShards) {
  const K3Result result = verify();
  EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
  EXPECT_TRUE(mentions(result.out, "trunk.k3: "));
  EXPECT_TRUE(mentions(result.out, "chunks fit"));
}

TEST_F(VerifyTrunk, NamesEveryDamagedChunk) {
  flip_byte(4096);
  flip_byte(fs::file_size(trunk()) / 2);
  const K3Result result = verify();
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_EQ(count_lines(result.out), 2u) << result.out;
  EXPECT_TRUE(mentions(result.out, "chunk 0 ("));
  EXPECT_TRUE(mentions(result.out, "does not fit its checksum"));
}

TEST_F(VerifyTrunk, AReadThatFailsIsAFindingLikeOthers) {
  const weights::TrunkFile opened = weights::TrunkFile::open(trunk());
  flip_byte(opened.chunks()[1].offset);
  const auto with_bad_block = [&](uint64_t offset, const fs::path& file,
                                  std::vector<std::string> more) {
    more.insert(more.begin(), {"verify", path().string()});
    const std::string place = std::to_string(offset) + ":" + fs::canonical(file).string();
    const K3Result result =
        run_k3({.args = more, .env = {{"K3_TEST_BAD_BLOCK", place}}, .program = K3_FAULTY_BINARY});
    EXPECT_EQ(result.exit_code, 3) << result.err;
    return result.out;
  };
  const std::string out = with_bad_block(opened.chunks()[0].offset, trunk(), {});
  EXPECT_EQ(count_lines(out), 2u) << out;
  EXPECT_TRUE(mentions(out, "cannot be read: reading "));
  EXPECT_TRUE(mentions(out, "Input/output error"));
  EXPECT_TRUE(mentions(out, "chunk 1 ("));
  const Json json = Json::parse(with_bad_block(0, path() / kShard2, {"--json"}));
  EXPECT_EQ(json["ok"], false);
  EXPECT_EQ(json["problems"].size(), 2u) << json;
}

/// Bytes between the samples by which a trunk file knows its shards.
TEST(VerifyEmbedding, NamesTheFirstRowThatIsNotWhatWasPackedAndCountsThemAll) {
  const test::TempDir dir;
  Json config = test::three_layer_config();
  config["text_config"]["vocab_size"] = 100'000;  // more than is read at once
  test::make_checkpoint(dir.path(), {.config = config});
  const std::string model = dir.path().string();
  ASSERT_EQ(run_k3({.args = {"pack", model}}).exit_code, 0);
  ASSERT_EQ(run_k3({.args = {"verify", model}}).exit_code, 0);

  const weights::TrunkFile trunk = weights::TrunkFile::open(dir.path() / "trunk.k3");
  const weights::ManifestHeader& header = trunk.header();
  const fs::path shard = dir.path() / trunk.name(trunk.shards()[header.embedding_shard]);
  ASSERT_GT(header.embedding_rows * weights::embedding_row_bytes(header), weights::kChunkBytes);
  const uint64_t samples = weights::sample_hash(shard, fs::file_size(shard));
  for (const uint64_t row : {90'001, 60'001, 60'002}) {
    flip_byte_of(shard, header.embedding_offset + row * weights::embedding_row_bytes(header));
  }
  ASSERT_EQ(weights::sample_hash(shard, fs::file_size(shard)), samples);

  const K3Result result = run_k3({.args = {"verify", model}});
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_EQ(count_lines(result.out), 1u) << result.out;
  EXPECT_TRUE(mentions(result.out, shard.filename().string()));
  EXPECT_TRUE(mentions(result.out, "3 of the 100000 rows of the embedding"));
  EXPECT_TRUE(mentions(result.out, "token 60001 ("));
  EXPECT_EQ(run_k3({.args = {"pack", model, "--verify"}}).exit_code, 3);
}

TEST_F(VerifyTrunk, RefusesADamagedManifest) {
  flip_byte(fs::file_size(trunk()) - 20);
  const K3Result result = verify();
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_TRUE(mentions(result.out, "trunk.k3"));
}

TEST_F(VerifyTrunk, RefusesTheTrunkOfAnotherCheckpoint) {
  test::TempDir other;
  test::make_checkpoint(other.path(), {.config = test::three_layer_config(), .seed = 2});
  const K3Result result =
      run_k3({.args = {"verify", other.path().string(), "--trunk", trunk().string()}});
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_TRUE(mentions(result.out, "was not made from the checkpoint"));
}

TEST_F(VerifyTrunk, RefusesATrunkOfAnotherConfig) {
  Json config = test::three_layer_config();
  config["text_config"]["rms_norm_eps"] = 1e-6;
  std::ofstream(path() / "config.json") << config.dump();
  const K3Result result = verify();
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_TRUE(mentions(result.out, "another config.json"));
}

TEST_F(VerifyTrunk, RefusesATrunkThatAStepOfThisConfigCannotTake) {
  fs::remove(trunk());
  const test::TrunkModel model(path());
  weights::PackInput input = model.input();
  input.expert_part_bytes[0] /= 2;
  weights::write_trunk(input, trunk(), {});
  const K3Result result = verify();
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_TRUE(mentions(result.out, "its experts or embedding are not those of config.json"));
}

TEST_F(Verify, NamesATrunkFileThatIsAbsent) {
  const K3Result result = verify({"--trunk", "/nowhere/trunk.k3"});
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_TRUE(mentions(result.out, "/nowhere/trunk.k3"));
}

TEST_F(Verify, SaysWhatAFileGivenAsModelIs) {
  std::ofstream(path() / "x.gguf") << "GGUF";
  const K3Result result = run_k3({.args = {"verify", (path() / "x.gguf").string()}});
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_EQ(result.out, "");
  EXPECT_TRUE(mentions(result.err, "a GGUF file"));
}

/// A list of the shards beside the model, as sha256sum writes it.
void list_hashes(const fs::path& directory) {
  std::string lines;
  for (const auto& file : fs::directory_iterator(directory)) {
    if (file.path().extension() != ".safetensors") continue;
    Sha256 hash;
    const std::string bytes = io::read_text_file(file.path(), Bytes{1'000'000'000});
    hash.update(std::as_bytes(std::span(bytes)));
    lines += hash.hex_digest() + "  " + file.path().filename().string() + "\n";
  }
  std::ofstream(directory / "SHA256SUMS") << lines;
}

void flip_last_byte(const fs::path& path) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(-1, std::ios::end);
  const int byte = file.get();
  file.seekp(-1, std::ios::end);
  file.put(static_cast<char>(byte ^ 1));
}

TEST_F(Verify, HashesOfAListBesideTheModelAreCompared) {
  list_hashes(path());
  const K3Result result = verify({"--hashes"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_TRUE(mentions(result.out, "; SHA-256 of 4 files fit"));
}

TEST_F(Verify, HashesNameExactlyTheDamagedAndMissingFiles) {
  list_hashes(path());
  flip_last_byte(path() / kShard2);
  EXPECT_EQ(verify().exit_code, 0);  // structure and sizes do not tell
  const K3Result result = verify({"--hashes"});
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_EQ(count_lines(result.out), 1u) << result.out;
  EXPECT_TRUE(mentions(result.out, std::string(kShard2) + ": its SHA-256 is "));
  flip_last_byte(path() / kShard2);
  std::ofstream(path() / "SHA256SUMS", std::ios::app) << std::string(64, '0') << " *./gone.bin\n";
  EXPECT_TRUE(mentions(verify({"--hashes"}).out, "gone.bin"));
}

TEST_F(Verify, HashesNameEveryShardThatTheListLeavesOut) {
  list_hashes(path());
  std::ifstream list(path() / "SHA256SUMS");
  std::string kept;
  for (std::string line; std::getline(list, line);) {
    if (!mentions(line, kShard2) && !mentions(line, kShard3)) kept += line + "\n";
  }
  std::ofstream(path() / "SHA256SUMS") << kept;
  const K3Result result = verify({"--hashes"});
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_EQ(count_lines(result.out), 2u) << result.out;
  EXPECT_TRUE(mentions(result.out, std::string(kShard2) + ": the list of hashes does not name it"));
  EXPECT_TRUE(mentions(result.out, kShard3));
}

TEST_F(Verify, ADamagedListOfHashesIsRefusedByLine) {
  for (const std::string& line : {std::string("abc  x"), std::string(64, 'g') + "  x",
                                  std::string(64, 'a') + "  ../x", std::string(64, 'a') + "x"}) {
    std::ofstream(path() / "SHA256SUMS") << std::string(64, 'a') << "  x\n" << line << "\n";
    const K3Result result = verify({"--hashes"});
    EXPECT_EQ(result.exit_code, 3);
    EXPECT_TRUE(mentions(result.out, "SHA256SUMS: line 2 is not")) << line;
  }
}

TEST_F(Verify, HashesWithoutAListAreThePublishedOnesForTheReleaseAlone) {
  EXPECT_TRUE(mentions(verify({"--hashes"}).out, "not the released checkpoint, and no SHA256SUMS"));
  std::ofstream(path() / "model-00003-of-000096.safetensors") << "short";
  const std::string out = verify({"--hashes"}).out;
  EXPECT_TRUE(
      mentions(out, "model-00003-of-000096.safetensors: 5 bytes found, 16990911504 expected"));
  EXPECT_TRUE(mentions(out, "model-00096-of-000096.safetensors"));
}

TEST(VerifyTestModels, FindsAllOfThemWhole) {
  for (const char* model : {"tiny-k3", "random-a", "random-b", "random-c", "oracle"}) {
    const K3Result result = run_k3({.args = {"verify", (test::data_dir() / model).string()}});
    EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
  }
}

}  // namespace
}  // namespace k3::commands
