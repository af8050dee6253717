#include "model/attn_res.h"

#include <algorithm>

#include "unit/model/double_support.h"

namespace k3::model {
namespace {

constexpr float kEps = 1e-5f;

Floats mix(const std::vector<Floats>& sources, const Floats& f) {
  std::vector<const float*> pointers;
  for (const Floats& source : sources) pointers.push_back(source.data());
  Floats out(f.size());
  EXPECT_TRUE(attn_res_mix(scalar(), pointers, f.data(), f.size(), kEps, out.data()));
  return out;
}

/// Softmax of dot(normed source, f), of the raw sources.
Doubles mix_exactly(const std::vector<Floats>& sources, const Floats& f) {
  const size_t n = f.size();
  Doubles p, out(n, 0.0);
  double total = 0;
  for (const Floats& source : sources) {
    double score = 0;
    for (size_t i = 0; i < n; ++i) score += double{source[i]} * f[i];
    p.push_back(std::exp(score / std::sqrt(mean_square(source.data(), n) + double{kEps})));
    total += p.back();
  }
  for (size_t s = 0; s < sources.size(); ++s) {
    for (size_t i = 0; i < n; ++i) out[i] += p[s] / total * sources[s][i];
  }
  return out;
}

TEST(AttnRes, MixesRawSourcesByTheSoftmaxOfTheirNormedScores) {
  for (size_t count : {1, 2, 3, 9}) {
    std::vector<Floats> sources;
    // Sources of very different sizes: a norm of the values would show.
    for (uint32_t s = 0; s < count; ++s) sources.push_back(normal(77, s, 0.1 * (1 + 7 * s)));
    const Floats f = normal(77, 99, 0.15);
    expect_close(mix(sources, f), mix_exactly(sources, f), 3e-6);
  }
}

TEST(AttnRes, AScoreOfMinusInfinityIsReportedAndDoesNotVanishInTheSoftmax) {
  const Floats small(64, 1.0f), large(64, 1e18f), f(64, -3e37f);
  const float* sources[] = {small.data(), large.data()};
  Floats out(64);
  EXPECT_FALSE(attn_res_mix(scalar(), sources, f.data(), f.size(), kEps, out.data()));
}

TEST(AttnRes, OneSourceComesBackAsItIs) {
  const Floats source = normal(45, 1, 30);
  EXPECT_EQ(mix({source}, normal(45, 2)), source);
}

TEST(AttnRes, TheSizeOfASourceDoesNotChangeItsShare) {
  const Floats a = normal(64, 1), b = normal(64, 2), f = normal(64, 3, 0.2);
  Floats large = b;
  for (float& x : large) x *= 1024.0f;
  const Floats mixed = mix({a, b}, f), with_large = mix({a, large}, f);
  // out = p a + (1 - p) b: solve for p in both.
  for (size_t i = 0; i < 64; i += 9) {
    const double p = (mixed[i] - double{b[i]}) / (double{a[i]} - b[i]);
    const double q = (with_large[i] - double{large[i]}) / (double{a[i]} - large[i]);
    EXPECT_NEAR(p, q, 1e-3);
  }
}

TEST(AttnRes, SourcesAreAddedInTheOrderGiven) {
  std::vector<Floats> sources;
  for (uint32_t s = 0; s < 5; ++s) sources.push_back(normal(64, s, 1.0 + s));
  const Floats f = normal(64, 99, 0.3), mixed = mix(sources, f);
  std::rotate(sources.begin(), sources.end() - 1, sources.end());  // the running sum first
  EXPECT_NE(mix(sources, f), mixed);
}

}  // namespace
}  // namespace k3::model
