// Sequences that are saved, damaged, loaded, branched and found again, through the engine.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cstddef>
#include <fstream>
#include <map>
#include <string>

#include "base/hash.h"
#include "engine/prompt_cache.h"
#include "engine/snapshot.h"
#include "k3/error.h"
#include "model/config.h"
#include "model/state.h"
#include "support/checkpoint_maker.h"
#include "support/engine_runs.h"
#include "support/fault_reader.h"
#include "support/messages.h"
#include "support/run_k3.h"
#include "support/sanitizers.h"

namespace k3::test {
namespace {

namespace fs = std::filesystem;
using Ids = std::vector<uint32_t>;

constexpr uint64_t kVocabulary = 256;
constexpr uint64_t kBudget = budget_of(100'000'000);

Ids joined(Ids a, const Ids& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

std::string bytes_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// In its scope this process can open so many more files, and no others.
class FewFiles {
 public:
  explicit FewFiles(rlim_t more) {
    EXPECT_EQ(::getrlimit(RLIMIT_NOFILE, &before_), 0);
    const int next = ::dup(STDERR_FILENO);
    ::close(next);
    const rlimit few{static_cast<rlim_t>(next) + more, before_.rlim_max};
    EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
  }
  ~FewFiles() { ::setrlimit(RLIMIT_NOFILE, &before_); }

 private:
  rlimit before_{};
};

class Snapshots : public testing::Test {
 protected:
  static void SetUpTestSuite() { shared_model = new PackedModel("random-a"); }
  static void TearDownTestSuite() { delete shared_model; }

  static EngineOptions options(const Ids& prompt, uint64_t new_tokens) {
    EngineOptions options;
    options.model = shared_model->path();
    options.budget = Bytes{kBudget};
    options.threads = 1;
    options.prompt_tokens = prompt.size();
    options.new_tokens = new_tokens;
    options.resume.prompt = prompt;
    options.undo = true;
    return options;
  }
  EngineOptions options_with(const fs::path& snapshot, const Ids& prompt, uint64_t more) const {
    EngineOptions with = options(prompt, more);
    with.resume.file = snapshot;
    return with;
  }

  struct Run {
    std::string receipt;
    Ids ids;
    uint64_t reused;
  };
  /// The whole of `prompt`, what is restored too, and `new_tokens` more.
  static Run run(Engine& engine, const Ids& prompt, uint64_t new_tokens) {
    ReceiptHooks kept;
    engine.generate(std::span(prompt).subspan(engine.position()),
                    {.max_tokens = new_tokens, .eos_ids = {}, .stop_ids = {}}, kept.hooks());
    return {kept.receipt(prompt), kept.ids(), engine.stats().reused_tokens};
  }
  static Run run(const EngineOptions& with, uint64_t new_tokens) {
    return run(*Engine::open(with), with.resume.prompt, new_tokens);
  }

  /// Reads of a run in which none fails.
  static uint64_t count_reads(const EngineOptions& with, uint64_t new_tokens) {
    const auto control = std::make_shared<FaultControl>();
    const auto engine = Engine::open(
        with, std::make_unique<FaultReader>(io::make_pread_reader(8), Faults{}, control));
    run(*engine, with.resume.prompt, new_tokens);
    return control->reads;
  }

  /// Takes `prompt` in, goes on for `new_tokens` and saves; the ids of the whole.
  Ids save(const fs::path& to, const Ids& prompt, uint64_t new_tokens) const {
    const auto engine = Engine::open(options(prompt, new_tokens));
    const Ids all = joined(prompt, run(*engine, prompt, new_tokens).ids);
    engine->save(to, all);
    return all;
  }

  static std::string failure(const EngineOptions& with, ErrorKind kind) {
    try {
      Engine::open(with);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), kind);
      return error.what();
    }
    return "no failure";
  }

