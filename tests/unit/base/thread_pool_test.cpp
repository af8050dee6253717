#include "base/thread_pool.h"

#include <gtest/gtest.h>
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <time.h>

#include <atomic>
#include <mutex>
#include <set>
#include <vector>

#include "base/thread.h"

namespace k3 {
namespace {

using Range = std::pair<size_t, size_t>;

std::vector<Range> ranges_of(ThreadPool& pool, size_t count, size_t grain) {
  std::mutex mutex;
  std::set<Range> ranges;
  pool.parallel_for(count, grain, [&](size_t begin, size_t end) {
    const std::lock_guard lock(mutex);
    EXPECT_TRUE(ranges.emplace(begin, end).second);
  });
  return {ranges.begin(), ranges.end()};
}

TEST(ThreadPool, RangesCoverTheCountOnceAndBeginAtMultiplesOfTheGrain) {
  for (const size_t threads : {1, 2, 3, 7}) {
    ThreadPool pool(threads);
    for (const size_t count : {0, 1, 2, 3, 5, 6, 7, 8, 63, 64, 65, 1000, 4097}) {
      for (const size_t grain : {1, 2, 3, 16, 64, 5000}) {
        const auto ranges = ranges_of(pool, count, grain);
        ASSERT_LE(ranges.size(), threads);
        size_t at = 0;
        for (const auto& [begin, end] : ranges) {
          ASSERT_EQ(begin, at);
          ASSERT_LT(begin, end);
          ASSERT_EQ(begin % grain, 0u);
          at = end;
        }
        ASSERT_EQ(at, count) << threads << " threads, grain " << grain;
      }
    }
  }
}

TEST(ThreadPool, RangesDifferByOneGrainAtMost) {
  ThreadPool pool(4);
  for (const auto& [begin, end] : ranges_of(pool, 18, 1)) {
    EXPECT_TRUE(end - begin == 4 || end - begin == 5) << begin << ' ' << end;
  }
}

TEST(ThreadPool, ABodyThatAsksIsToldADifferentNumberInEachRange) {
  ThreadPool pool(3);
  for (const size_t count : {1, 2, 3, 100}) {
    std::vector<std::atomic<int>> runs(pool.threads());
    pool.parallel_for(count, 1, [&](size_t, size_t, size_t range) { ++runs.at(range); });
    for (size_t i = 0; i < runs.size(); ++i) EXPECT_EQ(runs[i], i < count ? 1 : 0);
  }
}

TEST(ThreadPool, RunsRangesOnDifferentThreads) {
  ThreadPool pool(3);
  std::atomic<int> arrived{0};
  pool.parallel_for(3, 1, [&](size_t, size_t) {
    ++arrived;
    while (arrived < 3) sched_yield();  // ends only if all three run at once
  });
  EXPECT_EQ(pool.threads(), 3u);
}

TEST(ThreadPool, WritesOfEveryTaskAreSeenByTheNext) {
  ThreadPool pool(4);
  std::vector<uint32_t> values(64, 0);
  for (uint32_t task = 0; task < 10'000; ++task) {
    const size_t shift = task % values.size();  // another thread gets the element in each task
    pool.parallel_for(values.size(), 1, [&](size_t begin, size_t end) {
      for (size_t i = begin; i < end; ++i) ++values[(i + shift) % values.size()];
    });
  }
  for (const uint32_t value : values) EXPECT_EQ(value, 10'000u);
}

TEST(ThreadPool, WakesThreadsThatHaveGoneToSleep) {
  ThreadPool pool(3);
  for (int task = 0; task < 20; ++task) {
    const timespec pause{0, 2'000'000};  // far beyond the time of spinning
    nanosleep(&pause, nullptr);
    EXPECT_EQ(ranges_of(pool, 3, 1).size(), 3u);
  }
}

TEST(ThreadPool, IdleThreadsUseNoProcessorTime) {
  ThreadPool pool(4);
  ranges_of(pool, 4, 1);
  const auto cpu_seconds = [] {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    return double(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           1e-6 * double(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
  };
  const double before = cpu_seconds();
  const timespec pause{0, 300'000'000};
  nanosleep(&pause, nullptr);
  EXPECT_LT(cpu_seconds() - before, 0.1);  // one spinning thread alone would use 0.3
}

TEST(Thread, RunsItsBodyWithSignalsBlockedAndIsJoinedAtTheEnd) {
  std::string name(16, '\0');
  bool blocked = false;
  {
    const Thread thread("k3-a-rather-long-name", [&] {
      pthread_getname_np(pthread_self(), name.data(), name.size());
      sigset_t mask;
      pthread_sigmask(SIG_SETMASK, nullptr, &mask);
      blocked = sigismember(&mask, SIGINT) == 1;
    });
  }
  EXPECT_STREQ(name.c_str(), "k3-a-rather-lon");
  EXPECT_TRUE(blocked);
  sigset_t mask;
  pthread_sigmask(SIG_SETMASK, nullptr, &mask);
  EXPECT_EQ(sigismember(&mask, SIGINT), 0);
}

}  // namespace
}  // namespace k3
