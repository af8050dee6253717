// exp, sigmoid and tanh against libm in double precision, and their values at the edges.
#include <functional>

#include "vector_test_support.h"

namespace k3::kernels {
namespace {

double exact_sigmoid(double x) {
  return x < 0 ? std::exp(x) / (1.0 + std::exp(x)) : 1.0 / (1.0 + std::exp(-x));
}

/// |got - want| in units of the last place of want; beyond the largest float the next power of two
/// stands for infinity.
double ulps(float got, double want) {
  const double value = std::isinf(got) ? std::copysign(0x1p128, got) : static_cast<double>(got);
  const double bounded = std::min(std::max(want, -0x1p128), 0x1p128);
  int exponent = -125;
  if (bounded != 0) std::frexp(bounded, &exponent);
  return std::fabs(value - bounded) / std::ldexp(1.0, std::max(exponent, -125) - 24);
}

/// Floats of every sign and exponent: their bits are 0, step, 2 step, ...
std::vector<float> floats_of_all_sizes(uint32_t step) {
  std::vector<float> values;
  for (uint64_t bits = 0; bits <= 0xFFFFFFFFU; bits += step) {
    values.push_back(std::bit_cast<float>(static_cast<uint32_t>(bits)));
  }
  return values;
}

using Function = void (*)(const float*, size_t, float*);

void expect_within(double bound, Function function, double (*exact)(double)) {
  const std::vector<float> x = floats_of_all_sizes(9973);
  std::vector<float> y(x.size());
  function(x.data(), x.size(), y.data());
  for (size_t i = 0; i < x.size(); ++i) {
    if (std::isnan(x[i])) {
      ASSERT_TRUE(std::isnan(y[i]));
    } else {
      ASSERT_LE(ulps(y[i], exact(static_cast<double>(x[i]))), bound) << "at " << x[i];
    }
  }
}

float value_of(Function function, float x) {
  float y = 0;
  function(&x, 1, &y);
  return y;
}

/// tanh as table.h offers it: through SiTU with caps of 1 and a gate whose factor is known.
float tanh_through_situ(float u) {
  const float gate = 40.0F;  // tanh and sigmoid are exactly 1 here
  float out = 0;
  scalar_table().situ(&gate, &u, 1, 1.0F, 1.0F, &out);
  return out;
}

// The bounds are the largest errors over all 2^32 floats (docs/numeric-contract.md), rounded up.
TEST(Transcendental, ExpIsWithinItsBoundOnTheWholeFloatRange) {
  expect_within(0.8, scalar_table().exp, [](double x) { return std::exp(x); });
}

TEST(Transcendental, SigmoidIsWithinItsBoundOnTheWholeFloatRange) {
  expect_within(1.6, scalar_table().sigmoid, exact_sigmoid);
}

TEST(Transcendental, TanhIsWithinItsBoundOnTheWholeFloatRange) {
  for (const float x : floats_of_all_sizes(9973)) {
    const float y = tanh_through_situ(x);
    if (std::isnan(x)) {
      ASSERT_TRUE(std::isnan(y));
    } else {
      ASSERT_LE(ulps(y, std::tanh(static_cast<double>(x))), 1.4) << "at " << x;
    }
  }
}

TEST(Transcendental, ExpOverflowsToInfinityAndUnderflowsThroughTheSubnormals) {
  const Function exp = scalar_table().exp;
  EXPECT_TRUE(same(value_of(exp, 0.0F), 1.0F));
  EXPECT_TRUE(same(value_of(exp, -0.0F), 1.0F));
  EXPECT_TRUE(same(value_of(exp, kInfinity), kInfinity));
  EXPECT_TRUE(same(value_of(exp, -kInfinity), 0.0F));
  EXPECT_TRUE(same(value_of(exp, kMax), kInfinity));
  EXPECT_TRUE(same(value_of(exp, 0x1.62e430p+6F), kInfinity));
  EXPECT_TRUE(same(value_of(exp, 0x1.62e42ep+6F), 0x1.ffff08p+127F));
  EXPECT_TRUE(same(value_of(exp, -103.97F), kSubnormal));
  EXPECT_TRUE(same(value_of(exp, -103.98F), 0.0F));
  EXPECT_TRUE(same(value_of(exp, -90.0F), static_cast<float>(std::exp(-90.0))));
  EXPECT_TRUE(std::isnan(value_of(exp, kNaN)));
}

TEST(Transcendental, SigmoidSaturatesAtOneAndKeepsItsDigitsTowardsZero) {
  const Function sigmoid = scalar_table().sigmoid;
  EXPECT_TRUE(same(value_of(sigmoid, 0.0F), 0.5F));
  EXPECT_TRUE(same(value_of(sigmoid, -0.0F), 0.5F));
  EXPECT_TRUE(same(value_of(sigmoid, 20.0F), 1.0F));
  EXPECT_TRUE(same(value_of(sigmoid, kMax), 1.0F));
  EXPECT_TRUE(same(value_of(sigmoid, kInfinity), 1.0F));
  EXPECT_TRUE(same(value_of(sigmoid, -kInfinity), 0.0F));
  EXPECT_TRUE(same(value_of(sigmoid, -kMax), 0.0F));
  EXPECT_TRUE(same(value_of(sigmoid, -90.0F), static_cast<float>(std::exp(-90.0))));
  EXPECT_TRUE(same(value_of(sigmoid, -103.97F), kSubnormal));
  EXPECT_TRUE(std::isnan(value_of(sigmoid, kNaN)));
}

TEST(Transcendental, TanhIsOddExactNearZeroAndSaturatesAtOne) {
  for (const float x : {0.0F, kSubnormal, 0x1p-126F, 1e-20F, 1e-5F}) {
    EXPECT_TRUE(same(tanh_through_situ(x), x));
  }
  for (const float x : {1e-3F, 0.3F, 0.624999F, 0.625F, 0.7F, 3.0F, 9.0F, 1e10F, kInfinity}) {
    EXPECT_TRUE(same(tanh_through_situ(-x), -tanh_through_situ(x)));
  }
  EXPECT_TRUE(same(tanh_through_situ(-0.0F), -0.0F));
  EXPECT_TRUE(same(tanh_through_situ(9.1F), 1.0F));
  EXPECT_TRUE(same(tanh_through_situ(kMax), 1.0F));
  EXPECT_TRUE(same(tanh_through_situ(-kInfinity), -1.0F));
}

TEST(Transcendental, EveryInstructionSetGivesTheBitsOfScalarOnTheWholeFloatRange) {
  const std::vector<float> x = floats_of_all_sizes(19997);
  const std::vector<float> ones(x.size(), 40.0F);
  std::vector<float> want(x.size());
  std::vector<float> got(x.size());
  for (const Kernels* k : vector_tables()) {
    scalar_table().exp(x.data(), x.size(), want.data());
    k->exp(x.data(), x.size(), got.data());
    expect_same(got, want, label(*k, "exp", x.size()));
    scalar_table().sigmoid(x.data(), x.size(), want.data());
    k->sigmoid(x.data(), x.size(), got.data());
    expect_same(got, want, label(*k, "sigmoid", x.size()));
    scalar_table().situ(ones.data(), x.data(), x.size(), 1.0F, 1.0F, want.data());
    k->situ(ones.data(), x.data(), x.size(), 1.0F, 1.0F, got.data());
    expect_same(got, want, label(*k, "tanh", x.size()));
  }
}

}  // namespace
}  // namespace k3::kernels
