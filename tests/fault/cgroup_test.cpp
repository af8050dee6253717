// A memory limit of the kernel around the program: kept, or refused in one line; never the end by
// the kernel's hand. Needs the right to make a control group (version 1 or 2).
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <optional>

#include "fault/command_run.h"
#include "support/messages.h"
#include "support/sanitizers.h"

namespace k3::test {
namespace {

namespace fs = std::filesystem;

class MemoryGroup {
 public:
  explicit MemoryGroup(uint64_t limit) {
    const std::string name = "k3-test-" + std::to_string(::getpid());
    if (make("/sys/fs/cgroup/memory/" + name, "memory.limit_in_bytes", limit)) return;
    make("/sys/fs/cgroup/" + name, "memory.max", limit);
  }
  ~MemoryGroup() {
    if (made_) ::rmdir(made_->c_str());
  }
  MemoryGroup(const MemoryGroup&) = delete;
  MemoryGroup& operator=(const MemoryGroup&) = delete;

  bool made() const { return made_.has_value(); }

  /// The same command inside the group, after `before` (shell) has run there too.
  K3Command inside(const K3Command& command, const std::string& before = ":") const {
    K3Command wrapped = command;
    wrapped.program = "/bin/sh";
    wrapped.args = {"-c",
                    "echo $$ > '" + *made_ + "/cgroup.procs' && " + before + " && exec \"$@\"",
                    "sh", K3_BINARY};
    wrapped.args.insert(wrapped.args.end(), command.args.begin(), command.args.end());
    return wrapped;
  }

 private:
  bool make(const std::string& directory, const char* file, uint64_t limit) {
    if (::mkdir(directory.c_str(), 0755) != 0) return false;
    std::ofstream out(directory + "/" + file);
    out << limit;
    out.close();
    if (out) {
      made_ = directory;
    } else {
      ::rmdir(directory.c_str());
    }
    return made();
  }

  std::optional<std::string> made_;
};

/// Why memory groups prove nothing here; nullptr where they do.
const char* no_groups_because() {
  if (kSanitized) return "sanitizers need memory of their own";
  return MemoryGroup(1 << 30).made() ? nullptr : "no control group can be made here";
}

class Cgroup : public testing::TestWithParam<uint64_t> {
 protected:
  void SetUp() override {
    if (const char* why = no_groups_because()) GTEST_SKIP() << why;
  }
};

TEST_P(Cgroup, WithoutABudgetTheRunStaysUnderNineTenthsOfTheLimitOrSaysWhatItNeeds) {
  const MemoryGroup group(GetParam());
  const K3Result result = run_k3(group.inside(generate_command(fault_model())));
  ASSERT_EQ(result.signal, 0) << "ended by the kernel";
  if (result.exit_code != 0) {
    expect_one_line(result, 5);
    EXPECT_TRUE(mentions(result.err, "is the least that would do")) << result.err;
    return;
  }
  EXPECT_EQ(receipt_of(result), undisturbed_receipt());
  const Json json = Json::parse(result.out);
  EXPECT_LE(json.at("plan").at("budget_bytes").get<uint64_t>(), GetParam() / 10 * 9);
  EXPECT_LE(json.at("stats").at("peak_rss_bytes"), json.at("plan").at("budget_bytes"));
}

TEST_P(Cgroup, ABudgetOfTheWholeLimitIsKeptAndMoreIsRefusedNamingTheLimit) {
  const MemoryGroup group(GetParam());
  const std::string limit = std::to_string(GetParam()), more = std::to_string(GetParam() * 2);
  const K3Result result =
      run_k3(group.inside(generate_command(fault_model(), {"--budget", limit})));
  ASSERT_EQ(result.signal, 0) << "ended by the kernel";
  if (result.exit_code == 0) {
    EXPECT_EQ(receipt_of(result), undisturbed_receipt());
  } else {
    expect_one_line(result, 5);
  }
  const K3Result refused =
      run_k3(group.inside(generate_command(fault_model(), {"--budget", more})));
  expect_one_line(refused, 5);
  EXPECT_TRUE(mentions(refused.err, "cgroup")) << refused.err;
}

INSTANTIATE_TEST_SUITE_P(Limits, Cgroup,
                         testing::Values(14'000'000, 20'000'000, 40'000'000, 200'000'000));

TEST_F(ModelCopy, CleanPageCacheInTheGroupDoesNotCountAsUsed) {
  if (const char* why = no_groups_because()) GTEST_SKIP() << why;
  const uint64_t limit = 100'000'000;
  const MemoryGroup group(limit);
  const std::string filler = (dir_.path() / "filler").string();
  std::ofstream(filler) << std::string(150'000'000, 'x');
  const std::string read = "sync '" + filler + "' && cat '" + filler + "' > /dev/null";
  const K3Command plan{.args = {"plan", model_.string(), "--trunk", fault_trunk(false).string(),
                                "--disk-gbps", "1", "--json"}};
  const K3Result result = run_k3(group.inside(plan, read));
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_GE(Json::parse(result.out).at("budget_bytes").get<uint64_t>(), limit / 10 * 8);
}

}  // namespace
}  // namespace k3::test
