#include "engine/machine.h"

#include <gtest/gtest.h>

#include "support/messages.h"

namespace k3::engine {
namespace {

using test::error_of;
using test::mentions;

TEST(SafeBudget, LeavesATenthOfWhatIsAvailable) {
  HostLimits limits;
  limits.memory_available = Bytes{10'000'000'000};
  EXPECT_EQ(safe_budget(limits, Bytes{}), Bytes{9'000'000'000});
}

TEST(SafeBudget, CountsWhatTheProcessHoldsAlready) {
  HostLimits limits;
  limits.memory_available = Bytes{900};
  EXPECT_EQ(safe_budget(limits, Bytes{100}), Bytes{900});
}

TEST(SafeBudget, IsLoweredByTheCgroupLessWhatOthersUseThere) {
  HostLimits limits;
  limits.memory_available = Bytes{10'000};
  limits.cgroup_limit = Bytes{5'000};
  limits.cgroup_used = Bytes{1'100};
  EXPECT_EQ(safe_budget(limits, Bytes{100}), Bytes{3'600});
  limits.cgroup_used = Bytes{6'000};
  EXPECT_EQ(safe_budget(limits, Bytes{100}), Bytes{0});
}

TEST(SafeBudget, IsLoweredByTheLimitOfTheAddressSpace) {
  HostLimits limits;
  limits.memory_available = Bytes{10'000'000'000};
  limits.address_space = Bytes{(128u << 20) + 1'000};
  EXPECT_EQ(safe_budget(limits, Bytes{}), Bytes{900});
}

TEST(SafeBudget, IsUnknownWhereTheHostTellsNothing) {
  EXPECT_EQ(safe_budget({}, Bytes{}), std::nullopt);
}

TEST(CheckBudget, EqualToTheLimitAfterRoundingToPagesIsFine) {
  HostLimits limits;
  limits.cgroup_limit = Bytes{999'997'440};  // what the kernel makes of 10^9
  EXPECT_NO_THROW(check_budget(limits, Bytes{1'000'000'000}));
}

TEST(CheckBudget, MoreThanTheLimitIsRefusedNamingIt) {
  HostLimits limits;
  limits.cgroup_limit = Bytes{999'997'440};
  const std::string message =
      error_of(ErrorKind::kBudget, [&] { check_budget(limits, Bytes{1'100'000'000}); });
  EXPECT_TRUE(mentions(message, "999997440"));
  EXPECT_TRUE(mentions(message, "1.10 GB"));
}

TEST(CheckBudget, WithoutALimitAnythingGoes) {
  EXPECT_NO_THROW(check_budget({}, Bytes{uint64_t{1} << 50}));
}

}  // namespace
}  // namespace k3::engine
