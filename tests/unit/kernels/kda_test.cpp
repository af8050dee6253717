// The state update of KDA: instruction sets against scalar, scalar against double precision, and
// the order of operations.
#include "vector_test_support.h"

namespace k3::kernels {
namespace {

struct KdaCase {
  size_t dim;
  size_t positions;
  size_t stride;
  std::vector<float> q, k, v, decay, beta, state;

  /// Inputs of the size that the model has: k and q near unit length, decay in (0, 1].
  static KdaCase make(size_t dim, size_t positions, size_t stride, uint32_t seed) {
    Values values(seed);
    const size_t n = positions == 0 ? 0 : (positions - 1) * stride + dim;
    const float size = 1.0F / std::sqrt(static_cast<float>(dim));
    return {dim,
            positions,
            stride,
            values.normal(n, size),
            values.normal(n, size),
            values.normal(n),
            values.uniform(n, 0.01F, 1.0F),
            values.uniform(positions * 3, 0.0F, 1.0F),
            values.normal(dim * dim)};
  }

  KdaHead head(float* state_data, float* out) const {
    return {dim,          positions,   stride, q.data(),   k.data(), v.data(),
            decay.data(), beta.data(), 3,      state_data, out};
  }
};

struct KdaResult {
  std::vector<float> state;
  std::vector<float> out;
};

/// Runs in guarded arrays; what lies between the heads' channels of `out` must stay.
KdaResult run(const Kernels& kernels, const KdaCase& c, GuardedFloats::Side side) {
  const std::vector<float> untouched(c.q.size(), 77.0F);
  GuardedFloats q(c.q, side), k(c.k, side), v(c.v, side), decay(c.decay, side), beta(c.beta, side),
      state(c.state, side), out(untouched, side);
  const KdaHead head = {c.dim,        c.positions, c.stride, q.data(),     k.data(),  v.data(),
                        decay.data(), beta.data(), 3,        state.data(), out.data()};
  kernels.kda_head(head);
  for (size_t i = 0; i < out.size(); ++i) {
    if (i % c.stride >= c.dim) {
      EXPECT_EQ(out.data()[i], 77.0F) << i;
    }
  }
  return {{state.data(), state.data() + state.size()}, {out.data(), out.data() + out.size()}};
}

void compare(const KdaCase& c) {
  for (const auto side : {GuardedFloats::Side::kEnd, GuardedFloats::Side::kBegin}) {
    const KdaResult want = run(scalar_table(), c, side);
    for (const Kernels* k : vector_tables()) {
      const KdaResult got = run(*k, c, side);
      expect_same(got.out, want.out, label(*k, "out", c.dim));
      expect_same(got.state, want.state, label(*k, "state", c.dim));
    }
  }
}

TEST(Kda, EveryInstructionSetGivesTheBitsOfScalarForAllWidths) {
  for (size_t dim = 1; dim <= 49; ++dim) compare(KdaCase::make(dim, 2, dim, 1));
  for (const size_t dim : {54, 64, 72, 90, 127, 128, 129, 200})
    compare(KdaCase::make(dim, 3, dim, 2));
}

TEST(Kda, PositionsMayLieFarApart) {
  compare(KdaCase::make(64, 5, 100, 3));
}

TEST(Kda, NoPositionsChangeNothing) {
  const KdaCase c = KdaCase::make(16, 0, 16, 4);
  compare(c);
  EXPECT_EQ(run(scalar_table(), c, GuardedFloats::Side::kEnd).state, c.state);
}

TEST(Kda, AdversarialValuesGiveTheBitsOfScalar) {
  for (uint32_t seed = 0; seed < 40; ++seed) {
    Values values(seed);
    KdaCase c = KdaCase::make(24, 2, 24, 5);
    // Few enough that not everything becomes NaN.
    const bool finite = seed % 4 != 0;
    c.state = values.adversarial(c.state.size(), finite);
    if (seed % 2 == 0) c.v = values.adversarial(c.v.size(), finite);
    if (seed % 3 == 0) c.k = values.adversarial(c.k.size(), finite);
    compare(c);
  }
}

TEST(Kda, PositionsInOneCallGiveTheBitsOfOneCallEach) {
  const KdaCase c = KdaCase::make(40, 7, 45, 6);
  const KdaResult want = run(scalar_table(), c, GuardedFloats::Side::kEnd);
  const std::vector<const Kernels*> tables = all_tables();
  for (const Kernels* kernels : tables) {
    std::vector<float> state = c.state;
    std::vector<float> out(c.q.size(), 77.0F);
    KdaHead head = c.head(state.data(), out.data());
    head.positions = 1;
    for (size_t t = 0; t < c.positions; ++t) {
      kernels->kda_head(head);
      head.q += c.stride, head.k += c.stride, head.v += c.stride, head.decay += c.stride;
      head.out += c.stride, head.beta += head.beta_stride;
    }
    expect_same(out, want.out, label(*kernels, "out", c.dim));
    expect_same(state, want.state, label(*kernels, "state", c.dim));
  }
}

/// The places at which another order of operations could be taken.
struct Order {
  bool decay_after_read = false;
  bool fuse_recall = true;
  bool distribute_beta = false;
  bool fuse_update = true;
  bool fuse_decay = false;  // S = fma(d, S, k * delta)
  bool output_from_old_state = false;
  bool ascending = true;
};

/// One position in plain loops, column by column.
KdaResult by_order(const KdaCase& c, const Order& order) {
  const size_t n = c.dim;
  KdaResult result{c.state, std::vector<float>(n)};
  const auto key = [&](size_t i) { return order.ascending ? i : n - 1 - i; };
  for (size_t j = 0; j < n; ++j) {
    const auto s = [&](size_t i) -> float& { return result.state[i * n + j]; };
    float r = 0.0F;
    float o = 0.0F;
    for (size_t step = 0; step < n; ++step) {
      const size_t i = key(step);
      const float seen = order.decay_after_read ? s(i) : c.decay[i] * s(i);
      r = order.fuse_recall ? std::fma(c.k[i], seen, r) : r + c.k[i] * seen;
    }
    const float delta =
        order.distribute_beta ? c.beta[0] * c.v[j] - c.beta[0] * r : c.beta[0] * (c.v[j] - r);
    for (size_t step = 0; step < n; ++step) {
      const size_t i = key(step);
      const float decayed = c.decay[i] * s(i);
      const float old = s(i);
      s(i) = order.fuse_decay    ? std::fma(c.decay[i], old, c.k[i] * delta)
             : order.fuse_update ? std::fma(c.k[i], delta, decayed)
                                 : decayed + c.k[i] * delta;
      o = std::fma(c.q[i], order.output_from_old_state ? decayed : s(i), o);
    }
    result.out[j] = o;
  }
  return result;
}

TEST(Kda, OrderOfOperationsIsTheContracts) {
  KdaCase c = KdaCase::make(24, 1, 24, 7);
  c.beta[0] = 0.7F;
  const KdaResult got = run(scalar_table(), c, GuardedFloats::Side::kEnd);
  const KdaResult want = by_order(c, {});
  expect_same(got.out, want.out, "out");
  expect_same(got.state, want.state, "state");
  const Order others[] = {{.decay_after_read = true}, {.fuse_recall = false},
                          {.distribute_beta = true},  {.fuse_update = false},
                          {.fuse_decay = true},       {.output_from_old_state = true},
                          {.ascending = false}};
  for (const Order& other : others) {
    EXPECT_NE(by_order(c, other).out, got.out) << "order " << &other - others;
  }
}

TEST(Kda, ScalarIsCloseToDoublePrecision) {
  const KdaCase c = KdaCase::make(64, 1, 64, 8);
  const KdaResult got = run(scalar_table(), c, GuardedFloats::Side::kEnd);
  const size_t n = c.dim;
  for (size_t j = 0; j < n; ++j) {
    const auto d = [](float x) { return static_cast<double>(x); };
    double r = 0, r_size = 0, o = 0, o_size = 0;
    for (size_t i = 0; i < n; ++i) {
      const double term = d(c.k[i]) * d(c.decay[i]) * d(c.state[i * n + j]);
      r += term;
      r_size += std::fabs(term);
    }
    const double delta = d(c.beta[0]) * (d(c.v[j]) - r);
    const double delta_size = d(c.beta[0]) * (std::fabs(d(c.v[j])) + r_size);
    for (size_t i = 0; i < n; ++i) {
      const double decayed = d(c.decay[i]) * d(c.state[i * n + j]);
      const double updated = decayed + d(c.k[i]) * delta;
      const double size = std::fabs(decayed) + std::fabs(d(c.k[i])) * delta_size;
      // Roundings of a summand: decay 1, n fma of r, difference and beta 2, the update 1.
      const double n_roundings = static_cast<double>(n) + 4;
      ASSERT_NEAR(d(got.state[i * n + j]), updated, n_roundings * kRounding * size);
      o += d(c.q[i]) * updated;
      o_size += std::fabs(d(c.q[i])) * size;
    }
    // and n fma of o
    ASSERT_NEAR(d(got.out[j]), o, (2.0 * static_cast<double>(n) + 4) * kRounding * o_size);
  }
}

}  // namespace
}  // namespace k3::kernels
