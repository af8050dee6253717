// Elementwise operations: instruction sets against scalar, scalar against double precision, and the
// order of operations of each.
#include <functional>

#include "vector_test_support.h"

namespace k3::kernels {
namespace {

struct Operation {
  const char* name;
  bool first_in_place;   // out may be a
  bool second_in_place;  // out may be b
  std::function<void(const Kernels&, const float* a, const float* b, size_t n, float* out)> run;
};

const std::vector<Operation>& operations() {
  using K = const Kernels&;
  using P = const float*;
  static const std::vector<Operation> kOperations = {
      {"add", true, true, [](K k, P a, P b, size_t n, float* out) { k.add(a, b, n, out); }},
      {"multiply", true, true,
       [](K k, P a, P b, size_t n, float* out) { k.multiply(a, b, n, out); }},
      {"add_scaled", false, true,
       [](K k, P a, P b, size_t n, float* out) {
         if (out != b) std::copy(b, b + n, out);
         k.add_scaled(a, 0.3F, n, out);
       }},
      {"divide", true, false, [](K k, P a, P, size_t n, float* out) { k.divide(a, 3.7F, n, out); }},
      {"exp", true, false, [](K k, P a, P, size_t n, float* out) { k.exp(a, n, out); }},
      {"sigmoid", true, false, [](K k, P a, P, size_t n, float* out) { k.sigmoid(a, n, out); }},
      {"gate", true, false, [](K k, P a, P b, size_t n, float* out) { k.gate(a, b, n, out); }},
      {"situ", true, true,
       [](K k, P a, P b, size_t n, float* out) { k.situ(a, b, n, 4.0F, 25.0F, out); }},
      {"kda_decay", true, false,
       [](K k, P a, P b, size_t n, float* out) { k.kda_decay(a, b, 1.7F, -5.0F, n, out); }},
      {"short_conv", true, false,
       [](K k, P a, P b, size_t n, float* out) {
         const float* window[] = {b, b, a};
         k.short_conv(window, b, 0, 3, n, out);
       }},
      {"weighted_sum", false, false,
       [](K k, P a, P b, size_t n, float* out) {
         const float* sources[] = {a, b, a};
         const float p[] = {0.2F, 0.7F, 0.1F};
         k.weighted_sum(sources, p, 3, n, out);
       }},
  };
  return kOperations;
}

void compare(const Kernels& k, const Operation& op, const std::vector<float>& a,
             const std::vector<float>& b, GuardedFloats::Side side) {
  const size_t n = a.size();
  const std::string what = label(k, op.name, n);
  std::vector<float> want(n);
  op.run(scalar_table(), a.data(), b.data(), n, want.data());
  GuardedFloats first(a, side);
  GuardedFloats second(b, side);
  GuardedFloats out(n, side);
  op.run(k, first.data(), second.data(), n, out.data());
  expect_same(out, want, what);
  expect_same(first, a, what + ", first input");
  expect_same(second, b, what + ", second input");
  if (op.first_in_place) {
    op.run(k, first.data(), second.data(), n, first.data());
    expect_same(first, want, what + ", in place of the first");
    first = a;
  }
  if (op.second_in_place) {
    op.run(k, first.data(), second.data(), n, second.data());
    expect_same(second, want, what + ", in place of the second");
  }
}

TEST(Elementwise, EveryInstructionSetGivesTheBitsOfScalarAndTouchesNothingElse) {
  const std::vector<const Kernels*> tables = all_tables();  // for its guards and in-place use
  Values values(1);
  for (const size_t n : test_lengths()) {
    for (const auto side : {GuardedFloats::Side::kEnd, GuardedFloats::Side::kBegin}) {
      const std::vector<float> a = values.adversarial(n);
      const std::vector<float> b = values.adversarial(n);
      for (const Kernels* k : tables) {
        for (const Operation& op : operations()) compare(*k, op, a, b, side);
      }
    }
  }
}

TEST(Elementwise, MisalignedArraysGiveTheSameBits) {
  Values values(2);
  const std::vector<float> a = values.normal(80);
  const std::vector<float> b = values.normal(80);
  for (const Kernels* k : vector_tables()) {
    for (const Operation& op : operations()) {
      for (size_t offset = 0; offset < 16; ++offset) {
        std::vector<float> want(50);
        std::vector<float> got(66);
        op.run(scalar_table(), a.data() + offset, b.data() + 2 * offset % 16, 50, want.data());
        op.run(*k, a.data() + offset, b.data() + 2 * offset % 16, 50, got.data() + offset);
        got.erase(got.begin(), got.begin() + static_cast<std::ptrdiff_t>(offset));
        expect_same(got, want, label(*k, op.name, 50));
      }
    }
  }
}

using Formula = std::function<float(float a, float b)>;

float sigmoid_of(float x) {
  float y = 0;
  scalar_table().sigmoid(&x, 1, &y);
  return y;
}

float exp_of(float x) {
  float y = 0;
  scalar_table().exp(&x, 1, &y);
  return y;
}

/// tanh(x): SiTU with caps of 1 and a gate at which its factor is exactly 1.
float tanh_of(float x) {
  const float gate = 40.0F;
  float y = 0;
  scalar_table().situ(&gate, &x, 1, 1.0F, 1.0F, &y);
  return y;
}

const Operation& operation(std::string_view name) {
  for (const Operation& op : operations()) {
    if (op.name == name) return op;
  }
  std::abort();
}

/// The operation is `formula` in every bit, and the inputs tell it from each of `others`.
void expect_order(std::string_view name, const Formula& formula,
                  const std::vector<Formula>& others) {
  Values values(3);
  const std::vector<float> a = values.normal(400);
  const std::vector<float> b = values.normal(400);
  std::vector<float> out(400);
  operation(name).run(scalar_table(), a.data(), b.data(), 400, out.data());
  std::vector<size_t> differences(others.size());
  for (size_t i = 0; i < 400; ++i) {
    ASSERT_TRUE(same(out[i], formula(a[i], b[i]))) << name << " of " << a[i] << ", " << b[i];
    for (size_t o = 0; o < others.size(); ++o) differences[o] += out[i] != others[o](a[i], b[i]);
  }
  for (const size_t count : differences) EXPECT_GT(count, 0U) << name;
}

TEST(Elementwise, AddScaledFusesTheProduct) {
  expect_order("add_scaled", [](float a, float b) { return std::fma(0.3F, a, b); },
               {[](float a, float b) { return 0.3F * a + b; }});
}

TEST(Elementwise, DivideDividesAndDoesNotMultiplyByTheReciprocal) {
  expect_order("divide", [](float a, float) { return a / 3.7F; },
               {[](float a, float) { return a * (1.0F / 3.7F); }});
}

TEST(Elementwise, GateMultipliesByTheRoundedSigmoid) {
  expect_order("gate", [](float a, float b) { return a * sigmoid_of(b); },
               {[](float a, float b) { return a / (1.0F + exp_of(-b)); },
                [](float a, float b) { return b * sigmoid_of(a); }});
}

TEST(Elementwise, SituCapsGateAndUpByDivisionsAndMultipliesInTheWrittenOrder) {
  const auto capped = [](float x, float cap) { return cap * tanh_of(x / cap); };
  const auto capped_by_reciprocal = [](float x, float cap) {
    return cap * tanh_of(x * (1.0F / cap));
  };
  expect_order(
      "situ",
      [=](float g, float u) { return (capped(g, 4.0F) * sigmoid_of(g)) * capped(u, 25.0F); },
      {[=](float g, float u) { return capped(g, 4.0F) * (sigmoid_of(g) * capped(u, 25.0F)); },
       [=](float g, float u) { return (capped(g, 4.0F) * capped(u, 25.0F)) * sigmoid_of(g); },
       [=](float g, float u) {
         return (capped(g, 4.0F) * sigmoid_of(capped(g, 4.0F))) * capped(u, 25.0F);
       },
       [=](float g, float u) { return (capped(g, 25.0F) * sigmoid_of(g)) * capped(u, 4.0F); },
       [=](float g, float u) {
         return (capped(g, 4.0F) * sigmoid_of(g)) * capped_by_reciprocal(u, 25.0F);
       }});
}

TEST(Elementwise, KdaDecayAddsTheBiasFirstAndScalesOutsideTheSigmoid) {
  expect_order(
      "kda_decay",
      [](float z, float bias) { return exp_of(-5.0F * sigmoid_of(1.7F * (z + bias))); },
      {[](float z, float bias) { return exp_of(-5.0F * sigmoid_of(1.7F * z + 1.7F * bias)); },
       [](float z, float bias) { return exp_of(-5.0F * sigmoid_of(std::fma(1.7F, z, bias))); },
       [](float z, float bias) { return exp_of(-5.0F * (1.7F * sigmoid_of(z + bias))); }});
}

TEST(Elementwise, ShortConvChainsFusedTapsFromTheOldest) {
  // The window of the operation above is b, b, a and each tap b.
  const auto silu = [](float z) { return z * sigmoid_of(z); };
  expect_order(
      "short_conv",
      [=](float a, float b) { return silu(std::fma(b, a, std::fma(b, b, std::fma(b, b, 0.0F)))); },
      {[=](float a, float b) { return silu(std::fma(b, b, std::fma(b, b, b * a))); },
       [=](float a, float b) { return silu(b * b + b * b + b * a); },
       [=](float a, float b) {
         const float z = std::fma(b, a, std::fma(b, b, b * b));
         return z / (1.0F + exp_of(-z));
       }});
}

TEST(Elementwise, ShortConvTakesTapJForWindowJByTheStride) {
  Values values(4);
  const std::vector<float> taps = values.normal(4 * 100);
  const std::vector<float> positions = values.normal(4 * 90);
  const float* window[4];
  for (size_t j = 0; j < 4; ++j) window[j] = positions.data() + j * 90;
  const std::vector<const Kernels*> tables = all_tables();
  for (const Kernels* k : tables) {
    std::vector<float> out(90);
    k->short_conv(window, taps.data(), 100, 4, 90, out.data());
    for (size_t c = 0; c < 90; ++c) {
      float z = 0.0F;
      for (size_t j = 0; j < 4; ++j) z = std::fma(taps[j * 100 + c], window[j][c], z);
      ASSERT_TRUE(same(out[c], z * sigmoid_of(z))) << c;
    }
  }
}

TEST(Elementwise, ChainsStartAtPlusZero) {
  const float minus = -0.0F;
  const float one = 1.0F;
  const float* window[] = {&minus};
  const std::vector<const Kernels*> tables = all_tables();
  for (const Kernels* k : tables) {
    float out = 1.0F;
    k->short_conv(window, &one, 1, 1, 1, &out);
    EXPECT_TRUE(same(out, 0.0F));
    k->weighted_sum(window, &one, 1, 1, &out);
    EXPECT_TRUE(same(out, 0.0F));
    k->weighted_sum(window, &one, 0, 1, &out);
    EXPECT_TRUE(same(out, 0.0F));
  }
}

TEST(Elementwise, WeightedSumChainsFusedProductsByAscendingSource) {
  expect_order("weighted_sum",
               [](float a, float b) {
                 return std::fma(0.1F, a, std::fma(0.7F, b, std::fma(0.2F, a, 0.0F)));
               },
               {[](float a, float b) { return std::fma(0.2F, a, std::fma(0.7F, b, 0.1F * a)); },
                [](float a, float b) { return 0.2F * a + 0.7F * b + 0.1F * a; }});
}

/// The operation is within `roundings` relative roundings of 2^-24 of the exact formula.
void expect_near(std::string_view name, double roundings,
                 const std::function<double(double, double)>& exact) {
  Values values(5);
  const std::vector<float> a = values.normal(2000, 4.0F);
  const std::vector<float> b = values.normal(2000, 4.0F);
  std::vector<float> out(2000);
  operation(name).run(scalar_table(), a.data(), b.data(), 2000, out.data());
  for (size_t i = 0; i < 2000; ++i) {
    const double want = exact(static_cast<double>(a[i]), static_cast<double>(b[i]));
    ASSERT_NEAR(static_cast<double>(out[i]), want, roundings * kRounding * std::fabs(want))
        << name << " of " << a[i] << ", " << b[i];
  }
}

double exact_sigmoid(double x) {
  return 1.0 / (1.0 + std::exp(-x));
}

// An error of u ulp is at most 2u roundings of 2^-24. sigmoid: 1.5 ulp = 3 roundings, tanh: 1.4 ulp
// = 2.8, exp: 0.8 ulp = 1.6. Errors of arguments count by the condition number, which is at most 1
// for tanh.
TEST(Elementwise, GateIsCloseToTheExactValue) {
  // sigmoid 3, product 1
  expect_near("gate", 4.0, [](double a, double b) { return a * exact_sigmoid(b); });
}

TEST(Elementwise, SituIsCloseToTheExactValue) {
  // twice: division 1, tanh 2.8, cap 1; sigmoid 3; two products 2
  expect_near("situ", 14.6, [](double g, double u) {
    return 4.0 * std::tanh(g / 4.0) * exact_sigmoid(g) * (25.0 * std::tanh(u / 25.0));
  });
}

TEST(Elementwise, KdaDecayIsCloseToTheExactValue) {
  // The exponent y = -5 sigmoid(t), t = 1.7 (z + b): 1.7 itself and two operations are 3 roundings
  // of t, by the condition number |t| (1 - sigmoid(t)) of sigmoid; sigmoid 3; product 1. exp turns
  // relative errors of y into |y| times as much: |y| |t| (1 - s) <= 5 max |t| s (1 - s) = 1.12.
  // Together 3 * 1.12 + 5 * (3 + 1) + 1.6. The bias cancels z at times: the sum is exact then.
  expect_near("kda_decay", 25.0, [](double z, double bias) {
    return std::exp(-5.0 * exact_sigmoid(static_cast<double>(1.7F) * (z + bias)));
  });
}

}  // namespace
}  // namespace k3::kernels
