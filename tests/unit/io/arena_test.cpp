#include "io/arena.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstdint>

#include "base/host.h"
#include "k3/error.h"

namespace k3::io {
namespace {

TEST(Arena, CarvesZeroedAlignedDisjointSpans) {
  Arena arena(Bytes{3 * 4096});
  const auto bytes = arena.carve<std::byte>(1);
  const auto floats = arena.carve<float>(1025);  // 4100 bytes: two blocks
  EXPECT_EQ(reinterpret_cast<uintptr_t>(bytes.data()) % (2u << 20), 0u);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(floats.data()) % Arena::kAlignment, 0u);
  EXPECT_EQ(reinterpret_cast<std::byte*>(floats.data()), bytes.data() + 4096);
  EXPECT_TRUE(std::all_of(floats.begin(), floats.end(), [](float x) { return x == 0; }));
  std::fill(floats.begin(), floats.end(), 1.0f);
  EXPECT_EQ(arena.used(), arena.capacity());
}

TEST(Arena, PaddedIsWhatCarvingTakes) {
  EXPECT_EQ(Arena::padded(Bytes{0}).value, 0u);
  EXPECT_EQ(Arena::padded(Bytes{1}).value, 4096u);
  EXPECT_EQ(Arena::padded(Bytes{4096}).value, 4096u);
  EXPECT_EQ(Arena::padded(Bytes{4097}).value, 8192u);
  Arena arena(Bytes{100'000});
  arena.carve<double>(513);
  EXPECT_EQ(arena.used(), Arena::padded(Bytes{513 * sizeof(double)}));
}

TEST(Arena, CapacityIsNotResidentBeforeItIsTouched) {
  const uint64_t before = resident_bytes()->value;
  Arena arena(Bytes{256u << 20});
  EXPECT_LT(resident_bytes()->value, before + (16u << 20));
}

TEST(Arena, EmptyArenaCarvesNothing) {
  Arena arena(Bytes{0});
  EXPECT_TRUE(arena.carve<int>(0).empty());
}

TEST(Arena, RefusedReservationIsABudgetError) {
  try {
    Arena arena(Bytes{1ull << 60});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kBudget);
    EXPECT_NE(std::string(error.what()).find("1.15 EB"), std::string::npos) << error.what();
  }
}

TEST(ArenaDeathTest, CarvingMoreThanPlannedOrAfterSealAborts) {
  Arena arena(Bytes{8192});
  EXPECT_DEATH(arena.carve<std::byte>(8193), "check failed");
  arena.carve<std::byte>(1);
  EXPECT_DEATH(arena.carve<std::byte>(4097), "check failed");
  arena.seal();
  EXPECT_DEATH(arena.carve<std::byte>(1), "check failed");
}

}  // namespace
}  // namespace k3::io
