// Tiles of latent attention: instruction sets against scalar, scalar against double precision, and
// the order of operations.
#include "vector_test_support.h"

namespace k3::kernels {
namespace {

struct TileCase {
  size_t heads;
  size_t width;
  size_t positions;
  size_t row_stride;
  size_t dot_stride;
  float scale;
  std::vector<float> rows, dots;

  static TileCase make(size_t heads, size_t width, size_t positions, uint32_t seed) {
    Values values(seed);
    const size_t row_stride = width + 5;
    const size_t dot_stride = positions + 3;
    return {heads,
            width,
            positions,
            row_stride,
            dot_stride,
            0.0721688F,
            values.normal((positions - 1) * row_stride + width),
            values.normal((heads - 1) * dot_stride + positions, 40.0F)};
  }
};

struct Softmax {
  std::vector<float> maximum, total, sums;

  static Softmax empty(const TileCase& c) {
    return {std::vector<float>(c.heads, -kInfinity), std::vector<float>(c.heads),
            std::vector<float>(c.heads * c.width)};
  }
};

Softmax run(const Kernels& kernels, const TileCase& c, const Softmax& before,
            GuardedFloats::Side side = GuardedFloats::Side::kEnd) {
  GuardedFloats rows(c.rows, side), dots(c.dots, side), maximum(before.maximum, side),
      total(before.total, side), sums(before.sums, side);
  kernels.attend_tile({.positions = c.positions,
                       .width = c.width,
                       .row_stride = c.row_stride,
                       .rows = rows.data(),
                       .heads = c.heads,
                       .scale = c.scale,
                       .dots = dots.data(),
                       .dot_stride = c.dot_stride,
                       .maximum = maximum.data(),
                       .total = total.data(),
                       .sums = sums.data()});
  return {{maximum.data(), maximum.data() + maximum.size()},
          {total.data(), total.data() + total.size()},
          {sums.data(), sums.data() + sums.size()}};
}

void expect_same_softmax(const Softmax& got, const Softmax& want, const std::string& what) {
  expect_same(got.maximum, want.maximum, what + ", maximum");
  expect_same(got.total, want.total, what + ", total");
  expect_same(got.sums, want.sums, what + ", sums");
}

void compare(const TileCase& c, const Softmax& before) {
  const Softmax want = run(scalar_table(), c, before);
  for (const Kernels* k : vector_tables()) {
    for (const auto side : {GuardedFloats::Side::kEnd, GuardedFloats::Side::kBegin}) {
      expect_same_softmax(run(*k, c, before, side), want,
                          label(*k,
                                "tile of heads " + std::to_string(c.heads) + ", positions " +
                                    std::to_string(c.positions),
                                c.width));
    }
  }
}

/// The first tile and one that meets what the first left.
void compare_two_tiles(const TileCase& c) {
  compare(c, Softmax::empty(c));
  TileCase next = TileCase::make(c.heads, c.width, c.positions, 99);
  compare(next, run(scalar_table(), c, Softmax::empty(c)));
}

TEST(AttendTile, EveryInstructionSetGivesTheBitsOfScalarForAllWidths) {
  for (size_t width = 1; width <= 49; ++width) {
    compare_two_tiles(TileCase::make(3, width, 5, static_cast<uint32_t>(width)));
  }
  for (const size_t width : {54, 64, 72, 90, 127, 128, 512}) {
    compare_two_tiles(TileCase::make(7, width, 19, 1));
  }
}

TEST(AttendTile, EveryInstructionSetGivesTheBitsOfScalarForAllHeadsAndPositions) {
  for (size_t heads = 1; heads <= 20; ++heads) compare_two_tiles(TileCase::make(heads, 40, 33, 2));
  for (size_t positions = 1; positions <= 49; ++positions) {
    compare_two_tiles(TileCase::make(2, 24, positions, 3));
  }
  for (const size_t positions : {63, 100, 255, 256}) {
    compare_two_tiles(TileCase::make(6, 64, positions, 4));
  }
}

TEST(AttendTile, AdversarialValuesGiveTheBitsOfScalar) {
  for (uint32_t seed = 0; seed < 60; ++seed) {
    Values values(seed);
    TileCase c = TileCase::make(7, 36, 21, 5);
    c.rows = values.adversarial(c.rows.size(), seed % 2 == 0);
    if (seed % 3 == 0) c.dots = values.adversarial(c.dots.size(), seed % 2 == 0);
    compare_two_tiles(c);
  }
}

TEST(AttendTile, MaximumOfZeroHasOneSign) {
  for (const size_t positions : {2, 9, 20}) {
    for (const float last : {0.0F, -0.0F}) {
      TileCase c = TileCase::make(1, 4, positions, 6);
      c.dots.assign(c.dots.size(), -last);
      c.dots[positions - 1] = last;
      compare(c, Softmax::empty(c));
      EXPECT_TRUE(same(run(scalar_table(), c, Softmax::empty(c)).maximum[0], 0.0F));
    }
  }
}

TEST(AttendTile, SplittingTheHeadsChangesNoBit) {
  const TileCase c = TileCase::make(9, 40, 30, 7);
  const std::vector<const Kernels*> tables = all_tables();
  for (const Kernels* k : tables) {
    const Softmax whole = run(*k, c, Softmax::empty(c));
    for (size_t head = 0; head < c.heads; ++head) {
      TileCase one = c;
      one.heads = 1;
      one.dots.erase(one.dots.begin(),
                     one.dots.begin() + static_cast<std::ptrdiff_t>(head * c.dot_stride));
      one.dots.resize(c.positions);
      const Softmax part = run(*k, one, Softmax::empty(one));
      EXPECT_TRUE(same(part.maximum[0], whole.maximum[head]));
      EXPECT_TRUE(same(part.total[0], whole.total[head]));
      expect_same(part.sums,
                  std::vector<float>(
                      whole.sums.begin() + static_cast<std::ptrdiff_t>(head * c.width),
                      whole.sums.begin() + static_cast<std::ptrdiff_t>((head + 1) * c.width)),
                  label(*k, "one head", c.width));
    }
  }
}

float exp_of(float x) {
  float y = 0;
  scalar_table().exp(&x, 1, &y);
  return y;
}

/// The places at which another order of operations could be taken.
struct Order {
  bool scale_difference = false;     // exp((dot - max dot) * scale)
  bool rescale_by_position = false;  // the maximum moves at every position
  bool fuse_sums = true;
  bool ascending = true;
};

/// One head in plain loops.
Softmax by_order(const TileCase& c, Softmax s, const Order& order) {
  float maximum = s.maximum[0];
  if (!order.rescale_by_position) {
    for (size_t p = 0; p < c.positions; ++p) maximum = std::max(maximum, c.dots[p] * c.scale);
  }
  for (size_t step = 0; step < c.positions; ++step) {
    const size_t p = order.ascending ? step : c.positions - 1 - step;
    const float score = c.dots[p] * c.scale;
    if (order.rescale_by_position) maximum = std::max(maximum, score);
    const float rescale = exp_of(s.maximum[0] - maximum);
    s.maximum[0] = maximum;
    const float e = exp_of(order.scale_difference ? (c.dots[p] - maximum / c.scale) * c.scale
                                                  : score - maximum);
    s.total[0] = s.total[0] * rescale + e;
    for (size_t i = 0; i < c.width; ++i) {
      const float row = c.rows[p * c.row_stride + i];
      const float sum = s.sums[i] * rescale;
      s.sums[i] = order.fuse_sums ? std::fma(e, row, sum) : sum + e * row;
    }
  }
  return s;
}

TEST(AttendTile, OrderOfOperationsIsTheContracts) {
  const Order others[] = {{.scale_difference = true},
                          {.rescale_by_position = true},
                          {.fuse_sums = false},
                          {.ascending = false}};
  size_t sums_that_differ[4] = {};
  size_t totals_that_differ[4] = {};
  for (uint32_t seed = 0; seed < 40; seed += 2) {
    const TileCase first = TileCase::make(1, 8, 40, seed);
    const TileCase c = TileCase::make(1, 8, 40, seed + 1);
    const Softmax before = run(scalar_table(), first, Softmax::empty(first));
    const Softmax got = run(scalar_table(), c, before);
    expect_same_softmax(got, by_order(c, before, {}), "tile");
    for (size_t o = 0; o < 4; ++o) {
      const Softmax other = by_order(c, before, others[o]);
      sums_that_differ[o] += other.sums != got.sums;
      totals_that_differ[o] += other.total != got.total;
    }
  }
  for (size_t o = 0; o < 4; ++o) EXPECT_GT(sums_that_differ[o], 0U) << "order " << o;
  for (const size_t o : {0, 1, 3}) EXPECT_GT(totals_that_differ[o], 0U) << "order " << o;
}

TEST(AttendTile, TwoTilesAreCloseToTheSoftmaxInDoublePrecision) {
  const TileCase tiles[] = {TileCase::make(1, 16, 256, 10), TileCase::make(1, 16, 100, 11)};
  Softmax got = Softmax::empty(tiles[0]);
  double largest_score = -1e300;
  for (const TileCase& c : tiles) {
    got = run(scalar_table(), c, got);
    for (size_t p = 0; p < c.positions; ++p) {
      largest_score =
          std::max(largest_score, static_cast<double>(c.dots[p]) * static_cast<double>(c.scale));
    }
  }
  for (size_t i = 0; i < 16; ++i) {
    double total = 0, sum = 0, size = 0;
    for (const TileCase& c : tiles) {
      for (size_t p = 0; p < c.positions; ++p) {
        const double e =
            std::exp(static_cast<double>(c.dots[p]) * static_cast<double>(c.scale) - largest_score);
        const double term = e * static_cast<double>(c.rows[p * c.row_stride + i]);
        total += e;
        sum += term;
        size += std::fabs(term);
      }
    }
    // A weight: its argument, below 20 in size, is off by two roundings of a score and one of the
    // difference (60), exp 1.6, the rescaling as much again. A sum: 356 fma.
    const double bound = (2 * 62.0 + 356) * kRounding;
    ASSERT_NEAR(static_cast<double>(got.total[0]), total, bound * total);
    ASSERT_NEAR(static_cast<double>(got.sums[i]), sum, bound * size);
  }
}

}  // namespace
}  // namespace k3::kernels
