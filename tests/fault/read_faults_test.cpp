// Reads of a run that fail, come short, late, in another order or with other bytes.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <regex>
#include <thread>

#include "io/direct_file.h"
#include "support/faulty_run.h"
#include "support/messages.h"
#include "support/test_data.h"
#include "weights/trunk_file.h"
#include "weights/trunk_manifest.h"

namespace k3::test {
namespace {

namespace fs = std::filesystem;

std::shared_ptr<FaultControl> control() {
  return std::make_shared<FaultControl>();
}

struct Undisturbed {
  FaultyOutcome outcome;
  uint64_t reads = 0;
};

const Undisturbed& undisturbed() {
  static const Undisturbed known = [] {
    const auto counter = control();
    Undisturbed run{run_with({}, counter), 0};
    run.reads = counter->reads;
    return run;
  }();
  return known;
}

void expect_undisturbed(const FaultyOutcome& outcome) {
  EXPECT_FALSE(outcome.error) << outcome.message;
  EXPECT_EQ(outcome.receipt, undisturbed().outcome.receipt);
}

/// The first reads one by one, the others at even distances.
std::vector<uint64_t> sampled_reads(uint64_t count, uint64_t samples) {
  std::vector<uint64_t> numbers;
  for (uint64_t n = 1; n <= std::min(count, samples / 2); ++n) numbers.push_back(n);
  const uint64_t stride = std::max<uint64_t>(1, 2 * count / samples);
  for (uint64_t n = samples / 2 + 1; n <= count; n += stride) numbers.push_back(n);
  if (numbers.back() != count) numbers.push_back(count);
  return numbers;
}

TEST(ReadFaults, AFailureOfAnyReadEndsTheRunSayingWhatWasReadWhereAfterTheTokensBeforeIt) {
  const Undisturbed& known = undisturbed();
  ASSERT_FALSE(known.outcome.error) << known.outcome.message;
  ASSERT_EQ(known.outcome.ids.size(), kRunTokens);
  const std::regex form(
      R"(reading .*(tiny-k3/model-.*\.safetensors|plain\.k3) at \d+ \(\d+ bytes, )"
      R"((layer \d+, expert \d+|embedding of token \d+|.* rows \d+\.\.\d+|.* small tensors)\): )"
      R"(Input/output error at \d+; .*)");
  size_t most = 0;
  for (const uint64_t n : sampled_reads(known.reads, 100)) {
    const FaultyOutcome outcome = run_with({.fail_read = n}, control());
    if (!outcome.error) {  // this run happened to need fewer reads
      expect_undisturbed(outcome);
      break;
    }
    ASSERT_EQ(outcome.error, ErrorKind::kRead) << "read " << n << ": " << outcome.message;
    EXPECT_TRUE(std::regex_match(outcome.message, form)) << outcome.message;
    EXPECT_TRUE(std::equal(outcome.ids.begin(), outcome.ids.end(), known.outcome.ids.begin()));
    most = std::max(most, outcome.ids.size());
  }
  EXPECT_EQ(most, kRunTokens - 1);  // a failure in the last pass takes no token back
}

TEST(ReadFaults, AnEarlyEndOfAFileEndsTheRunSayingThatItIsIncomplete) {
  for (const uint64_t n : sampled_reads(undisturbed().reads, 30)) {
    const FaultyOutcome outcome = run_with({.end_of_file_read = n}, control());
    if (!outcome.error) break;
    ASSERT_EQ(outcome.error, ErrorKind::kRead) << "read " << n << ": " << outcome.message;
    EXPECT_TRUE(mentions(outcome.message, "incomplete"));
  }
}

TEST(ReadFaults, RefusedDirectReadsAreSurvivedAndCounted) {
  const auto counter = control();
  const FaultyOutcome outcome = run_with({.einval_every = 7}, counter);
  expect_undisturbed(outcome);
  EXPECT_EQ(outcome.stats.direct_fallbacks, counter->spoiled);
}

TEST(ReadFaults, ShortReadsDownToOneByteGiveTheSameBits) {
  constexpr uint64_t kEnough = 200'000;  // byte by byte a whole run takes minutes
  for (const uint32_t bytes : {1u, 511u, 4095u, 4096u, 10000u}) {
    SCOPED_TRACE(bytes);
    const auto counter = control();
    const FaultyOutcome outcome = run_with({.short_bytes = bytes, .short_until = kEnough}, counter);
    expect_undisturbed(outcome);
    EXPECT_GE(counter->spoiled, bytes == 1 ? kEnough : 1);
    EXPECT_EQ(outcome.stats.direct_fallbacks > 0, bytes < io::kBlockSize);
  }
}

TEST(ReadFaults, ReadsThatComeLateAndInAnotherOrderGiveTheSameBits) {
  for (uint64_t seed = 1; seed <= 5; ++seed) {
    expect_undisturbed(run_with({.reorder = true, .seed = seed}, control()));
  }
}

TEST(ReadFaults, BytesThatAreWrongOnceAreReadAgainAndTheRunGoesOn) {
  for (const uint64_t n : sampled_reads(undisturbed().reads, 60)) {
    const auto counter = control();
    const FaultyOutcome outcome = run_with({.corrupt_read = n}, counter, true);
    SCOPED_TRACE(n);
    expect_undisturbed(outcome);
    EXPECT_EQ(outcome.stats.checksum_retries, counter->spoiled);
  }
}

/// A model that a test may damage while an engine has it open: what opening checks is past then.
class DamagedWhileOpen : public testing::Test {
 protected:
  void SetUp() override {
    fs::copy(fault_model(), model_, fs::copy_options::recursive);
    fs::permissions(model_, fs::perms::owner_all);
  }
  void open(bool expert_checksums) {
    trunk_ = dir_.path() / "t.k3";
    fs::copy_file(fault_trunk(expert_checksums), trunk_);
    engine_ = open_faulty(fault_options(model_, trunk_), {}, control());
  }
  static void overwrite(const fs::path& path, uint64_t offset, char value) {
    fs::permissions(path, fs::perms::owner_read | fs::perms::owner_write);
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(static_cast<std::streamoff>(offset));
    file.put(value);
    ASSERT_TRUE(file.flush());
  }
  /// One byte of the same part of every expert of the second MoE layer: some of them are used.
  void overwrite_experts(weights::ExpertPart part, uint64_t at, char value) {
    const auto trunk = weights::TrunkFile::open(trunk_);
    for (uint32_t e = 0; e < trunk.header().experts_per_layer; ++e) {
      const weights::ExpertRecord& expert = trunk.expert(1, e);
      overwrite(model_ / trunk.name(trunk.shards()[expert.shard]),
                expert.offset[static_cast<size_t>(part)] + at, value);
    }
  }

