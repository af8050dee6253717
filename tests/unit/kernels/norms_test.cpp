// Norms, AttnRes scores and the softmax over few values: instruction sets against scalar, scalar
// against double precision, and the order of operations.
#include <algorithm>

#include "vector_test_support.h"

namespace k3::kernels {
namespace {

constexpr float kEps = 1e-5F;
using Side = GuardedFloats::Side;

/// The dot product as the contract has it: 16 lanes, pairs, a tree.
float dot_by_definition(const std::vector<float>& a, const std::vector<float>& b) {
  float lanes[16] = {};
  for (size_t group = 0; group < a.size(); group += 32) {
    for (size_t i = group; i < group + 32; ++i) {
      float& lane = lanes[(i - group) / 2];
      lane = i < a.size() ? std::fma(a[i], b[i], lane) : lane + 0.0F;
    }
  }
  for (size_t half = 8; half > 0; half /= 2) {
    for (size_t j = 0; j < half; ++j) lanes[j] += lanes[j + half];
  }
  return lanes[0];
}

float inverse_rms(const std::vector<float>& x) {
  return 1.0F / std::sqrt(dot_by_definition(x, x) / static_cast<float>(x.size()) + kEps);
}

TEST(Norms, EveryInstructionSetGivesTheBitsOfScalarAndTouchesNothingElse) {
  Values values(1);
  for (const size_t n : test_lengths()) {
    if (n == 0) continue;
    for (const bool finite : {true, false}) {
      const std::vector<float> x = finite ? values.normal(n) : values.adversarial(n, n % 2 == 0);
      const std::vector<float> w = finite ? values.normal(n) : values.adversarial(n);
      std::vector<float> normed(n), unit(n);
      scalar_table().rms_norm(x.data(), w.data(), n, kEps, normed.data());
      scalar_table().l2_norm(x.data(), n, 0.25F, unit.data());
      const float score = scalar_table().attn_res_score(x.data(), w.data(), n, kEps);
      for (const Kernels* k : all_tables()) {
        for (const Side side : {Side::kEnd, Side::kBegin}) {
          GuardedFloats in(x, side), weight(w, side), out(n, side);
          k->rms_norm(in.data(), weight.data(), n, kEps, out.data());
          expect_same(out, normed, label(*k, "rms_norm", n));
          k->l2_norm(in.data(), n, 0.25F, out.data());
          expect_same(out, unit, label(*k, "l2_norm", n));
          EXPECT_TRUE(same(k->attn_res_score(in.data(), weight.data(), n, kEps), score));
          k->rms_norm(in.data(), weight.data(), n, kEps, in.data());
          expect_same(in, normed, label(*k, "rms_norm in place", n));
          in = x;
          k->l2_norm(in.data(), n, 0.25F, in.data());
          expect_same(in, unit, label(*k, "l2_norm in place", n));
        }
      }
    }
  }
}

TEST(Softmax, EveryInstructionSetGivesTheBitsOfScalarAndTouchesNothingElse) {
  Values values(2);
  for (const size_t n : test_lengths()) {
    for (const bool finite : {true, false}) {
      const std::vector<float> scores = finite ? values.normal(n, 3.0F) : values.adversarial(n);
      std::vector<float> want = scores;
      scalar_table().softmax(want.data(), n);
      for (const Kernels* k : all_tables()) {
        for (const Side side : {Side::kEnd, Side::kBegin}) {
          GuardedFloats got(scores, side);
          k->softmax(got.data(), n);
          expect_same(got, want, label(*k, "softmax", n));
        }
      }
    }
  }
}

/// Many vectors of 40: the operation is `formula` in every bit and differs from each of `others`.
using Formula = std::vector<float> (*)(const std::vector<float>& x, const std::vector<float>& w);
void expect_order(Formula operation, Formula formula, const std::vector<Formula>& others) {
  Values values(3);
  std::vector<size_t> differences(others.size());
  for (int repeat = 0; repeat < 50; ++repeat) {
    const std::vector<float> x = values.normal(40, 0.01F);
    const std::vector<float> w = values.normal(40);
    const std::vector<float> got = operation(x, w);
    expect_same(got, formula(x, w), "formula");
    for (size_t o = 0; o < others.size(); ++o) differences[o] += others[o](x, w) != got;
  }
  for (size_t o = 0; o < others.size(); ++o) EXPECT_GT(differences[o], 0U) << "order " << o;
}

using Vector = std::vector<float>;

template <class Element>
Vector each(const Vector& x, Element element) {
  Vector y(x.size());
  for (size_t i = 0; i < x.size(); ++i) y[i] = element(i);
  return y;
}

TEST(Norms, RmsNormDividesOnceByTheRootWithEpsInsideThenMultipliesByRThenW) {
  expect_order(
      [](const Vector& x, const Vector& w) {
        Vector y(x.size());
        scalar_table().rms_norm(x.data(), w.data(), x.size(), kEps, y.data());
        return y;
      },
      [](const Vector& x, const Vector& w) {
        return each(x, [&, r = inverse_rms(x)](size_t i) { return (x[i] * r) * w[i]; });
      },
      {[](const Vector& x, const Vector& w) {
         return each(x, [&, r = inverse_rms(x)](size_t i) { return x[i] * (r * w[i]); });
       },
       [](const Vector& x, const Vector& w) {
         return each(x, [&, r = inverse_rms(x)](size_t i) { return (x[i] * w[i]) * r; });
       },
       [](const Vector& x, const Vector& w) {
         const float root =
             std::sqrt(dot_by_definition(x, x) / static_cast<float>(x.size()) + kEps);
         return each(x, [&](size_t i) { return (x[i] / root) * w[i]; });
       },
       [](const Vector& x, const Vector& w) {
         const float r =
             std::sqrt(1.0F / (dot_by_definition(x, x) / static_cast<float>(x.size()) + kEps));
         return each(x, [&](size_t i) { return (x[i] * r) * w[i]; });
       },
       [](const Vector& x, const Vector& w) {
         const float n = static_cast<float>(x.size());
         const float r = 1.0F / std::sqrt(dot_by_definition(x, x) * (1.0F / n) + kEps);
         return each(x, [&](size_t i) { return (x[i] * r) * w[i]; });
       },
       [](const Vector& x, const Vector& w) {
         const float n = static_cast<float>(x.size());
         const float r = 1.0F / (std::sqrt(dot_by_definition(x, x) / n) + kEps);
         return each(x, [&](size_t i) { return (x[i] * r) * w[i]; });
       }});
}

TEST(Norms, L2NormHasItsEpsInsideTheRootAndScalesLast) {
  expect_order(
      [](const Vector& x, const Vector&) {
        Vector y(x.size());
        scalar_table().l2_norm(x.data(), x.size(), 0.3F, y.data());
        return y;
      },
      [](const Vector& x, const Vector&) {
        const float r = 1.0F / std::sqrt(dot_by_definition(x, x) + 1e-6F);
        return each(x, [&](size_t i) { return (x[i] * r) * 0.3F; });
      },
      {[](const Vector& x, const Vector&) {
         const float r = 1.0F / std::sqrt(dot_by_definition(x, x) + 1e-6F);
         return each(x, [&](size_t i) { return x[i] * (r * 0.3F); });
       },
       [](const Vector& x, const Vector&) {
         const float root = std::sqrt(dot_by_definition(x, x) + 1e-6F);
         return each(x, [&](size_t i) { return (x[i] / root) * 0.3F; });
       },
       [](const Vector& x, const Vector&) {
         const float r = 1.0F / std::max(std::sqrt(dot_by_definition(x, x)), 1e-6F);
         return each(x, [&](size_t i) { return (x[i] * r) * 0.3F; });
       }});
}

TEST(Norms, L2NormWithScaleOneIsTheUnscaledOne) {
  const std::vector<float> x = Values(4).normal(40);
  std::vector<float> y(40);
  scalar_table().l2_norm(x.data(), 40, 1.0F, y.data());
  const float r = 1.0F / std::sqrt(dot_by_definition(x, x) + 1e-6F);
  expect_same(y, each(x, [&](size_t i) { return x[i] * r; }), "l2_norm");
}

TEST(Norms, AttnResScoreMultipliesTheDotProductOfTheRawSourceByR) {
  expect_order(
      [](const Vector& x, const Vector& f) {
        return Vector{scalar_table().attn_res_score(x.data(), f.data(), x.size(), kEps)};
      },
      [](const Vector& x, const Vector& f) {
        return Vector{dot_by_definition(x, f) * inverse_rms(x)};
      },
      {[](const Vector& x, const Vector& f) {
         const float r = inverse_rms(x);
         return Vector{dot_by_definition(each(x, [&](size_t i) { return x[i] * r; }), f)};
       },
       [](const Vector& x, const Vector& f) {
         const float root =
             std::sqrt(dot_by_definition(x, x) / static_cast<float>(x.size()) + kEps);
         return Vector{dot_by_definition(x, f) / root};
       }});
}

Vector exps_below_maximum(const Vector& w) {
  const float maximum = *std::max_element(w.begin(), w.end());
  Vector e = each(w, [&](size_t i) { return w[i] - maximum; });
  scalar_table().exp(e.data(), e.size(), e.data());
  return e;
}

TEST(Softmax, SubtractsTheMaximumSumsInOrderAndDivides) {
  expect_order(
      [](const Vector&, const Vector& w) {
        Vector p = w;
        scalar_table().softmax(p.data(), p.size());
        return p;
      },
      [](const Vector&, const Vector& w) {
        const Vector e = exps_below_maximum(w);
        float sum = 0.0F;
        for (const float x : e) sum += x;
        return each(e, [&](size_t i) { return e[i] / sum; });
      },
      {[](const Vector&, const Vector& w) {
         const Vector e = exps_below_maximum(w);
         float sum = 0.0F;
         for (const float x : e) sum += x;
         return each(e, [&](size_t i) { return e[i] * (1.0F / sum); });
       },
       [](const Vector&, const Vector& w) {
         const Vector e = exps_below_maximum(w);
         float sum = 0.0F;
         for (auto x = e.rbegin(); x != e.rend(); ++x) sum += *x;
         return each(e, [&](size_t i) { return e[i] / sum; });
       },
       [](const Vector&, const Vector& w) {
         Vector e = w;
         scalar_table().exp(e.data(), e.size(), e.data());
         float sum = 0.0F;
         for (const float x : e) sum += x;
         return each(e, [&](size_t i) { return e[i] / sum; });
       }});
}

double exact_square_sum(const Vector& x) {
  double sum = 0;
  for (const float value : x) sum += static_cast<double>(value) * static_cast<double>(value);
  return sum;
}

TEST(Norms, ScalarIsCloseToDoublePrecision) {
  constexpr size_t n = 1000;
  const Vector x = Values(5).normal(n);
  const Vector w = Values(6).normal(n);
  Vector normed(n), unit(n);
  scalar_table().rms_norm(x.data(), w.data(), n, kEps, normed.data());
  scalar_table().l2_norm(x.data(), n, 1.0F, unit.data());
  const double square_sum = exact_square_sum(x);
  const double inverse = 1.0 / std::sqrt(square_sum / n + static_cast<double>(kEps));
  // A square meets 64 fma of its lane and 4 sums of the tree; division and eps 2. The root halves
  // relative errors, then root, reciprocal and the products by r and w: 70 / 2 + 4.
  const double bound = 39 * kRounding;
  double dot = 0, dot_size = 0;
  for (size_t i = 0; i < n; ++i) {
    const double xi = static_cast<double>(x[i]);
    const double wi = static_cast<double>(w[i]);
    dot += xi * wi;
    dot_size += std::fabs(xi * wi);
    ASSERT_NEAR(static_cast<double>(normed[i]), xi * inverse * wi,
                bound * std::fabs(xi * inverse * wi));
    const double direction = xi / std::sqrt(square_sum + 1e-6);
    ASSERT_NEAR(static_cast<double>(unit[i]), direction, bound * std::fabs(direction));
  }
  // The dot product is off by 68 roundings of the sum of sizes, r by 37 and their product by 1.
  const double score =
      static_cast<double>(scalar_table().attn_res_score(x.data(), w.data(), n, kEps));
  ASSERT_NEAR(score, dot * inverse, (68 + 38) * kRounding * dot_size * inverse);
}

TEST(Softmax, ScalarIsCloseToDoublePrecisionAndSumsToOne) {
  const Vector scores = Values(7).uniform(24, -5.0F, 5.0F);
  Vector p = scores;
  scalar_table().softmax(p.data(), 24);
  double total = 0;
  for (const float score : scores) total += std::exp(static_cast<double>(score));
  double sum = 0;
  for (size_t i = 0; i < 24; ++i) {
    const double want = std::exp(static_cast<double>(scores[i])) / total;
    // e: one rounding of a difference of at most 10 in size, exp 1.6; their sum the same and 24
    // additions; the division 1.
    ASSERT_NEAR(static_cast<double>(p[i]), want, (2 * 11.6 + 24 + 1) * kRounding * want);
    sum += static_cast<double>(p[i]);
  }
  EXPECT_NEAR(sum, 1.0, 25 * kRounding);
}

TEST(Softmax, LargeScoresDoNotOverflow) {
  Vector p = {kMax, kMax, -kMax};
  scalar_table().softmax(p.data(), 3);
  EXPECT_EQ(p, (Vector{0.5F, 0.5F, 0.0F}));
}

}  // namespace
}  // namespace k3::kernels