  static inline PackedModel* shared_model = nullptr;
  TempDir dir;
  fs::path file = dir.path() / "talk.k3seq";
};

TEST_F(Snapshots, AResumedSequenceGivesTheReceiptOfAFreshRun) {
  const Ids first = save(file, some_ids(40, kVocabulary), 6);
  for (const size_t more : {0, 1, 30}) {
    const Ids prompt = joined(first, some_ids(more, kVocabulary, 5));
    const Run resumed = run(options_with(file, prompt, 8), 8);
    EXPECT_EQ(resumed.receipt, run(options(prompt, 8), 8).receipt) << more;
    EXPECT_EQ(resumed.reused, 45u);  // the last id generated is pending
  }
}

TEST_F(Snapshots, KeepTheIdThatIsNotTakenInYet) {
  const Ids all = save(file, some_ids(10, kVocabulary), 3);
  const SavedIds saved = read_saved_ids(file);
  EXPECT_EQ(saved.ids, all);
  EXPECT_EQ(saved.taken_in, 12u);
}

TEST_F(Snapshots, GoOnFromTheSavedLogitsWhenThereIsNothingNewToTakeIn) {
  const Ids prompt = some_ids(20, kVocabulary);
  save(file, prompt, 0);
  const auto engine = Engine::open(options_with(file, prompt, 5));
  EXPECT_EQ(run(*engine, prompt, 1).ids, run(options(prompt, 5), 1).ids);
  EXPECT_EQ(engine->stats().passes, 0u);
  EXPECT_EQ(engine->stats().trunk_bytes, 0u);
}

TEST_F(Snapshots, BranchFromACommonBeginning) {
  const Ids base = save(file, some_ids(33, kVocabulary), 0);
  for (const uint64_t seed : {7, 8}) {
    const Ids prompt = joined(base, some_ids(9, kVocabulary, seed));
    EXPECT_EQ(run(options_with(file, prompt, 4), 4).receipt, run(options(prompt, 4), 4).receipt);
  }
}

TEST_F(Snapshots, SavedAgainWithoutAStepAreTheSameBytes) {
  const Ids all = save(file, some_ids(20, kVocabulary), 4);
  const auto engine = Engine::open(options_with(file, all, 1));
  engine->save(dir.path() / "again", all);
  EXPECT_TRUE(bytes_of(file) == bytes_of(dir.path() / "again"));
}

TEST_F(Snapshots, AnyDamagedByteIsRefused) {
  const Ids all = save(file, some_ids(4, kVocabulary), 1);
  const std::string whole = bytes_of(file);
  const size_t step = whole.size() / 97;
  for (size_t at = 0; at < whole.size(); at += at < 128 ? 1 : step) {
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x10);
    std::ofstream(dir.path() / "damaged", std::ios::binary) << damaged;
    const std::string found =
        failure(options_with(dir.path() / "damaged", all, 1), ErrorKind::kCheckpoint);
    EXPECT_NE(found.find("damaged: "), std::string::npos) << at << ": " << found;
  }
}

TEST_F(Snapshots, CutAndExtendedFilesAreRefused) {
  const Ids all = save(file, some_ids(4, kVocabulary), 1);
  const uint64_t whole = fs::file_size(file);
  for (const uint64_t size :
       {uint64_t{0}, uint64_t{79}, uint64_t{80}, whole / 2, whole - 1, whole + 1}) {
    fs::resize_file(file, size);
    const std::string found = failure(options_with(file, all, 1), ErrorKind::kCheckpoint);
    EXPECT_NE(found.find(file.string()), std::string::npos) << found;
  }
}

TEST_F(Snapshots, AnotherVersionIsRefusedByItsNumber) {
  const Ids all = save(file, some_ids(4, kVocabulary), 1);
  std::fstream stream(file, std::ios::binary | std::ios::in | std::ios::out);
  stream.seekp(8);
  stream.put(7);
  stream.close();
  const std::string found = failure(options_with(file, all, 1), ErrorKind::kCheckpoint);
  EXPECT_NE(found.find("version 7, this program reads version 1"), std::string::npos) << found;
}

