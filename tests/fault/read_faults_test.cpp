// Reads of a run that fail, come short, late, in another order or with other bytes.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <functional>
#include <map>
#include <optional>
#include <regex>
#include <set>
#include <thread>

#include "fault/command_run.h"
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
  static const auto counter = control();
  static const Undisturbed known{run_with({}, counter), counter->reads};
  return known;
}

const Undisturbed& undisturbed_small() {
  static const auto counter = control();
  static const Undisturbed known{run_small_with({}, counter), counter->reads};
  return known;
}

void expect_same(const FaultyOutcome& outcome, const FaultyOutcome& known) {
  EXPECT_FALSE(outcome.error) << outcome.message;
  EXPECT_EQ(outcome.receipt, known.receipt);
}

void expect_undisturbed(const FaultyOutcome& outcome) {
  expect_same(outcome, undisturbed().outcome);
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

/// A range of bytes that a run may read, and what is in it.
struct Place {
  uint64_t offset = 0;
  uint64_t length = 0;
  std::string what;
};

/// All of them, as they are written in messages: "PATH at OFFSET (LENGTH bytes, WHAT)".
class Places {
 public:
  Places(const fs::path& model, const fs::path& trunk_path)
      : model_(model), trunk_(weights::TrunkFile::open(trunk_path)) {
    for (const weights::ChunkRecord& chunk : trunk_.chunks()) {
      add(trunk_path, {chunk.offset, chunk.stored_bytes, trunk_.describe(chunk)});
    }
    const weights::ManifestHeader& header = trunk_.header();
    for (size_t layer = 0; layer < header.expert_layer_count; ++layer) {
      for (uint32_t e = 0; e < header.experts_per_layer; ++e) add_expert(layer, e);
    }
    const uint64_t bytes = weights::embedding_row_bytes(header);
    for (uint64_t id = 0; id < header.embedding_rows; ++id) {
      add(shard(header.embedding_shard), {header.embedding_offset + id * bytes, bytes,
                                          "embedding of token " + std::to_string(id)});
    }
  }
  /// The one with this name; of no bytes where there is none.
  Place find(const std::string& name) const {
    const auto found = by_name_.find(name);
    return found == by_name_.end() ? Place{} : found->second;
  }
  const weights::TrunkFile& trunk() const { return trunk_; }
  fs::path shard(uint32_t number) const { return model_ / trunk_.name(trunk_.shards()[number]); }

 private:
  /// Parts that lie together are read as one. The first layer of these models has no experts.
  void add_expert(size_t layer, uint32_t e) {
    const weights::ExpertRecord& expert = trunk_.expert(layer, e);
    Place place{0, 0, fmt::format("layer {}, expert {}", layer + 1, e)};
    for (size_t part = 0; part < weights::kExpertParts; ++part) {
      if (expert.offset[part] != place.offset + place.length) {
        if (place.length > 0) add(shard(expert.shard), place);
        place.offset = expert.offset[part];
        place.length = 0;
      }
      place.length += trunk_.header().expert_part_bytes[part];
    }
    add(shard(expert.shard), place);
  }
  void add(const fs::path& path, const Place& place) {
    by_name_[fmt::format("{} at {} ({} bytes, {})", path.string(), place.offset, place.length,
                         place.what)] = place;
  }

  fs::path model_;
  weights::TrunkFile trunk_;
  std::map<std::string, Place> by_name_;
};

void expect_tokens_before(const FaultyOutcome& outcome, const FaultyOutcome& known) {
  const std::vector<uint32_t>& all = known.ids;
  ASSERT_LT(outcome.ids.size(), all.size());
  EXPECT_TRUE(std::equal(outcome.ids.begin(), outcome.ids.end(), all.begin()));
}

/// Ended with exit code 4 and a message that names a place as a whole, and a byte of it.
Place expect_read_error(const FaultyOutcome& outcome, const std::string& found) {
  static const Places places(small_fault_model(), small_fault_trunk());
  static const std::regex form(R"(reading (.*): (.*) at (\d+); .*)");
  EXPECT_EQ(outcome.error, ErrorKind::kRead) << outcome.message;
  expect_tokens_before(outcome, undisturbed_small().outcome);
  std::smatch parts;
  if (!std::regex_match(outcome.message, parts, form)) {
    ADD_FAILURE() << outcome.message;
    return {};
  }
  const Place place = places.find(parts[1]);
  EXPECT_GT(place.length, 0u) << outcome.message;
  EXPECT_EQ(parts[2], found);
  const uint64_t at = std::stoull(parts[3]);
  EXPECT_GE(at, io::block_floor(place.offset)) << outcome.message;
  EXPECT_LT(at, place.offset + place.length) << outcome.message;
  return place;
}

/// Runs the small model with a fault in read 1, 2, ... until a run has no such read.
void spoil_every_read(const std::function<Faults(uint64_t n)>& faults,
                      const std::function<void(const FaultyOutcome&)>& check) {
  const Undisturbed& known = undisturbed_small();
  ASSERT_EQ(known.outcome.ids.size(), kRunTokens) << known.outcome.message;
  for (uint64_t n = 1; !testing::Test::HasFailure(); ++n) {
    SCOPED_TRACE(n);
    const auto counter = control();
    const FaultyOutcome outcome = run_small_with(faults(n), counter);
    if (counter->spoiled == 0) {
      EXPECT_GT(n, known.reads / 2);  // more is kept where this process has grown less
      return expect_same(outcome, known.outcome);
    }
    check(outcome);
  }
}

/// Of what a failed read was: "expert", "embedding" or "trunk", and after how many tokens.
std::string kind_of(const Place& place, size_t tokens) {
  const bool expert = place.what.starts_with("layer "), row = place.what.starts_with("embedding ");
  return fmt::format("{} after {} tokens", expert ? "expert" : row ? "embedding" : "trunk", tokens);
}

TEST(ReadFaults, AFailureOfAnyReadEndsTheRunSayingWhatWasReadWhereAfterTheTokensBeforeIt) {
  std::set<std::string> kinds;
  spoil_every_read([](uint64_t n) { return Faults{.fail_read = n}; },
                   [&](const FaultyOutcome& outcome) {
                     const Place place = expect_read_error(outcome, "Input/output error");
                     kinds.insert(kind_of(place, outcome.ids.size()));
                   });
  // A token has one read of the embedding but the prompt many: reads that change places between
  // runs may keep any one from being the Nth.
  for (size_t tokens = 0; tokens < kRunTokens; ++tokens) {
    EXPECT_TRUE(kinds.contains(fmt::format("expert after {} tokens", tokens)));
    EXPECT_TRUE(kinds.contains(fmt::format("trunk after {} tokens", tokens)));
  }
  EXPECT_TRUE(kinds.contains("embedding after 0 tokens"));
}

TEST(ReadFaults, AnEarlyEndOfAFileEndsTheRunSayingThatItIsIncomplete) {
  spoil_every_read([](uint64_t n) { return Faults{.end_of_file_read = n}; },
                   [](const FaultyOutcome& outcome) {
                     expect_read_error(outcome, "No data available");
                     EXPECT_TRUE(mentions(outcome.message, "it is incomplete or was changed"));
                   });
}

TEST(ReadFaults, ARefusalOfAnyOneDirectReadIsSurvivedAndCounted) {
  if (!undisturbed_small().outcome.stats.direct_io) GTEST_SKIP() << "no direct reads here";
  testing::internal::CaptureStderr();  // a warning of each run
  spoil_every_read([](uint64_t n) { return Faults{.fail_read = n, .fail_errno = EINVAL}; },
                   [](const FaultyOutcome& outcome) {
                     expect_same(outcome, undisturbed_small().outcome);
                     EXPECT_EQ(outcome.stats.direct_fallbacks, 1u);
                   });
  testing::internal::GetCapturedStderr();
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

/// A model that is damaged while an engine has it open, when what opening checks is past: before
/// the run, or after so many tokens of it.
class DamagedWhileOpen : public testing::TestWithParam<size_t> {
 protected:
  void open(bool expert_checksums) {
    fs::copy(fault_model(), model_, fs::copy_options::recursive);
    fs::permissions(model_, fs::perms::owner_all);
    fs::copy_file(fault_trunk(expert_checksums), trunk_);
    places_.emplace(model_, trunk_);
    engine_ = open_faulty(fault_options(model_, trunk_), {}, control());
  }
  FaultyOutcome run(const AfterToken& damage) {
    if (GetParam() == 0) damage({});
    return generate_on(*engine_, [&](const std::vector<uint32_t>& ids) {
      if (ids.size() == GetParam()) damage(ids);
    });
  }
  const weights::TrunkFile& trunk() const { return places_->trunk(); }

  static void change(const fs::path& path, uint64_t offset,
                     const std::function<char(char)>& changed) {
    fs::permissions(path, fs::perms::owner_read | fs::perms::owner_write);
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(static_cast<std::streamoff>(offset));
    const char old = static_cast<char>(file.get());
    file.seekp(static_cast<std::streamoff>(offset));
    file.put(changed(old));
    ASSERT_TRUE(file.flush());
  }
  static void flip(const fs::path& path, uint64_t offset) {
    change(path, offset, [](char byte) { return static_cast<char>(byte ^ 0x40); });
  }
  /// One byte of the same part of every expert.
  void change_experts(weights::ExpertPart part, uint64_t at,
                      const std::function<char(char)>& changed) {
    for (size_t layer = 0; layer < trunk().header().expert_layer_count; ++layer) {
      for (uint32_t e = 0; e < trunk().header().experts_per_layer; ++e) {
        const weights::ExpertRecord& expert = trunk().expert(layer, e);
        change(places_->shard(expert.shard), expert.offset[static_cast<size_t>(part)] + at,
               changed);
      }
    }
  }
  /// Ended with exit code 4 where the damage was met, with a message that names a place as a whole.
  Place expect_damage(const FaultyOutcome& outcome, const std::string& verb, uint64_t retries) {
    EXPECT_EQ(outcome.error, ErrorKind::kRead);
    EXPECT_EQ(outcome.ids.size(), GetParam());
    expect_tokens_before(outcome, undisturbed().outcome);
    EXPECT_EQ(outcome.stats.checksum_retries, retries);
    std::string name = outcome.message.substr(0, outcome.message.find(verb));
    const std::string_view intro = ": the bytes";
    const size_t at = name.find(intro);
    if (at != name.npos) name.erase(at, intro.size());
    const Place place = places_->find(name);
    EXPECT_GT(place.length, 0u) << outcome.message;
    return place;
  }

  TempDir dir_;
  fs::path model_ = dir_.path() / "model";
  fs::path trunk_ = dir_.path() / "t.k3";
  std::optional<Places> places_;
  std::unique_ptr<Engine> engine_;
};

INSTANTIATE_TEST_SUITE_P(Tokens, DamagedWhileOpen, testing::Range(size_t{0}, size_t{kRunTokens}));

// Of the later chunks: the first ones of a pass may be in memory before the last token is out.
TEST_P(DamagedWhileOpen, AChunkThatStaysWrongIsRefusedByFileOffsetAndTensor) {
  open(false);
  const FaultyOutcome outcome = run([&](const std::vector<uint32_t>&) {
    const auto chunks = trunk().chunks();
    for (const auto& chunk : chunks.subspan(chunks.size() / 2)) {
      flip(trunk_, chunk.offset + chunk.stored_bytes - 1);
    }
  });
  const Place place = expect_damage(outcome, " do not match their checksum, read twice; ", 1);
  EXPECT_TRUE(mentions(place.what, ".weight")) << place.what;
}

TEST_P(DamagedWhileOpen, AnExpertThatStaysWrongIsRefusedWhereItsChecksumIsKnown) {
  open(true);
  const FaultyOutcome outcome = run([&](const std::vector<uint32_t>&) {
    change_experts(weights::ExpertPart::kW2Packed, 5,
                   [](char byte) { return static_cast<char>(byte ^ 0x40); });
  });
  const Place place = expect_damage(outcome, " do not match the checksum ", 1);
  EXPECT_TRUE(mentions(place.what, ", expert "));
}

TEST_P(DamagedWhileOpen, AnEmbeddingThatStaysWrongIsRefusedByShardOffsetAndToken) {
  open(false);
  uint32_t token = 200;  // of the prompt
  const FaultyOutcome outcome = run([&](const std::vector<uint32_t>& ids) {
    if (!ids.empty()) token = ids.back();
    const weights::ManifestHeader& header = trunk().header();
    const uint64_t bytes = weights::embedding_row_bytes(header);
    flip(places_->shard(header.embedding_shard), header.embedding_offset + (token + 1) * bytes - 1);
  });
  const Place place = expect_damage(outcome, " do not match the checksum ", 1);
  EXPECT_EQ(place.what, "embedding of token " + std::to_string(token));
}

TEST_P(DamagedWhileOpen, AScaleThatIsNotANumberIsRefusedByLayerExpertMatrixAndRow) {
  open(false);
  constexpr auto kPart = static_cast<size_t>(weights::ExpertPart::kW3Scale);
  const uint64_t last = trunk().header().expert_part_bytes[kPart] - 1;
  const FaultyOutcome outcome = run([&](const std::vector<uint32_t>&) {
    change_experts(weights::ExpertPart::kW3Scale, last, [](char) { return '\xff'; });
  });
  const Place place = expect_damage(outcome, " hold the scale byte 255 (not a number) in w3 ", 0);
  unsigned layer = 0, expert = 0;
  ASSERT_EQ(std::sscanf(place.what.c_str(), "layer %u, expert %u", &layer, &expert), 2);
  const uint64_t at = trunk().expert(layer - 1, expert).offset[kPart] + last;
  EXPECT_TRUE(mentions(outcome.message, ", at " + std::to_string(at) + "; "));
}

TEST_P(DamagedWhileOpen, ATrunkFileThatIsCutEndsTheRun) {
  open(false);
  const uint64_t end = trunk().chunks()[trunk().chunks().size() / 2].offset + 777;
  const FaultyOutcome outcome =
      run([&](const std::vector<uint32_t>&) { fs::resize_file(trunk_, end); });
  EXPECT_EQ(outcome.error, ErrorKind::kRead);
  EXPECT_EQ(outcome.ids.size(), GetParam());
  expect_tokens_before(outcome, undisturbed().outcome);
  EXPECT_TRUE(mentions(outcome.message, trunk_.string()));
  EXPECT_TRUE(mentions(outcome.message, "; the file ends before that"));
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

/// `k3 generate` of a prompt of one token.
K3Result generate_with(const std::string& tokens, uint64_t fail_read) {
  return run_k3(
      {.args = {"generate", fault_model().string(), "--trunk", fault_trunk(false).string(), "-q",
                "--ignore-eos", "-n", tokens, "--ids", "84", "--budget", small_budget()},
       .env = {{"K3_TEST_FAULTS", fmt::format("fail_read={}", fail_read)}},
       .program = K3_FAULTY_BINARY});
}

TEST(ReadFaults, AnExpertOfTheThirdTokenThatCannotBeReadLeavesTwoTokensAndEndsWithExitCode4) {
  const std::string two_tokens = generate_with("2", 0).out;
  ASSERT_GT(two_tokens.size(), generate_with("1", 0).out.size());
  const std::regex form(R"(k3: reading .*/tiny-k3/model-\S+ at \d+ \(\d+ bytes, layer \d+, )"
                        R"(expert \d+\): Input/output error at \d+; .*\n)");
  for (uint64_t n = 100;; n += 5) {
    const K3Result result = generate_with("4", n);
    ASSERT_NE(result.exit_code, 0) << "no such read before read " << n;
    expect_one_line(result, 4);
    if (!mentions(result.err, ", expert ") || result.out != two_tokens) continue;
    EXPECT_TRUE(std::regex_match(result.err, form)) << result.err;
    return;
  }
}

}  // namespace
}  // namespace k3::test
