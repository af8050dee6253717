// What the budget promises, asked of the program itself on small models: the peak stays inside, the
// bits do not change, low limits of the host are enough, and the page cache is left alone.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/unique_fd.h"
#include "support/checkpoint_maker.h"
#include "support/engine_runs.h"
#include "support/run_k3.h"
#include "support/test_data.h"

namespace k3::test {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kNewTokens = 3;

std::string joined(const std::vector<uint32_t>& ids) {
  std::string text;
  for (const uint32_t id : ids) text += (text.empty() ? "" : ",") + std::to_string(id);
  return text;
}

Json run_json(K3Command command) {
  command.args.push_back("--json");
  const K3Result result = run_k3(command);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  return result.exit_code == 0 ? parse_json(result.out, "stdout") : Json();
}

/// A small model with its trunk file and the least budget of the program for `tokens` positions.
struct BudgetModel {
  explicit BudgetModel(const std::string& name) : packed(name) {}

  uint64_t least(uint64_t tokens) const {
    return run_json({.args = {"plan", packed.path().string(), "--budget", "10G", "--disk-gbps", "1",
                              "-c", std::to_string(tokens)}})["least_budget_bytes"];
  }
  K3Command command(const std::vector<uint32_t>& prompt, uint64_t budget) const {
    return {.args = {"generate", packed.path().string(), "--budget", std::to_string(budget), "-n",
                     std::to_string(kNewTokens), "--ignore-eos", "-q", "--ids", joined(prompt)}};
  }
  Json run(const std::vector<uint32_t>& prompt, uint64_t budget) const {
    return run_json(command(prompt, budget));
  }

  PackedModel packed;
};

/// Peak and bits of prompts of one length at budgets so many times the least.
void expect_bounded(const BudgetModel& model, size_t length, const std::vector<uint64_t>& times) {
  const auto prompt = some_ids(length, 1280, length);
  const uint64_t least = model.least(length + kNewTokens);
  std::string receipt;
  for (const uint64_t factor : times) {
    const uint64_t budget = least * factor;
    const Json json = model.run(prompt, budget);
    ASSERT_FALSE(json.is_null());
    EXPECT_LE(json["stats"]["peak_rss_bytes"], budget) << length << " tokens, " << factor;
    EXPECT_LE(json["plan"]["total_bytes"], budget);
    if (receipt.empty()) receipt = json["receipt"];
    EXPECT_EQ(json["receipt"], receipt) << length << " tokens, " << factor;
  }
}

/// With K3_FULL_BUDGET set: twenty lengths at the floor, twice and eight times (three minutes).
TEST(Budget, BoundsThePeakAndChangesNoBitForPromptsOfAllLengths) {
  if (kSanitized) GTEST_SKIP() << "a sanitizer's memory is in the peak too";
  const BudgetModel model("tiny-k3");
  if (std::getenv("K3_FULL_BUDGET") == nullptr) {
    for (const size_t length : {1, 7, 64, 256}) expect_bounded(model, length, {1, 2, 8});
    return expect_bounded(model, 4000, {2, 8});
  }
  for (const size_t length :
       {1, 2, 3, 4, 5, 7, 10, 16, 25, 40, 64, 99, 128, 200, 256, 333, 600, 999, 2000, 4000}) {
    expect_bounded(model, length, {1, 2, 8});
  }
}

TEST(Budget, FewDescriptorsLittleLockedMemoryAndPreadGiveTheSameBits) {
  const BudgetModel model("tiny-k3");
  const auto prompt = some_ids(20, 1280);
  const uint64_t budget = model.least(20 + kNewTokens);
  const std::string receipt = model.run(prompt, budget)["receipt"];
  K3Command limited = model.command(prompt, budget);
  limited.limits = {{RLIMIT_NOFILE, 64}, {RLIMIT_MEMLOCK, 64 * 1024}};
  EXPECT_EQ(run_json(limited)["receipt"], receipt);
  K3Command pread = model.command(prompt, budget);
  pread.env = {{"K3_IO", "pread"}};
  const Json json = run_json(pread);
  EXPECT_EQ(json["receipt"], receipt);
  EXPECT_EQ(json["stats"]["io"], "pread");
}

/// Resident pages of a file, of all.
double cached_share(const fs::path& path) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  const size_t size = fs::file_size(path);
  void* const map = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, fd.get(), 0);
  std::vector<unsigned char> pages((size + 4095) / 4096);
  EXPECT_EQ(::mincore(map, size, pages.data()), 0);
  ::munmap(map, size);
  size_t resident = 0;
  for (const unsigned char page : pages) resident += page & 1;
  return static_cast<double>(resident) / static_cast<double>(pages.size());
}

TEST(Budget, LeavesNoTrunkInThePageCache) {
  const BudgetModel model("tiny-k3");
  const fs::path trunk = model.packed.path() / "trunk.k3";
  const UniqueFd fd(::open(trunk.c_str(), O_RDONLY | O_CLOEXEC));
  ::fsync(fd.get());
  ::posix_fadvise(fd.get(), 0, 0, POSIX_FADV_DONTNEED);
  if (cached_share(trunk) > 0) GTEST_SKIP() << "this file system lives in the page cache";
  const uint64_t budget = model.least(64);
  ASSERT_FALSE(model.run(some_ids(9, 1280), budget).is_null());
  EXPECT_LT(cached_share(trunk), 0.05);
}

TEST(Budget, SixteenExpertsWantedAreSixteenReadsInFlightAtTheFloor) {
  const TempDir dir;
  Json config = tiny_config();
  config["text_config"]["num_experts"] = 40;
  config["text_config"]["num_experts_per_token"] = 16;
  make_checkpoint(dir.path(), {.config = config});
  ASSERT_EQ(run_k3({.args = {"pack", dir.path().string(), "-q"}}).exit_code, 0);
  const std::vector<std::string> plan{"plan", dir.path().string(), "--budget", "1G", "-c",
                                      "8",    "--disk-gbps",       "1"};
  const uint64_t least = run_json({.args = plan})["least_budget_bytes"];
  const Json json =
      run_json({.args = {"generate", dir.path().string(), "--budget", std::to_string(least), "-n",
                         "4", "--ignore-eos", "-q", "--ids", "1,2,3"}});
  EXPECT_GE(json["stats"]["max_reads_in_flight"], 16u);
}

TEST(Budget, BeyondThisMachineCanBePlanned) {
  const BudgetModel model("random-a");
  EXPECT_EQ(run_k3({.args = {"plan", model.packed.path().string(), "--budget", "900T",
                             "--disk-gbps", "1"}})
                .exit_code,
            0);
}

}  // namespace
}  // namespace k3::test
