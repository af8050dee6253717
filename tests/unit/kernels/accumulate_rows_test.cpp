#include "product_test_support.h"

namespace k3::kernels {
namespace {

struct Case {
  size_t rows;
  size_t cols;
  size_t count;
};

std::vector<Case> cases() {
  std::vector<Case> all;
  for (size_t cols = 0; cols <= 50; ++cols) all.push_back({cols % 11, cols, 1 + cols % 6});
  for (const Case& one : {Case{8, 512, 1}, Case{17, 129, 4}, Case{128, 72, 9}, Case{3, 54, 0}}) {
    all.push_back(one);
  }
  return all;
}

Matrix matrix(Encoding encoding, const Case& size, Kind kind) {
  return any_matrix(encoding, size.rows, size.cols, kind,
                    static_cast<uint32_t>(size.rows + size.cols));
}

TEST(AccumulateRows, EveryInstructionSetGivesTheBitsOfScalarAndStaysInsideTheArrays) {
  for (const Kernels* kernels : vector_tables()) {
    for (const Encoding encoding : {Encoding::kBf16, Encoding::kF32}) {
      for (const Case& size : cases()) {
        for (const Kind kind : {Kind::kOrdinary, Kind::kAdversarial}) {
          const Side side = size.cols % 2 == 0 ? Side::kEnd : Side::kBegin;
          const Matrix w = matrix(encoding, size, kind);
          const GuardedBytes data(w.data, side);
          const GuardedFloats x(input_values(kind, size.rows * size.count, 2), side);
          const std::vector<float> before = input_values(kind, size.cols * size.count, 4);
          std::vector<float> expected = before;
          GuardedFloats y(before, side);
          const WeightView view{encoding, data.data(), nullptr, size.rows, size.cols};
          scalar_table().accumulate_rows(
              view, {0, size.rows}, {size.count, x.data(), size.rows, expected.data(), size.cols});
          kernels->accumulate_rows(view, {0, size.rows},
                                   {size.count, x.data(), size.rows, y.data(), size.cols});
          expect_same(y, expected, label(*kernels, encoding_name(encoding), size.cols));
        }
      }
    }
  }
}

TEST(AccumulateRows, IsAChainOfFusedStepsByAscendingRowThatGoesOnFromY) {
  // Big cancels big in ascending order only; the last term shows that no product is rounded.
  const std::vector<float> weights{0x1p24F, 1.0F, -0x1p24F, 0x1.02p0F};
  const std::vector<float> x{1.0F, 1.0F, 1.0F, 1.0F + 0x1p-20F};
  for (const Kernels* kernels : all_tables()) {
    for (const Matrix& w : {bf16_matrix(4, 1, weights), f32_matrix(4, 1, weights)}) {
      float y = 1.0F;  // lost in row 0, as the 1 of row 1 is
      kernels->accumulate_rows(w.view(), {0, 3}, {1, x.data(), 4, &y, 1});
      EXPECT_EQ(y, 0.0F);
      y = -1.0F;
      kernels->accumulate_rows(w.view(), {3, 4}, {1, x.data() + 3, 4, &y, 1});
      EXPECT_EQ(y, 0x1p-7F + 0x1p-20F + 0x1p-27F);
    }
  }
}

TEST(AccumulateRows, AnySplitOfTheRowsAndAnyBatchGivesTheSameBits) {
  const Case size{29, 70, 7};
  for (const Kernels* kernels : all_tables()) {
    for (const Encoding encoding : {Encoding::kBf16, Encoding::kF32}) {
      const Matrix w = matrix(encoding, size, Kind::kOrdinary);
      const std::vector<float> x = Values(1).normal(size.rows * size.count);
      std::vector<float> together(size.cols * size.count);
      kernels->accumulate_rows(w.view(), {0, size.rows},
                               {size.count, x.data(), size.rows, together.data(), size.cols});
      for (const size_t cut : {0, 1, 8, 15, 29}) {
        std::vector<float> y(size.cols * size.count);
        for (size_t b = 0; b < size.count; ++b) {
          float* out = y.data() + b * size.cols;
          const float* in = x.data() + b * size.rows;
          kernels->accumulate_rows(w.view(), {0, cut}, {1, in, 0, out, 0});
          kernels->accumulate_rows(w.view(), {cut, size.rows}, {1, in + cut, 0, out, 0});
        }
        expect_same(y, together, label(*kernels, "accumulate_rows", cut));
      }
    }
  }
}

// Each of the 128 steps rounds once: |error| <= ((1 + u)^128 - 1) * sum |w x|.
TEST(AccumulateRows, TheErrorOfScalarIsWithinTheBoundOfItsRoundings) {
  const Case size{128, 40, 1};
  const std::vector<float> weights = Values(1).normal(size.rows * size.cols);
  const std::vector<float> x = Values(2).normal(size.rows);
  std::vector<float> y(size.cols);
  scalar_table().accumulate_rows(f32_matrix(size.rows, size.cols, weights).view(), {0, size.rows},
                                 {1, x.data(), size.rows, y.data(), size.cols});
  const double growth = std::expm1(static_cast<double>(size.rows) * std::log1p(kRounding));
  for (size_t c = 0; c < size.cols; ++c) {
    double sum = 0;
    double total = 0;
    for (size_t i = 0; i < size.rows; ++i) {
      const double term = static_cast<double>(weights[i * size.cols + c]) * x[i];
      sum += term;
      total += std::abs(term);
    }
    EXPECT_LE(std::abs(y[c] - sum), growth * total) << "column " << c;
  }
}

}  // namespace
}  // namespace k3::kernels