TEST_F(Snapshots, AnotherModelIsRefused) {
  const Ids all = save(file, some_ids(4, kVocabulary), 1);
  const PackedModel other("random-c");
  EngineOptions with = options_with(file, all, 1);
  with.model = other.path();
  EXPECT_NE(failure(with, ErrorKind::kCheckpoint).find("another model"), std::string::npos);
}

TEST_F(Snapshots, TheSameShapeWithOtherWeightsIsRefused) {
  std::array<fs::path, 2> models;
  for (uint64_t seed : {0, 1}) {
    models[seed] = dir.path() / fmt::format("{}", seed);
    make_checkpoint(models[seed], {.config = three_layer_config(), .seed = seed + 1});
    ASSERT_EQ(run_k3({.args = {"pack", models[seed].string(), "-q"}}).exit_code, 0);
  }
  const Ids prompt = {1, 2, 3};
  EngineOptions with = options(prompt, 1);
  with.model = models[0];
  Engine::open(with)->save(file, prompt);
  with.resume.file = file;
  EXPECT_NO_THROW(Engine::open(with));
  with.model = models[1];
  const std::string found = failure(with, ErrorKind::kCheckpoint);
  EXPECT_NE(found.find("same shape with other weights"), std::string::npos) << found;
}

TEST_F(Snapshots, AFailedStepIsUndoneAndTheSequenceCanBeSaved) {
  const Ids prompt = some_ids(12, kVocabulary);
  const Ids all = joined(prompt, run(options(prompt, 6), 6).ids);
  EngineOptions with = options(prompt, 6);
  with.budget = shared_model->least_budget(18) + Bytes{200'000} + kSanitizersGrowth;
  const uint64_t reads = count_reads(with, 6);
  for (const uint64_t tenths : {1, 3, 5, 7, 9}) {
    const Faults faults{.fail_read = 1 + reads * tenths / 10};
    const auto engine =
        Engine::open(with, std::make_unique<FaultReader>(io::make_pread_reader(8), faults,
                                                         std::make_shared<FaultControl>()));
    ASSERT_GT(engine->plan().undo.value, 0u);
    EXPECT_THROW(run(*engine, prompt, 6), Error) << faults.fail_read << " of " << reads;
    ASSERT_TRUE(engine->whole());
    engine->save(file, all);
    EXPECT_EQ(run(options_with(file, all, 4), 4).receipt, run(options(all, 4), 4).receipt);
  }
}

TEST_F(Snapshots, AFailedStepWithoutACopyOfTheStatesLeavesNothingToSave) {
  const Ids prompt = some_ids(12, kVocabulary);
  EngineOptions with = options(prompt, 6);
  with.undo = false;
  const auto engine = Engine::open(
      with, std::make_unique<FaultReader>(io::make_pread_reader(8), Faults{.fail_read = 50},
                                          std::make_shared<FaultControl>()));
  EXPECT_EQ(engine->plan().undo.value, 0u);
  EXPECT_THROW(run(*engine, prompt, 6), Error);
  EXPECT_FALSE(engine->whole());
  error_of(ErrorKind::kUsage, [&] { run(*engine, prompt, 6); });
}

TEST_F(Snapshots, AnEngineGoesOnAfterAFailedStepWithTheBitsOfAFreshRun) {
  const Ids prompt = some_ids(12, kVocabulary);
  const std::string fresh = run(options(prompt, 6), 6).receipt;
  EngineOptions with = options(prompt, 6);
  with.budget = shared_model->least_budget(18) + Bytes{200'000} + kSanitizersGrowth;
  const uint64_t reads = count_reads(with, 6);
  uint64_t failures = 0;
  for (uint64_t n = 1; n < reads; n += 1 + reads / 25) {
    const auto engine = Engine::open(
        with, std::make_unique<FaultReader>(io::make_pread_reader(8), Faults{.fail_read = n},
                                            std::make_shared<FaultControl>()));
    ReceiptHooks kept;
    const auto go_on = [&] {
      const Ids all = joined(prompt, kept.ids());
      engine->generate(std::span(all).subspan(engine->position()),
                       {.max_tokens = 6 - kept.ids().size(), .eos_ids = {}, .stop_ids = {}},
                       kept.hooks());
    };
    try {
      go_on();
    } catch (const Error&) {
      ++failures;
      go_on();
    }
    EXPECT_EQ(kept.receipt(prompt), fresh) << "read " << n << " of " << reads;
  }
  EXPECT_GT(failures, 20u);
}

TEST_F(Snapshots, OneThatIsCompleteIsNotTakenBackWhenItsDirectoryCannotBeSynced) {
  const Ids prompt = {1, 2, 3};
  const auto engine = Engine::open(options(prompt, 1));
  std::string message;
  {
    const FewFiles only_the_partial_one(1);
    message = error_of(ErrorKind::kInternal, [&] { engine->save(file, prompt); });
  }
  EXPECT_TRUE(mentions(message, "syncing " + dir.path().string())) << message;
  EXPECT_EQ(read_saved_ids(file).ids, prompt);
}

TEST_F(Snapshots, ACacheThatCannotBeReadIsAUsageErrorAtOpeningAndAWarningAfterTheRun) {
  const Ids prompt = {1, 2, 3};
  const fs::path cache = dir.path() / "cache";
  const engine::ModelIdentity model{};
  const engine::PromptCache opened(cache, model);
  const auto engine = Engine::open(options(prompt, 1));
  run(*engine, prompt, 0);
  engine->save_to_cache(cache, prompt);
  const FewFiles none(0);
  const std::string message = error_of(ErrorKind::kUsage, [&] { opened.find(prompt); });
  EXPECT_TRUE(mentions(message, cache.string() + " cannot be read")) << message;
  EXPECT_NO_THROW(engine->save_to_cache(cache, prompt));  // it is there already
}

TEST_F(Snapshots, AHeaderWhoseCountsOverflowIsRefusedAsDamaged) {
  engine::SnapshotHeader header{};
  std::copy_n(engine::kSnapshotMagic, sizeof header.magic, header.magic);
  header.version = engine::kSnapshotVersion;
  header.header_bytes = sizeof header;
  uint64_t engine::SnapshotHeader::*const counts[] = {&engine::SnapshotHeader::id_count,
                                                      &engine::SnapshotHeader::state_bytes,
                                                      &engine::SnapshotHeader::logits_bytes};
  for (const auto count : counts) {
    header.*count = UINT64_MAX;
    header.header_checksum =
        checksum(std::as_bytes(std::span(&header, 1))
                     .first(offsetof(engine::SnapshotHeader, header_checksum)));
    std::ofstream(file, std::ios::binary)
        .write(reinterpret_cast<const char*>(&header), sizeof header);
    EXPECT_TRUE(mentions(failure(options_with(file, {1}, 1), ErrorKind::kCheckpoint), "damaged"));
    header.*count = 0;
  }
}

/// Cuts a file when the engine takes the reader up: the snapshots are open then, and not yet read.
class ReaderThatCuts : public FaultReader {
 public:
  ReaderThatCuts(fs::path file, uint64_t size)
      : FaultReader(io::make_pread_reader(8), Faults{}, std::make_shared<FaultControl>()),
        file_(std::move(file)),
        size_(size) {}
  size_t depth() const override {
    std::error_code gone;  // when the reader is asked again
    fs::resize_file(file_, size_, gone);
    return FaultReader::depth();
  }

 private:
  fs::path file_;
  uint64_t size_;
};

/// Where the sections of a snapshot end: states, tails, cache rows of each layer, logits, checksum.
std::vector<uint64_t> section_ends(const fs::path& model, const Ids& ids) {
  using State = model::SequenceState;
  const model::Config c = model::load_config(model);
  std::vector<uint64_t> floats = {State::kda_floats(c), State::conv_floats(c)};
  floats.insert(floats.end(), c.mla_layers(), ids.size() * c.cache_width());
  floats.push_back(c.vocab_size);
  floats.push_back(2);
  uint64_t end = 80 + 4 * ids.size();
  for (uint64_t& section : floats) section = end += 4 * section;
  return floats;
}

TEST_F(Snapshots, OneOfACacheThatEndsWhileItIsReadLeavesTheBitsOfAFreshRun) {
  const Ids saved = some_ids(20, kVocabulary);
  const Ids prompt = joined(saved, some_ids(3, kVocabulary, 5));
  const std::string fresh = run(options(prompt, 4), 4).receipt;
  EngineOptions with = options(prompt, 4);
  with.resume.cache = dir.path() / "cache";
  for (const uint64_t end : section_ends(with.model, saved)) {
    const auto saving = Engine::open(options(saved, 0));
    run(*saving, saved, 0);
    saving->save_to_cache(*with.resume.cache, saved);
    const fs::path saved_at = fs::directory_iterator(*with.resume.cache)->path();
    ASSERT_LE(end, fs::file_size(saved_at));
    const auto engine = Engine::open(with, std::make_unique<ReaderThatCuts>(saved_at, end - 4));
    const Run result = run(*engine, prompt, 4);
    EXPECT_EQ(result.reused, 0u) << end;
    EXPECT_EQ(result.receipt, fresh) << end;
    EXPECT_FALSE(fs::exists(saved_at));
  }
}

// ---- The program.

class SavedByTheProgram : public Snapshots {
 protected:
  K3Result generate(std::vector<std::string> more, std::map<int, rlim_t> limits = {}) const {
    more.insert(more.begin(), {"generate", shared_model->path().string(), "--ignore-eos",
                               "--budget", std::to_string(kBudget)});
    return run_k3({.args = std::move(more), .limits = std::move(limits)});
  }
};

TEST_F(SavedByTheProgram, AFileThatCannotGrowLeavesTheOneBeforeUntouched) {
  ASSERT_EQ(generate({"--ids", "1,2,3", "-n", "2", "--save", file.string()}).exit_code, 0);
  const std::string before = bytes_of(file);
  const K3Result full =
      generate({"--ids", "4,5", "-n", "2", "--save", file.string()}, {{RLIMIT_FSIZE, 20000}});
  EXPECT_EQ(full.exit_code, 1) << full.err;
  EXPECT_NE(full.err.find("saving the sequence to " + file.string()), std::string::npos)
      << full.err;
  EXPECT_TRUE(bytes_of(file) == before);
  EXPECT_FALSE(fs::exists(file.string() + ".partial"));
}

TEST_F(SavedByTheProgram, APlaceThatCannotBeWrittenIsRefusedBeforeTheRun) {
  const K3Result result =
      generate({"--ids", "1,2", "--save", (dir.path() / "no" / "talk").string()});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_EQ(result.out, "");
  EXPECT_NE(result.err.find("--save"), std::string::npos) << result.err;
}

TEST_F(SavedByTheProgram, AnInterruptedRunIsSavedAndGoesOnWithTheSameBits) {
  K3Process process(
      {.args = {"generate", shared_model->path().string(), "--ignore-eos", "-q", "--budget",
                std::to_string(kBudget), "--ids", "1,2,3", "-n", "8000", "--save", file.string()}});
  process.read_out(50);
  process.send_signal(SIGINT);
  const K3Result interrupted = process.wait();
  EXPECT_EQ(interrupted.exit_code, 130) << interrupted.err;
  EXPECT_NE(interrupted.err.find("is in " + file.string()), std::string::npos) << interrupted.err;
  const Ids saved = read_saved_ids(file).ids;
  EXPECT_GT(saved.size(), 3u);
  EXPECT_EQ(run(options_with(file, saved, 3), 3).receipt, run(options(saved, 3), 3).receipt);
}

// ---- Prompt caches.

class PromptCaches : public SavedByTheProgram {
 protected:
  Json run_cached(const std::string& ids, const std::string& new_tokens = "1") const {
    const K3Result result =
        generate({"--ids", ids, "-n", new_tokens, "--prompt-cache", cache.string(), "--json"});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    last_stderr = result.err;
    return parse_json(result.out, "stdout");
  }
  size_t count() const {
    return static_cast<size_t>(
        std::distance(fs::directory_iterator(cache), fs::directory_iterator()));
  }
  static uint64_t reused(const Json& json) { return json.at("stats").at("reused_tokens"); }

  fs::path cache = dir.path() / "cache";
  mutable std::string last_stderr;
};

TEST_F(PromptCaches, TheLongestSavedBeginningIsReusedAndTheReceiptStays) {
  const Json first = run_cached("1,2,3,4,5,6", "3");
  EXPECT_EQ(reused(first), 0u);
  const Json same = run_cached("1,2,3,4,5,6", "3");
  EXPECT_EQ(reused(same), 6u);
  EXPECT_EQ(same.at("receipt"), first.at("receipt"));
  EXPECT_EQ(same.at("stats").at("prompt_tokens"), 6);
  EXPECT_EQ(reused(run_cached("1,2,3,4,5,6,7,8")), 6u);
  EXPECT_EQ(reused(run_cached("1,2,3,4,5,6,7,8,9")), 8u);
  EXPECT_EQ(reused(run_cached("1,2,3,4,5")), 0u);  // inside of a saved one: recomputed
  EXPECT_EQ(reused(run_cached("1,2,3,4,9,6,7")), 0u);
}

TEST_F(PromptCaches, TheEndOfTheRunIsSavedToo) {
  const Json first = run_cached("10,20,30", "5");
  std::string ids = "10,20,30";
  for (const uint32_t id : first.at("ids")) ids += fmt::format(",{}", id);
  EXPECT_EQ(reused(run_cached(ids)), 7u);
}

TEST_F(PromptCaches, ADamagedSnapshotCostsOneWarningAndItsTokens) {
  const Json first = run_cached("1,2,3,4", "1");
  ASSERT_EQ(count(), 1u);
  const fs::path path = fs::directory_iterator(cache)->path();
  fs::resize_file(path, fs::file_size(path) - 1);
  const Json second = run_cached("1,2,3,4", "1");
  EXPECT_EQ(reused(second), 0u);
  const size_t warning = last_stderr.find("the prompt cache loses a snapshot");
  EXPECT_NE(warning, std::string::npos) << last_stderr;
  EXPECT_EQ(last_stderr.find("the prompt cache", warning + 1), std::string::npos) << last_stderr;
  EXPECT_EQ(second.at("receipt"), first.at("receipt"));
  EXPECT_EQ(reused(run_cached("1,2,3,4", "1")), 4u);  // and it was written again
}

TEST_F(PromptCaches, NeverRemoveWhatTheyDidNotMake) {
  run_cached("1,2,3");
  const std::vector<fs::path> others = {cache / "talk.k3seq", cache / "talk.k3seq.partial",
                                        cache / "0123456789abcdef-3-0123456789abcdef.k3seq"};
  for (const fs::path& other : others) {
    std::ofstream(other) << "of somebody";
    fs::last_write_time(other, fs::file_time_type::min());
  }
  for (size_t i = 0; i < prompt_cache_capacity() + 2; ++i) run_cached(fmt::format("9,9,{}", i));
  for (const fs::path& other : others) EXPECT_TRUE(fs::exists(other)) << other;
  EXPECT_EQ(count(), prompt_cache_capacity() + others.size());
}

TEST_F(PromptCaches, KeepTheOnesUsedLast) {
  run_cached("1,2,3");
  for (size_t i = 0; i < prompt_cache_capacity() - 1; ++i) {
    run_cached(fmt::format("9,9,{}", i));
    run_cached("1,2,3");  // used again and again
  }
  EXPECT_EQ(count(), prompt_cache_capacity());
  run_cached("8,8");
  EXPECT_EQ(count(), prompt_cache_capacity());
  EXPECT_EQ(reused(run_cached("9,9,0")), 0u);
  EXPECT_EQ(reused(run_cached("1,2,3")), 3u);
}

}  // namespace
}  // namespace k3::test
