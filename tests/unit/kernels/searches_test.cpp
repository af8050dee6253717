// all_finite and argmax on every instruction set.
#include "vector_test_support.h"

namespace k3::kernels {
namespace {

TEST(AllFinite, FindsOneInfinityOrNaNAtAnyPlaceOfAnyLength) {
  Values values(1);
  for (const Kernels* k : all_tables()) {
    for (const size_t n : test_lengths()) {
      const std::vector<float> finite = values.adversarial(n, true);
      for (const auto side : {GuardedFloats::Side::kEnd, GuardedFloats::Side::kBegin}) {
        GuardedFloats x(finite, side);
        ASSERT_TRUE(k->all_finite(x.data(), n)) << label(*k, "finite", n);
        for (size_t i = 0; i<n; i += n> 100 ? 13 : 1) {
          for (const float bad : {kInfinity, -kInfinity, kNaN}) {
            x.data()[i] = bad;
            ASSERT_FALSE(k->all_finite(x.data(), n)) << label(*k, "bad", n) << " at " << i;
          }
          x.data()[i] = finite[i];
        }
      }
    }
  }
}

TEST(ArgMax, FindsTheLargestAtAnyPlaceOfAnyLength) {
  Values values(2);
  for (const Kernels* k : all_tables()) {
    for (const size_t n : test_lengths()) {
      for (const auto side : {GuardedFloats::Side::kEnd, GuardedFloats::Side::kBegin}) {
        const std::vector<float> small = values.normal(n);
        GuardedFloats x(small, side);
        for (size_t i = 0; i<n; i += n> 100 ? 13 : 1) {
          x.data()[i] = 100.0F;
          ASSERT_EQ(k->argmax(x.data(), n), i) << label(*k, "argmax", n);
          x.data()[i] = small[i];
        }
      }
    }
  }
}

TEST(ArgMax, TakesTheLowestIndexAmongEquals) {
  for (const Kernels* k : all_tables()) {
    std::vector<float> x(100, -2.0F);
    x[41] = x[43] = x[90] = 7.0F;
    EXPECT_EQ(k->argmax(x.data(), 100), 41U);
    x.assign(100, -kInfinity);
    EXPECT_EQ(k->argmax(x.data(), 100), 0U);
    x[60] = -kMax;
    EXPECT_EQ(k->argmax(x.data(), 100), 60U);
    x.assign(100, -1.0F);
    x[30] = -0.0F;
    x[50] = 0.0F;  // equal to -0
    EXPECT_EQ(k->argmax(x.data(), 100), 30U);
  }
}

}  // namespace
}  // namespace k3::kernels
