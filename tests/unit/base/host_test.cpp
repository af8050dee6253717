#include "base/host.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <filesystem>
#include <fstream>

#include "support/test_data.h"

namespace k3 {
namespace {

/// A root directory with the files of /proc and /sys that a test wants.
class FakeRoot {
 public:
  void put(const std::string& path, const std::string& text) const {
    const std::filesystem::path file = dir_.path() / path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  std::string path() const { return dir_.path().string(); }
  HostLimits limits() const { return read_host_limits(path()); }

 private:
  test::TempDir dir_;
};

constexpr const char* kMountV1 =
    "24 20 0:20 / /sys/fs/cgroup/cpu rw,nosuid - cgroup cgroup rw,cpu,cpuacct\n"
    "25 20 0:21 / /sys/fs/cgroup/memory rw,nosuid shared:9 - cgroup cgroup rw,memory\n";
constexpr const char* kMountV2 = "30 20 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw\n";

TEST(HostLimits, WithoutProcAndSysEverythingIsAbsent) {
  const HostLimits limits = FakeRoot().limits();
  EXPECT_FALSE(limits.memory_available);
  EXPECT_FALSE(limits.memory_total);
  EXPECT_FALSE(limits.cgroup_limit);
  EXPECT_FALSE(limits.cgroup_used);
  EXPECT_GE(limits.usable_cores, 1u);
}

TEST(HostLimits, ReadsMemoryFromMeminfo) {
  const FakeRoot root;
  root.put("proc/meminfo", "MemTotal:       16000 kB\nMemFree: 1 kB\nMemAvailable:    8000 kB\n");
  EXPECT_EQ(root.limits().memory_total, Bytes{16'000 * 1024});
  EXPECT_EQ(root.limits().memory_available, Bytes{8'000 * 1024});
}

TEST(HostLimits, CgroupV1LimitIsTheLowestOfTheHierarchy) {
  const FakeRoot root;
  root.put("proc/self/cgroup", "4:memory:/a/b\n1:cpu,cpuacct:/x\n");
  root.put("proc/self/mountinfo", kMountV1);
  root.put("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  root.put("sys/fs/cgroup/memory/a/memory.limit_in_bytes", "1000000\n");
  root.put("sys/fs/cgroup/memory/a/memory.usage_in_bytes", "900000\n");
  root.put("sys/fs/cgroup/memory/a/memory.stat",
           "cache 1\ninactive_file 7\ntotal_inactive_file 200000\ntotal_active_file 50000\n");
  root.put("sys/fs/cgroup/memory/a/b/memory.limit_in_bytes", "2000000\n");
  EXPECT_EQ(root.limits().cgroup_limit, Bytes{1'000'000});
  EXPECT_EQ(root.limits().cgroup_used, Bytes{650'000});
}

TEST(HostLimits, CgroupV1HugeValuesAreNoLimit) {
  const FakeRoot root;
  root.put("proc/self/cgroup", "4:memory:/\n");
  root.put("proc/self/mountinfo", kMountV1);
  root.put("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  root.put("sys/fs/cgroup/memory/memory.usage_in_bytes", "5\n");
  EXPECT_FALSE(root.limits().cgroup_limit);
  EXPECT_FALSE(root.limits().cgroup_used);
}

TEST(HostLimits, CgroupV2LimitIsTheLowestOfTheHierarchy) {
  const FakeRoot root;
  root.put("proc/self/cgroup", "0::/a/b\n");
  root.put("proc/self/mountinfo", kMountV2);
  root.put("sys/fs/cgroup/a/memory.max", "max\n");
  root.put("sys/fs/cgroup/a/b/memory.max", "4096000\n");
  root.put("sys/fs/cgroup/a/b/memory.current", "3000\n");
  root.put("sys/fs/cgroup/a/b/memory.stat",
           "anon 1\nfile 2\ninactive_file 2000\nactive_file 2000\n");
  EXPECT_EQ(root.limits().cgroup_limit, Bytes{4'096'000});
  EXPECT_EQ(root.limits().cgroup_used, Bytes{0});  // never below zero
}

TEST(HostLimits, CgroupMountOfAContainerShowsAPartOfTheHierarchy) {
  const FakeRoot root;
  root.put("proc/self/cgroup", "0::/docker/abc/inner\n");
  root.put("proc/self/mountinfo", "30 20 0:26 /docker/abc /cg\\040v2 ro - cgroup2 none rw\n");
  root.put("cg v2/memory.max", "500\n");
  root.put("cg v2/inner/memory.max", "400\n");
  EXPECT_EQ(root.limits().cgroup_limit, Bytes{400});
}

TEST(HostLimits, CgroupOutsideOfTheMountCountsTheMountAlone) {
  for (const char* group : {"/docker/abcdef", "/elsewhere"}) {
    const FakeRoot root;
    root.put("proc/self/cgroup", std::string("0::") + group + "\n");
    root.put("proc/self/mountinfo", "30 20 0:26 /docker/abc /cg ro - cgroup2 none rw\n");
    root.put("cg/memory.max", "500\n");
    root.put("cg/def/memory.max", "1\n");
    EXPECT_EQ(root.limits().cgroup_limit, Bytes{500}) << group;
  }
}

TEST(HostLimits, CgroupOutsideOfOurNamespaceCountsTheMountAlone) {
  const FakeRoot root;
  root.put("proc/self/cgroup", "0::/../other\n");
  root.put("proc/self/mountinfo", "30 20 0:26 / /cg ro - cgroup2 none rw\n");
  root.put("cg/memory.max", "500\n");
  root.put("other/memory.max", "1\n");
  EXPECT_EQ(root.limits().cgroup_limit, Bytes{500});
}

TEST(HostLimits, DamagedSystemFilesAreAbsentValues) {
  const FakeRoot root;
  root.put("proc/meminfo", "MemTotal:\nMemAvailable: x kB\n");
  root.put("proc/self/cgroup", "\n0\n::\n0::\n4:memory\n");
  root.put("proc/self/mountinfo", "\n- cgroup2\n1 2 3 4 5 6 -\n30 20 0:26 / / rw - cgroup2 a rw\n");
  root.put("memory.max", "abc\n");
  root.put("cpu.max", "0 0\n");
  EXPECT_FALSE(root.limits().memory_total);
  EXPECT_FALSE(root.limits().memory_available);
  EXPECT_FALSE(root.limits().cgroup_limit);
}

TEST(HostLimits, CpuQuotaIsRoundedUpAndCapsTheCores) {
  const FakeRoot v2;
  v2.put("proc/self/cgroup", "0::/a\n");
  v2.put("proc/self/mountinfo", kMountV2);
  v2.put("sys/fs/cgroup/a/cpu.max", "50000 100000\n");
  EXPECT_EQ(v2.limits().usable_cores, 1u);
  const FakeRoot v1;
  v1.put("proc/self/cgroup", "3:cpuacct,cpu:/\n");
  v1.put("proc/self/mountinfo", kMountV1);
  v1.put("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "100000\n");
  v1.put("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(v1.limits().usable_cores, 1u);
}

TEST(HostLimits, CpuQuotaAboveTheCoresChangesNothing) {
  const size_t cores = FakeRoot().limits().usable_cores;
  const FakeRoot root;
  root.put("proc/self/cgroup", "0::/\n");
  root.put("proc/self/mountinfo", kMountV2);
  for (const char* quota : {"max 100000\n", "100000001 100000\n"}) {
    root.put("sys/fs/cgroup/cpu.max", quota);
    EXPECT_EQ(root.limits().usable_cores, cores) << quota;
  }
}

TEST(HostLimits, CoresAreThoseOfTheAffinityMask) {
  cpu_set_t before;
  ASSERT_EQ(sched_getaffinity(0, sizeof before, &before), 0);
  int first = 0;
  while (!CPU_ISSET(first, &before)) ++first;
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(first, &one);
  ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
  EXPECT_EQ(read_host_limits().usable_cores, 1u);
  ASSERT_EQ(sched_setaffinity(0, sizeof before, &before), 0);
}

TEST(PhysicalCores, CountsSiblingsOnce) {
  const FakeRoot root;
  const auto put = [&](const std::string& cpu, const std::string& siblings) {
    root.put("sys/devices/system/cpu/cpu" + cpu + "/topology/thread_siblings_list", siblings);
  };
  put("0", "0,4\n");
  put("4", "0,4\n");
  put("1", "1,5\n");
  put("5", "1,5\n");
  EXPECT_EQ(physical_cores(root.path(), {0, 1, 4, 5}), 2u);
  EXPECT_EQ(physical_cores(root.path(), {0, 4}), 1u);
  EXPECT_EQ(physical_cores(root.path(), {4, 5}), 2u);
  EXPECT_EQ(physical_cores(root.path(), {0, 4, 6, 7}), 3u);  // nothing is known of 6 and 7
}

TEST(ResidentBytes, GrowsWithTouchedMemoryAndThePeakStays) {
  const auto before = resident_bytes();
  ASSERT_TRUE(before);
  {
    std::vector<char> touched(64 << 20, 1);
    *static_cast<volatile char*>(touched.data()) = 2;  // or the compiler may do without the vector
    EXPECT_GT(resident_bytes()->value, before->value + (48u << 20));
  }
  EXPECT_GT(peak_resident_bytes()->value, before->value + (48u << 20));
}

}  // namespace
}  // namespace k3
