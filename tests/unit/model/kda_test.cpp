#include "model/kda.h"

#include <algorithm>
#include <limits>

#include "unit/model/double_support.h"

namespace k3::model {
namespace {

// ---- The short convolution.

constexpr size_t kRows = 7;

/// Rows of one sequence; calls over any cut of rows and channels.
struct Convolution {
  Config config = odd_config();
  size_t width = config.kda_width();
  Floats input = normal(kRows * config.kda_width(), 1);
  Floats taps = normal(config.conv_kernel * config.kda_width(), 2);

  struct Result {
    Floats rows, tail;
    bool operator==(const Result&) const = default;
  };

  Result run(const std::vector<size_t>& row_cuts, const std::vector<size_t>& channel_cuts) const {
    const size_t tail_size = (config.conv_kernel - 1) * width;
    Result out{input, Floats(tail_size, 0.0f)};
    for (size_t i = 0; i + 1 < row_cuts.size(); ++i) {
      Floats next(tail_size, 1e9f);
      const ConvRows conv{.rows = out.rows.data() + row_cuts[i] * width,
                          .count = row_cuts[i + 1] - row_cuts[i],
                          .stride = width,
                          .tail = out.tail.data(),
                          .next_tail = next.data(),
                          .taps = taps.data()};
      for (size_t c = 0; c + 1 < channel_cuts.size(); ++c) {
        kda_convolve(scalar(), config, conv, {channel_cuts[c], channel_cuts[c + 1]});
      }
    }
    return out;
  }

  /// silu(sum_j w[j] * y(t - 3 + j)): the last tap is the current token's.
  Doubles exactly() const {
    Doubles out;
    for (size_t t = 0; t < kRows; ++t) {
      for (size_t c = 0; c < width; ++c) {
        double z = 0;
        for (size_t j = 0; j < config.conv_kernel; ++j) {
          const size_t back = config.conv_kernel - 1 - j;
          if (back <= t) z += double{taps[j * width + c]} * input[(t - back) * width + c];
        }
        out.push_back(z * sigmoid(z));
      }
    }
    return out;
  }
};

TEST(KdaConvolution, IsCausalEndsInSiluAndTheLastTapIsTheCurrentTokens) {
  const Convolution c;
  expect_close(c.run({0, kRows}, {0, c.width}).rows, c.exactly(), 1e-6);
}

TEST(KdaConvolution, TheTailIsTheLastInputsBeforeTheConvolutionOldestFirst) {
  const Convolution c;
  const size_t tail = (c.config.conv_kernel - 1) * c.width;
  EXPECT_EQ(c.run({0, kRows}, {0, c.width}).tail,
            Floats(c.input.end() - ptrdiff_t(tail), c.input.end()));
}

TEST(KdaConvolution, AnySplitOfRowsAndChannelsHasTheSameBitsAndTail) {
  const Convolution c;
  const auto whole = c.run({0, kRows}, {0, c.width});
  EXPECT_EQ(c.run({0, 1, 2, 3, 4, 5, 6, kRows}, {0, c.width}), whole);  // shorter than the tail
  EXPECT_EQ(c.run({0, 2, 6, kRows}, {0, 5, 23, 24, c.width}), whole);
  EXPECT_EQ(c.run({0, kRows}, {0, 1, 40, c.width}), whole);
}

// ---- The recurrence and what surrounds it.

constexpr size_t kPositions = 6;

struct Heads {
  Config config = odd_config();
  size_t width = config.kda_width(), dim = config.kda_head_dim, heads = config.kda_heads;
  Floats q = normal(kPositions * width, 1), k = normal(kPositions * width, 2);
  Floats v = normal(kPositions * width, 3), z = normal(kPositions * width, 4);
  Floats beta = std::vector<float>(kPositions * heads, 0.0f);
  Floats gate = normal(kPositions * width, 6, 2);
  Floats exp_a = {0.3f, 1.7f, 6.0f};  // by head
  Floats dt_bias = normal(width, 7, 1.5, -2);
  Floats o_norm = normal(dim, 8, 0.3, 1);

  Heads() {
    const Floats raw = normal(beta.size(), 5);
    for (size_t i = 0; i < beta.size(); ++i) beta[i] = static_cast<float>(sigmoid(raw[i]));
  }

  struct Result {
    Floats q, k, decay, out, state;
    bool operator==(const Result&) const = default;
  };

  Result run(const std::vector<size_t>& row_cuts, const std::vector<size_t>& head_cuts) const {
    bool finite = true;
    Result r = run(row_cuts, head_cuts, finite);
    EXPECT_TRUE(finite);
    return r;
  }
  Result run(const std::vector<size_t>& row_cuts, const std::vector<size_t>& head_cuts,
             bool& finite) const {
    Result r{q, k, z, Floats(kPositions * width), Floats(heads * dim * dim, 0.0f)};
    for (size_t i = 0; i + 1 < row_cuts.size(); ++i) {
      const size_t at = row_cuts[i] * width;
      const KdaRows rows{.count = row_cuts[i + 1] - row_cuts[i],
                         .stride = width,
                         .q = r.q.data() + at,
                         .k = r.k.data() + at,
                         .v = v.data() + at,
                         .decay = r.decay.data() + at,
                         .beta = beta.data() + row_cuts[i] * heads,
                         .beta_stride = heads,
                         .gate = gate.data() + at,
                         .out = r.out.data() + at,
                         .state = r.state.data(),
                         .exp_a = exp_a.data(),
                         .dt_bias = dt_bias.data(),
                         .o_norm = o_norm.data()};
      for (size_t h = 0; h + 1 < head_cuts.size(); ++h) {
        finite &= kda_heads(scalar(), config, rows, {head_cuts[h], head_cuts[h + 1]});
      }
    }
    return r;
  }
  Result run() const { return run({0, kPositions}, {0, heads}); }
  bool finite() const {
    bool result = true;
    run({0, kPositions}, {0, heads}, result);
    return result;
  }
};

/// Spec formulas in double precision, from the raw rows.
struct ExactHeads {
  const Heads& in;
  Doubles q, k, decay, out, state;

