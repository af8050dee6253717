#include "product_test_support.h"

namespace k3::kernels {
namespace {

// Every operand at an end of accessible memory; y beside the range must stay as it was.
void expect_product_as_scalar(const Kernels& kernels, const Matrix& w, size_t columns, Kind kind,
                              Side side) {
  const std::vector<float> x =
      input_values(kind, w.cols * columns, static_cast<uint32_t>(w.cols + columns));
  const std::vector<float> expected = product(scalar_table(), w, x, columns);
  const GuardedBytes data(w.data, side);
  const GuardedBytes scales(w.scales, side);
  const GuardedFloats packed(pack_columns(w.encoding, x, w.cols, columns), side);
  GuardedFloats y(w.rows * columns, side);
  matmul_of(kernels, w.encoding)(
      {w.encoding, data.data(), scales.data(), w.rows, w.cols}, {0, w.rows},
      {packed.data(), columns, packed_length(w.encoding, w.cols)}, {y.data(), w.rows});
  expect_same(y, expected,
              label(kernels, encoding_name(w.encoding), w.cols) +
                  ", rows = " + std::to_string(w.rows) + ", columns = " + std::to_string(columns));
}

TEST(Matmul, EveryInstructionSetGivesTheBitsOfScalar) {
  uint32_t seed = 0;
  for (const Kernels* kernels : vector_tables()) {
    for (const Encoding encoding : kEncodings) {
      for (const size_t cols : inner_lengths(encoding)) {
        for (const Kind kind : {Kind::kOrdinary, Kind::kAdversarial}) {
          for (const size_t rows : {1, 5}) {
            const Matrix w = any_matrix(encoding, rows, cols, kind, ++seed);
            const Side side = seed % 2 == 0 ? Side::kEnd : Side::kBegin;
            expect_product_as_scalar(*kernels, w, 1, kind, side);
            expect_product_as_scalar(*kernels, w, 2 + seed % 4, kind, side);
          }
        }
      }
    }
  }
}

TEST(Matmul, EveryNumberOfRowsAndColumnsGivesTheBitsOfScalar) {
  for (const Kernels* kernels : vector_tables()) {
    for (const Encoding encoding : kEncodings) {
      for (const size_t rows : {2, 3, 4, 7, 8, 9, 16, 19}) {
        const Matrix w = any_matrix(encoding, rows, 160, Kind::kAdversarial, 2);
        for (const size_t columns : {1, 2, 3, 4, 6, 16, 23, 24, 25, 50}) {
          expect_product_as_scalar(*kernels, w, columns, Kind::kAdversarial, Side::kEnd);
        }
      }
    }
  }
}

TEST(Matmul, NoColumnsAreNoWork) {
  for (const Kernels* kernels : all_tables()) {
    for (const Encoding encoding : kEncodings) {
      const Matrix w = any_matrix(encoding, 3, 64, Kind::kOrdinary, 1);
      matmul_of(*kernels, encoding)(w.view(), {0, 3}, {nullptr, 0, 128}, {nullptr, 3});
    }
  }
}

TEST(Matmul, AnySplitOfTheRowsGivesTheSameBitsAndTouchesNoOtherRow) {
  constexpr size_t kRows = 37;
  constexpr size_t kCols = 544;
  for (const Kernels* kernels : all_tables()) {
    for (const Encoding encoding : kEncodings) {
      const Matrix w = any_matrix(encoding, kRows, kCols, Kind::kOrdinary, 3);
      for (const size_t columns : {1, 5}) {
        const std::vector<float> x = input_values(Kind::kOrdinary, kCols * columns, 4);
        const std::vector<float> packed = pack_columns(encoding, x, kCols, columns);
        const PackedColumns input{packed.data(), columns, packed_length(encoding, kCols)};
        const std::vector<float> whole = product(*kernels, w, x, columns);
        for (const size_t cut : {0, 1, 2, 8, 18, 30, 36, 37}) {
          std::vector<float> y(kRows * columns, 77.0F);
          matmul_of(*kernels, encoding)(w.view(), {0, cut}, input, {y.data(), kRows});
          for (size_t i = 0; i < y.size(); ++i) {
            ASSERT_TRUE(same(y[i], i % kRows < cut ? whole[i] : 77.0F)) << cut << " " << i;
          }
          matmul_of(*kernels, encoding)(w.view(), {cut, kRows}, input, {y.data(), kRows});
          expect_same(y, whole, label(*kernels, encoding_name(encoding), cut));
        }
      }
    }
  }
}

TEST(Matmul, AColumnHasTheSameBitsAloneAndAmongOthers) {
  constexpr size_t kRows = 11;
  constexpr size_t kCols = 672;
  constexpr size_t kColumns = 31;
  for (const Kernels* kernels : all_tables()) {
    for (const Encoding encoding : kEncodings) {
      const Matrix w = any_matrix(encoding, kRows, kCols, Kind::kOrdinary, 5);
      const std::vector<float> x = input_values(Kind::kOrdinary, kCols * kColumns, 6);
      const std::vector<float> together = product(*kernels, w, x, kColumns);
      for (size_t c = 0; c < kColumns; ++c) {
        const std::vector<float> column(x.begin() + static_cast<ptrdiff_t>(c * kCols),
                                        x.begin() + static_cast<ptrdiff_t>((c + 1) * kCols));
        const std::vector<float> alone = product(*kernels, w, column, 1);
        for (size_t r = 0; r < kRows; ++r) ASSERT_TRUE(same(alone[r], together[c * kRows + r]));
      }
    }
  }
}

// ---- the order of operations, by cases small enough to follow by hand ----

constexpr float kBig = 0x1p24F;  // kBig + 1 rounds to kBig

// A row of weights that are all 1, which every encoding has.
Matrix row_of_ones(Encoding encoding, size_t n) {
  if (encoding == Encoding::kBf16) return bf16_matrix(1, n, std::vector<float>(n, 1.0F));
  if (encoding == Encoding::kF32) return f32_matrix(1, n, std::vector<float>(n, 1.0F));
  return {encoding, 1, n, std::vector<std::byte>(n / 2, std::byte{0x22}),
          std::vector<std::byte>(n / kScaleGroup, std::byte{127})};
}

struct Entry {
  size_t index;
  float value;
};

// The sum of n values that are zero but for `entries`.
float sum_of(const Kernels& kernels, Encoding encoding, size_t n,
             const std::vector<Entry>& entries) {
  std::vector<float> x(n);
  for (const Entry& entry : entries) x[entry.index] = entry.value;
  return product(kernels, row_of_ones(encoding, n), x, 1)[0];
}

TEST(Matmul, LaneJOwnsElements2JAnd2JPlus1OfEveryGroup) {
  for (const Kernels* kernels : all_tables()) {
    for (const Encoding encoding : {Encoding::kBf16, Encoding::kF32}) {
      // 1 is lost in lane 0 before lane 1 cancels it. Were lane 1 the owner of element 1, it
      // stayed.
      EXPECT_EQ(sum_of(*kernels, encoding, 64, {{0, kBig}, {1, 1.0F}, {2, -kBig}}), 0.0F);
      EXPECT_EQ(sum_of(*kernels, encoding, 64, {{30, kBig}, {31, 1.0F}, {28, -kBig}}), 0.0F);
      // The next group goes on in the same lane, after both elements of this one.
      EXPECT_EQ(sum_of(*kernels, encoding, 64, {{0, kBig}, {1, 1.0F}, {32, -kBig}}), 0.0F);
      EXPECT_EQ(sum_of(*kernels, encoding, 64, {{1, kBig}, {32, -kBig}, {33, 1.0F}}), 1.0F);
      EXPECT_EQ(sum_of(*kernels, encoding, 64, {{0, kBig}, {1, -kBig}, {2, 1.0F}}), 1.0F);
    }
  }
}

TEST(Matmul, LaneJOwnsElements8JTo8JPlus7OfEveryBlock) {
  for (const Kernels* kernels : all_tables()) {
    const Encoding mxfp4 = Encoding::kMxfp4;
    for (size_t k = 1; k < kOctet; ++k) {
      EXPECT_EQ(sum_of(*kernels, mxfp4, 256, {{0, kBig}, {k, 1.0F}, {8, -kBig}}), 0.0F);
      EXPECT_EQ(sum_of(*kernels, mxfp4, 256, {{120, kBig}, {120 + k, 1.0F}, {112, -kBig}}), 0.0F);
      // Within an octet in ascending order, and summed before it joins the lane.
      EXPECT_EQ(sum_of(*kernels, mxfp4, 256, {{0, kBig}, {k, -kBig}, {7, k == 7 ? -kBig : 1.0F}}),
                k == 7 ? 0.0F : 1.0F);
      EXPECT_EQ(sum_of(*kernels, mxfp4, 256, {{0, -kBig}, {128, kBig}, {128 + k, 1.0F}}), 0.0F);
    }
  }
}

TEST(Matmul, LanesAreReducedJWithJPlus8ThenPlus4ThenPlus2ThenPlus1) {
  for (const Kernels* kernels : all_tables()) {
    for (const Encoding encoding : kEncodings) {
      const size_t per_lane = encoding == Encoding::kMxfp4 ? 8 : 2;
      const auto lanes = [&](size_t big, size_t minus, size_t one) {
        return sum_of(*kernels, encoding, 128,
                      {{big * per_lane, kBig}, {minus * per_lane, -kBig}, {one * per_lane, 1.0F}});
      };
      for (size_t j = 0; j < 8; ++j) {
        // Lanes that meet at once cancel before a third one comes.
        EXPECT_EQ(lanes(j, j + 8, (j + 1) % 16), 1.0F) << j;
        EXPECT_EQ(lanes(j, j + 8, (j + 4) % 8), 1.0F) << j;
      }
      for (size_t j = 0; j < 4; ++j) {
        EXPECT_EQ(lanes(j, j + 4, (j + 1) % 4), 1.0F) << j;
        EXPECT_EQ(lanes(j, j + 4, j + 8), 0.0F) << j;  // 1 joins lane j first, and is lost
      }
      EXPECT_EQ(lanes(0, 2, 1), 1.0F);
      EXPECT_EQ(lanes(1, 3, 0), 1.0F);
      EXPECT_EQ(lanes(0, 2, 4), 0.0F);
      EXPECT_EQ(lanes(0, 1, 2), 0.0F);
      EXPECT_EQ(lanes(1, 0, 3), 0.0F);
    }
  }
}

TEST(Matmul, EveryStepIsOneFusedMultiplyAdd) {
  // -1 + (1 + 2^-7)(1 + 2^-20): the last term of the product is lost if it is rounded by itself.
  const std::vector<float> weights{-1.0F, 0x1.02p0F};
  const std::vector<float> x{1.0F, 1.0F + 0x1p-20F};
  for (const Kernels* kernels : all_tables()) {
    for (const Matrix& w : {bf16_matrix(1, 2, weights), f32_matrix(1, 2, weights)}) {
      EXPECT_EQ(product(*kernels, w, x, 1)[0], 0x1p-7F + 0x1p-20F + 0x1p-27F);
    }
    Matrix w{Encoding::kMxfp4, 1, 32, std::vector<std::byte>(16), {std::byte{127}}};
    w.data[0] = std::byte{0x52};  // 1 and 3
    std::vector<float> column(32);
    column[0] = -3.0F;
    column[1] = 1.0F + 0x1.8p-23F - 0x1p-24F;
    EXPECT_EQ(product(*kernels, w, column, 1)[0], 3 * (column[1] - 1.0F));
  }
}

TEST(Matmul, TheScaleIsAppliedOnceToTheSumOfAnOctet) {
  const auto one_octet = [](const Kernels& kernels, std::byte nibbles, std::byte scale, float x) {
    Matrix w{Encoding::kMxfp4, 1, 32, std::vector<std::byte>(16), {scale}};
    w.data[0] = nibbles;
    std::vector<float> column(32);
    column[0] = x;
    return product(kernels, w, column, 1)[0];
  };
  for (const Kernels* kernels : all_tables()) {
    // 6 * 2^127 is infinite although the scaled weight times x would not be.
    EXPECT_EQ(one_octet(*kernels, std::byte{0x07}, std::byte{107}, 0x1p127F), kInfinity);
    // 0.5 * 2^-149 rounds to zero before a large scale could save it.
    EXPECT_EQ(one_octet(*kernels, std::byte{0x01}, std::byte{147}, kSubnormal), 0.0F);
    EXPECT_EQ(one_octet(*kernels, std::byte{0x02}, std::byte{147}, kSubnormal), 0x1p-129F);
  }
}

TEST(Matmul, PaddingIsComputedAndTurnsMinusZeroIntoZero) {
  // Every product underflows to -0, and so does every lane, until a padded step adds +0.
  for (const Kernels* kernels : all_tables()) {
    const auto sign_of = [&](const Matrix& w, float x) {
      return std::signbit(product(*kernels, w, std::vector<float>(w.cols, x), 1)[0]);
    };
    for (const auto& make : {bf16_matrix, f32_matrix}) {
      EXPECT_TRUE(sign_of(make(1, 32, std::vector<float>(32, -0x1p-100F)), 0x1p-100F));
      EXPECT_FALSE(sign_of(make(1, 33, std::vector<float>(33, -0x1p-100F)), 0x1p-100F));
      EXPECT_FALSE(sign_of(make(1, 31, std::vector<float>(31, -0x1p-100F)), 0x1p-100F));
    }
    const auto minus_ones = [](size_t n) {
      return Matrix{Encoding::kMxfp4, 1, n, std::vector<std::byte>(n / 2, std::byte{0xAA}),
                    std::vector<std::byte>(n / kScaleGroup, std::byte{27})};
    };
    EXPECT_TRUE(sign_of(minus_ones(128), 0x1p-100F));
    EXPECT_FALSE(sign_of(minus_ones(160), 0x1p-100F));
    EXPECT_FALSE(sign_of(minus_ones(96), 0x1p-100F));
  }
}

TEST(Matmul, ColumnsOfMxfp4AreLowNibblesFirstAndEveryNibbleHasItsValue) {
  const float values[] = {0.0F, 0.5F, 1.0F, 1.5F, 2.0F, 3.0F, 4.0F, 6.0F};
  for (const Kernels* kernels : all_tables()) {
    for (unsigned nibble = 0; nibble < 16; ++nibble) {
      for (size_t index = 0; index < 256; ++index) {
        Matrix w{Encoding::kMxfp4, 1, 256, std::vector<std::byte>(128), {}};
        w.scales.assign(8, std::byte{127});
        w.data[index / 2] = std::byte(index % 2 == 0 ? nibble : nibble << 4);
        std::vector<float> x(256, 100.0F);
        x[index] = 1.0F;
        // Twice the same column takes the path of many columns.
        std::vector<float> twice = x;
        twice.insert(twice.end(), x.begin(), x.end());
        const float expected = nibble < 8 ? values[nibble] : -values[nibble - 8];
        ASSERT_EQ(product(*kernels, w, x, 1)[0], expected) << nibble << " at " << index;
        ASSERT_EQ(product(*kernels, w, twice, 2)[1], expected) << nibble << " at " << index;
      }
    }
  }
}

TEST(Matmul, EveryScaleIsTwoToItsByteLess127AndTheFormatsNaNIsNeverFinite) {
  for (const Kernels* kernels : all_tables()) {
    for (size_t group = 0; group < 8; ++group) {
      for (int scale = 0; scale < 256; ++scale) {
        Matrix w{Encoding::kMxfp4, 1, 256, std::vector<std::byte>(128), {}};
        w.scales.assign(8, std::byte{127});
        w.scales[group] = std::byte(scale);
        w.data[group * 16 + 5] = std::byte{0x02};
        const std::vector<float> y = product(*kernels, w, std::vector<float>(512, 1.0F), 2);
        const float expected = scale < 255 ? std::ldexp(1.0F, scale - 127) : kInfinity;
        for (const float value : y) {
          if (scale == 255) {
            ASSERT_FALSE(std::isfinite(value)) << group;
          } else {
            ASSERT_EQ(value, expected) << scale << " in group " << group;
          }
        }
      }
    }
  }
}

// ---- against float64 ----

double weight_of(const Matrix& w, size_t row, size_t col) {
  const size_t i = row * w.cols + col;
  if (w.encoding == Encoding::kF32) {
    float value;
    std::memcpy(&value, &w.data[4 * i], 4);
    return value;
  }
  if (w.encoding == Encoding::kBf16) {
    uint16_t half;
    std::memcpy(&half, &w.data[2 * i], 2);
    return std::bit_cast<float>(uint32_t{half} << 16);
  }
  const double values[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
  const unsigned nibble = std::to_integer<unsigned>(w.data[i / 2]) >> (i % 2 * 4) & 15;
  const double size =
      values[nibble & 7] * std::ldexp(1.0, std::to_integer<int>(w.scales[i / kScaleGroup]) - 127);
  return nibble < 8 ? size : -size;
}

// A term passes through at most `steps` roundings of relative size u: its chain (2 for each group
// of 32; or 8 in its octet and 1 for each block of 128) and the 4 levels of the tree. Hence |error|
// <= ((1 + u)^steps - 1) * sum |w x|.
TEST(Matmul, TheErrorOfScalarIsWithinTheBoundOfItsRoundings) {
  constexpr size_t kCols = 7168;
  constexpr size_t kRows = 8;
  for (const Encoding encoding : kEncodings) {
    const double steps =
        encoding == Encoding::kMxfp4 ? 8.0 + kCols / 128.0 + 4 : 2 * (kCols / 32.0) + 4;
    const double growth = std::expm1(steps * std::log1p(kRounding));
    const Matrix w = any_matrix(encoding, kRows, kCols, Kind::kOrdinary, 7);
    const std::vector<float> x = input_values(Kind::kOrdinary, kCols, 8);
    const std::vector<float> y = product(scalar_table(), w, x, 1);
    for (size_t r = 0; r < kRows; ++r) {
      double sum = 0;
      double size = 0;
      for (size_t i = 0; i < kCols; ++i) {
        sum += weight_of(w, r, i) * x[i];
        size += std::abs(weight_of(w, r, i) * x[i]);
      }
      EXPECT_LE(std::abs(y[r] - sum), growth * size) << encoding_name(encoding) << " row " << r;
    }
  }
}

}  // namespace
}  // namespace k3::kernels