  TempDir dir_;
  fs::path model_ = dir_.path() / "model";
  fs::path trunk_;
  std::unique_ptr<Engine> engine_;
};

TEST_F(DamagedWhileOpen, AChunkThatStaysWrongIsRefusedByFileOffsetAndTensor) {
  open(false);
  const auto chunk = weights::TrunkFile::open(trunk_).chunks()[40];
  overwrite(trunk_, chunk.offset + chunk.stored_bytes - 1, '\x5a');
  const FaultyOutcome outcome = generate_on(*engine_);
  EXPECT_EQ(outcome.error, ErrorKind::kRead);
  EXPECT_TRUE(mentions(outcome.message,
                       trunk_.string() + ": the bytes at " + std::to_string(chunk.offset)));
  EXPECT_TRUE(mentions(outcome.message, "do not match their checksum, read twice"));
  EXPECT_EQ(outcome.stats.checksum_retries, 1u);
  EXPECT_TRUE(outcome.ids.empty());
}

TEST_F(DamagedWhileOpen, AnExpertThatStaysWrongIsRefusedWhereItsChecksumIsKnown) {
  open(true);
  overwrite_experts(weights::ExpertPart::kW2Packed, 5, '\x77');
  const FaultyOutcome outcome = generate_on(*engine_);
  EXPECT_EQ(outcome.error, ErrorKind::kRead);
  EXPECT_TRUE(mentions(outcome.message, model_.string() + "/model-000"));
  EXPECT_TRUE(mentions(outcome.message, ".safetensors: the bytes at "));
  EXPECT_TRUE(mentions(outcome.message, " bytes, layer 2, expert "));
  EXPECT_TRUE(mentions(outcome.message, "do not match the checksum"));
}

TEST_F(DamagedWhileOpen, AnEmbeddingThatStaysWrongIsRefusedByShardOffsetAndToken) {
  open(false);
  const auto file = weights::TrunkFile::open(trunk_);
  const weights::ManifestHeader& header = file.header();
  const std::string shard(file.name(file.shards()[header.embedding_shard]));
  const uint64_t bytes = weights::embedding_row_bytes(header);
  const uint64_t at = header.embedding_offset + 500 * bytes;  // of a token of the prompt
  overwrite(model_ / shard, at + bytes - 1, '\x3a');
  const FaultyOutcome outcome = generate_on(*engine_);
  EXPECT_EQ(outcome.error, ErrorKind::kRead);
  EXPECT_TRUE(mentions(outcome.message, shard + ": the bytes at " + std::to_string(at) + " (" +
                                            std::to_string(bytes) +
                                            " bytes, embedding of token 500) do not match"));
  EXPECT_EQ(outcome.stats.checksum_retries, 1u);
  EXPECT_TRUE(outcome.ids.empty());
}

TEST_F(DamagedWhileOpen, AScaleThatIsNotANumberIsRefusedByLayerExpertMatrixAndRow) {
  open(false);
  const auto file = weights::TrunkFile::open(trunk_);
  const uint64_t bytes =
      file.header().expert_part_bytes[static_cast<size_t>(weights::ExpertPart::kW3Scale)];
  overwrite_experts(weights::ExpertPart::kW3Scale, bytes - 1, '\xff');
  const FaultyOutcome outcome = generate_on(*engine_);
  EXPECT_EQ(outcome.error, ErrorKind::kRead);
  EXPECT_TRUE(mentions(outcome.message, ", layer 2, expert "));
  EXPECT_TRUE(mentions(outcome.message, "scale byte 255 (not a number) in w3 row "));
}

TEST_F(DamagedWhileOpen, ATrunkFileThatIsCutEndsTheRun) {
  open(false);
  fs::resize_file(trunk_, weights::TrunkFile::open(trunk_).chunks()[60].offset);
  const FaultyOutcome outcome = generate_on(*engine_);
  EXPECT_EQ(outcome.error, ErrorKind::kRead);
  EXPECT_TRUE(mentions(outcome.message, trunk_.string()));
}

TEST(ReadFaults, AnInterruptEndsARunWhoseReadHangs) {
  for (const uint64_t n : sampled_reads(undisturbed().reads, 10)) {
    const auto shared = control();
    const auto engine =
        open_faulty(fault_options(fault_model(), fault_trunk(false)), {.hang_read = n}, shared);
    std::thread watcher([&] {
      while (!shared->hanging) std::this_thread::yield();
      engine->interrupt();
    });
    // The read is let go only after the run has ended: a run that waits for it never does.
    const FaultyOutcome outcome = generate_on(*engine);
    watcher.join();
    EXPECT_EQ(outcome.error, ErrorKind::kInterrupted) << "read " << n << ": " << outcome.message;
    shared->release = true;
  }
}

}  // namespace
}  // namespace k3::test
