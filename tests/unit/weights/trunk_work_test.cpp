#include <dlfcn.h>
#include <gtest/gtest.h>
#include <pthread.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <stdexcept>
#include <thread>
#include <vector>

#include "k3/error.h"
#include "weights/ordered_work.h"

namespace {
// Threads that may still be started; negative: any number.
int threads_left = -1;
}  // namespace

/// In the place of the C library's, for the whole test program.
extern "C" int pthread_create(pthread_t* thread, const pthread_attr_t* attributes,
                              void* (*body)(void*), void* argument) {
  if (threads_left == 0) return EAGAIN;
  if (threads_left > 0) --threads_left;
  static const auto create =
      reinterpret_cast<decltype(&pthread_create)>(::dlsym(RTLD_NEXT, "pthread_create"));
  return create(thread, attributes, body, argument);
}

namespace {

using k3::weights::kWorkSlots;
using k3::weights::run_in_order;
using k3::weights::WorkItem;

TEST(OrderedWork, TakesInOrderWhatThreadsMakeInAnyOrder) {
  std::array<uint64_t, kWorkSlots> slots{};
  std::vector<uint64_t> taken;
  run_in_order(
      5, 205,
      [&](const WorkItem& item) {
        if (item.index % 3 == 0) std::this_thread::sleep_for(std::chrono::microseconds(200));
        slots[item.slot] = item.index * item.index;
      },
      [&](const WorkItem& item) {
        EXPECT_EQ(slots[item.slot], item.index * item.index);
        taken.push_back(item.index);
      });
  ASSERT_EQ(taken.size(), 200u);
  for (size_t i = 0; i < taken.size(); ++i) EXPECT_EQ(taken[i], i + 5);
}

TEST(OrderedWork, AnEmptyRangeDoesNothing) {
  auto never = [](const WorkItem&) { FAIL(); };
  run_in_order(3, 3, never, never);
}

TEST(OrderedWork, WhatMakeThrowsArrivesAfterAllResultsBeforeIt) {
  uint64_t taken = 0;
  auto make = [](const WorkItem& item) {
    if (item.index == 7) throw std::runtime_error("seven");
  };
  EXPECT_THROW(run_in_order(0, 100, make, [&](const WorkItem&) { ++taken; }), std::runtime_error);
  EXPECT_EQ(taken, 7u);
}

TEST(OrderedWork, AfterTakeThrowsNothingMoreThanTheSlotsIsMade) {
  std::atomic<uint64_t> made{0};
  auto take = [](const WorkItem& item) {
    if (item.index == 3) throw std::runtime_error("stop");
  };
  EXPECT_THROW(run_in_order(
                   0, 1'000'000, [&](const WorkItem&) { ++made; }, take),
               std::runtime_error);
  EXPECT_LE(made.load(), 3 + kWorkSlots);
}

TEST(OrderedWork, AThreadThatCannotBeStartedEndsTheWorkWithTheError) {
  for (const int left : {0, 1}) {
    threads_left = left;
    uint64_t taken = 0;
    EXPECT_THROW(run_in_order(
                     0, 100, [](const WorkItem&) {}, [&](const WorkItem&) { ++taken; }),
                 k3::Error);
    EXPECT_EQ(taken, 0u);
    threads_left = -1;
  }
}

}  // namespace