  explicit ExactHeads(const Heads& heads)
      : in(heads), state(heads.heads * heads.dim * heads.dim, 0.0) {
    for (size_t t = 0; t < kPositions; ++t) {
      for (size_t h = 0; h < in.heads; ++h) advance(t, h);
    }
  }

  Doubles l2(const Floats& x, size_t at, double scale) const {
    const double norm = std::sqrt(mean_square(x.data() + at, in.dim) * double(in.dim) + 1e-6);
    Doubles y;
    for (size_t i = 0; i < in.dim; ++i) y.push_back(x[at + i] / norm * scale);
    return y;
  }

  void advance(size_t t, size_t h) {
    const size_t at = t * in.width + h * in.dim, dim = in.dim;
    const Doubles qh = l2(in.q, at, 1 / std::sqrt(double(dim))), kh = l2(in.k, at, 1);
    q.insert(q.end(), qh.begin(), qh.end());
    k.insert(k.end(), kh.begin(), kh.end());
    double* s = state.data() + h * dim * dim;
    for (size_t i = 0; i < dim; ++i) {
      const double z = double{in.z[at + i]} + in.dt_bias[h * dim + i];
      decay.push_back(std::exp(double{in.config.gate_lower_bound} * sigmoid(in.exp_a[h] * z)));
      for (size_t c = 0; c < dim; ++c) s[i * dim + c] *= decay.back();
    }
    Doubles o(dim, 0.0);
    for (size_t c = 0; c < dim; ++c) {
      double r = 0;
      for (size_t i = 0; i < dim; ++i) r += kh[i] * s[i * dim + c];
      const double delta = in.beta[t * in.heads + h] * (in.v[at + c] - r);
      for (size_t i = 0; i < dim; ++i) {
        s[i * dim + c] += kh[i] * delta;
        o[c] += qh[i] * s[i * dim + c];
      }
    }
    double sum = 0;
    for (double x : o) sum += x * x;
    const double root = std::sqrt(sum / double(dim) + double{in.config.rms_norm_eps});
    for (size_t c = 0; c < dim; ++c) {
      out.push_back(o[c] / root * in.o_norm[c] * sigmoid(in.gate[at + c]));
    }
  }
};

TEST(KdaHeads, QueriesHaveTheLengthOfTheScaleAndKeysLengthOne) {
  const Heads heads;
  const ExactHeads exact(heads);
  const auto found = heads.run();
  expect_close(found.q, exact.q, 1e-6);  // a norm of the output would hide the scale
  expect_close(found.k, exact.k, 1e-6);
}

TEST(KdaHeads, DecaysAreThoseOfTheHeadsOwnA) {
  const Heads heads;
  expect_close(heads.run().decay, ExactHeads(heads).decay, 2e-6);
}

TEST(KdaHeads, TheStateDecaysIsReadIsWrittenAndIsReadAgain) {
  const Heads heads;
  const ExactHeads exact(heads);
  const auto found = heads.run();
  expect_close(found.state, exact.state, 2e-6);
  expect_close(found.out, exact.out, 2e-5);
}

TEST(KdaHeads, TheGateComesAfterTheNorm) {
  // A gate that is almost closed leaves almost nothing: a norm after it would undo that.
  Heads heads;
  std::fill(heads.gate.begin(), heads.gate.end(), -20.0f);
  for (float x : heads.run().out) EXPECT_LT(std::abs(x), 1e-7f);
}

TEST(KdaHeads, WhatTheNormsAndTheDecayWouldHideIsReported) {
  const size_t last = kPositions * Heads().width - 1;
  Heads heads;
  EXPECT_TRUE(heads.finite());
  for (Floats Heads::*rows : {&Heads::q, &Heads::k, &Heads::v}) {
    heads = Heads();
    (heads.*rows)[last] = 1e25f;  // its square is infinite, its norm would be zero
    EXPECT_FALSE(heads.finite());
  }
  heads = Heads();
  heads.z[last] = 3e38f;  // times exp(A), behind a sigmoid
  EXPECT_FALSE(heads.finite());
  heads = Heads();
  heads.exp_a[0] = std::numeric_limits<float>::infinity();
  EXPECT_FALSE(heads.finite());
}

TEST(KdaHeads, AnySplitOfRowsAndHeadsHasTheSameBits) {
  const Heads heads;
  const auto whole = heads.run();
  EXPECT_EQ(heads.run({0, 1, 2, 3, 4, 5, kPositions}, {0, 3}), whole);
  EXPECT_EQ(heads.run({0, 4, kPositions}, {0, 1, 2, 3}), whole);
}

}  // namespace
}  // namespace k3::model
