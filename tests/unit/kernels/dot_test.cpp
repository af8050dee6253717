#include "product_test_support.h"

namespace k3::kernels {
namespace {

TEST(Dot, EveryInstructionSetGivesTheBitsOfScalar) {
  for (const Kernels* kernels : vector_tables()) {
    for (size_t n = 0; n < 200; ++n) {
      for (const bool finite : {false, true}) {
        Values values(static_cast<uint32_t>(2 * n + finite));
        const Side side = n % 2 == 0 ? Side::kEnd : Side::kBegin;
        const GuardedFloats a(finite ? values.normal(n) : values.adversarial(n), side);
        const GuardedFloats b(finite ? values.normal(n) : values.adversarial(n, true), side);
        const float expected = scalar_table().dot(a.data(), b.data(), n);
        const float got = kernels->dot(a.data(), b.data(), n);
        ASSERT_TRUE(same(got, expected)) << label(*kernels, "dot", n) << got << " " << expected;
      }
    }
  }
}

TEST(Dot, IsTheProductWithOneRowOfF32Weights) {
  for (const Kernels* kernels : all_tables()) {
    for (const size_t n : {1, 31, 32, 33, 64, 100, 7168}) {
      const std::vector<float> a = Values(1).normal(n);
      const std::vector<float> b = Values(2).normal(n);
      const float expected = product(*kernels, f32_matrix(1, n, a), b, 1)[0];
      EXPECT_TRUE(same(kernels->dot(a.data(), b.data(), n), expected));
    }
  }
}

}  // namespace
}  // namespace k3::kernels
