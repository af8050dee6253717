#include "kernels/dispatch.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

namespace k3::kernels {
namespace {

// A table of AVX-512 can only be made where the CPU has it.
std::vector<Isa> available() {
  std::vector<Isa> sets{Isa::kScalar};
  for (const Isa isa : {Isa::kAvx2, Isa::kAvx512}) {
    if (best_isa() && isa <= *best_isa()) sets.push_back(isa);
  }
  return sets;
}

constexpr Isa kAll[] = {Isa::kScalar, Isa::kAvx2, Isa::kAvx512};

TEST(Dispatch, EveryTableNamesItsInstructionSet) {
  for (const Isa isa : available()) EXPECT_EQ(table(isa).isa, isa);
}

TEST(Dispatch, EveryTableHasEveryOperation) {
  for (const Isa isa : available()) {
    const Kernels& kernels = table(isa);
    const auto* first = reinterpret_cast<const char*>(&kernels.matmul_bf16);
    const auto* last = reinterpret_cast<const char*>(&kernels + 1);
    for (const char* p = first; p < last; p += sizeof(void*)) {
      void* pointer;
      std::memcpy(&pointer, p, sizeof pointer);
      EXPECT_NE(pointer, nullptr) << isa_name(isa) << ", operation " << (p - first) / 8;
    }
  }
}

TEST(Dispatch, NamesGoBothWaysAndOthersAreRefused) {
  EXPECT_EQ(isa_name(Isa::kScalar), "scalar");
  EXPECT_EQ(isa_name(Isa::kAvx2), "avx2");
  EXPECT_EQ(isa_name(Isa::kAvx512), "avx512");
  for (const Isa isa : kAll) EXPECT_EQ(isa_from_name(isa_name(isa)), isa);
  for (const char* name : {"", "AVX2", "avx", "avx512 ", "neon"}) {
    EXPECT_FALSE(isa_from_name(name).has_value()) << name;
  }
}

TEST(Dispatch, TheBestSetIsAVectorSetThatTheCpuSaysItHas) {
  const std::optional<Isa> best = best_isa();
  if (!best) GTEST_SKIP() << "this CPU has no AVX2 and FMA";
  EXPECT_NE(*best, Isa::kScalar);
  EXPECT_TRUE(__builtin_cpu_supports("avx2"));
  EXPECT_EQ(*best == Isa::kAvx512, __builtin_cpu_supports("avx512bw") != 0);
}

}  // namespace
}  // namespace k3::kernels
