#include "kernels/packed.h"

#include "product_test_support.h"
#include "weights/trunk_codec.h"

namespace k3::kernels {
namespace {

/// Values whose exponents need the longer code: fifteen of them, all as frequent.
std::vector<float> wide_values(size_t n) {
  std::vector<float> values = Values(3).uniform(n, 1.0F, 2.0F);
  for (size_t i = 0; i < n; ++i) values[i] = std::ldexp(values[i], static_cast<int>(i * 7 % 15));
  return values;
}

Matrix packed(const Matrix& bf16) {
  std::vector<std::byte> bytes(bf16.data.size());
  const weights::Packed result = weights::pack_weights(bf16.data, bytes);
  EXPECT_NE(result.codec, weights::Codec::kRaw);
  bytes.resize(result.bytes);
  return {
      weights::encoding_of(static_cast<uint8_t>(result.codec), 0), bf16.rows, bf16.cols, bytes, {}};
}

struct Pair {
  Matrix bf16;
  Matrix packed;
};

Pair pair(size_t rows, size_t cols, const std::vector<float>& values) {
  const Matrix bf16 = bf16_matrix(rows, cols, values);
  return {bf16, packed(bf16)};
}

/// Ordinary weights with some of every other kind among them, and weights of the longer code.
std::vector<Pair> pairs(size_t rows, size_t cols) {
  std::vector<float> mixed = Values(static_cast<uint32_t>(rows + cols)).normal(rows * cols);
  const std::vector<float> strange = Values(5).adversarial(rows * cols);
  for (size_t i = 3; i < mixed.size(); i += 23) mixed[i] = strange[i];
  return {pair(rows, cols, mixed), pair(rows, cols, wide_values(rows * cols))};
}

constexpr size_t kWidths[] = {48, 54, 72, 90, 100, 128, 255, 256, 300, 512, 1037};

TEST(Packed, BothCodesAreInTheseTests) {
  EXPECT_EQ(pairs(9, 256)[0].packed.encoding, Encoding::kPacked3);
  EXPECT_EQ(pairs(9, 256)[1].packed.encoding, Encoding::kPacked4);
}

TEST(Packed, UnpackingGivesTheWeightsAndReadsNothingElse) {
  for (const Kernels* kernels : all_tables()) {
    for (const size_t cols : kWidths) {
      for (const Pair& p : pairs(9, cols)) {
        for (const Side side : {Side::kBegin, Side::kEnd}) {
          const GuardedBytes data(p.packed.data, side);
          const WeightView view{p.packed.encoding, data.data(), nullptr, 9, cols};
          for (const Range rows : {Range{0, 9}, Range{2, 3}, Range{5, 9}}) {
            const size_t count = (rows.end - rows.begin) * cols;
            GuardedFloats scratch(unpack_scratch_bytes(count) / sizeof(float), Side::kEnd);
            const std::byte* got = kernels->unpack(view, rows.begin * cols, count,
                                                   reinterpret_cast<std::byte*>(scratch.data()));
            ASSERT_EQ(std::memcmp(got, p.bf16.data.data() + rows.begin * cols * 2, 2 * count), 0)
                << label(*kernels, "unpack", cols) << ", rows from " << rows.begin;
          }
        }
      }
    }
  }
}

TEST(Packed, ProductsHaveTheBitsOfTheWeightsThatArePacked) {
  for (const Kernels* kernels : all_tables()) {
    for (const size_t cols : kWidths) {
      for (const size_t rows : {16, 19}) {
        for (const Pair& p : pairs(rows, cols)) {
          for (const size_t columns : {1, 2, 3, 8, 25}) {
            const auto x = input_values(Kind::kOrdinary, cols * columns, 7);
            const std::vector<float> expected = product(scalar_table(), p.bf16, x, columns);
            const GuardedFloats packed_x(pack_columns(Encoding::kBf16, x, cols, columns),
                                         Side::kEnd);
            const GuardedBytes data(p.packed.data, Side::kEnd);
            GuardedFloats y(rows * columns, Side::kBegin);
            const WeightView view{p.packed.encoding, data.data(), nullptr, rows, cols};
            for (const Range part : {Range{0, 1}, Range{1, rows}}) {
              kernels->matmul_packed(view, part,
                                     {packed_x.data(), columns, packed_pairs_length(cols)},
                                     {y.data(), rows});
            }
            expect_same(y, expected, label(*kernels, "packed", cols));
          }
        }
      }
    }
  }
}

TEST(Packed, WideRowsAreMultipliedToo) {
  for (const Kernels* kernels : all_tables()) {
    for (const size_t cols : {7168, 33792, 65536}) {
      const Pair p = pair(3, cols, Values(9).normal(3 * cols));
      const auto x = input_values(Kind::kOrdinary, cols, 8);
      const std::vector<float> packed_x = pack_columns(Encoding::kBf16, x, cols, 1);
      std::vector<float> y(3);
      kernels->matmul_packed(p.packed.view(), {0, 3},
                             {packed_x.data(), 1, packed_pairs_length(cols)}, {y.data(), 3});
      expect_same(y, product(scalar_table(), p.bf16, x, 1), label(*kernels, "packed", cols));
    }
  }
}

TEST(Packed, AccumulatingRowsHasTheBitsOfTheWeightsThatArePacked) {
  for (const Kernels* kernels : all_tables()) {
    for (const size_t cols : kWidths) {
      for (const Pair& p : pairs(40, cols)) {
        const Range rows{3, 40};
        const auto x = input_values(Kind::kOrdinary, 37 * 5, 3);
        std::vector<float> expected(cols * 5, 1.0F);
        std::vector<float> y = expected;
        scalar_table().accumulate_rows(p.bf16.view(), rows,
                                       {5, x.data(), 37, expected.data(), cols});
        kernels->accumulate_rows(p.packed.view(), rows, {5, x.data(), 37, y.data(), cols});
        expect_same(y, expected, label(*kernels, "accumulate packed", cols));
      }
    }
  }
}

TEST(Packed, SenselessCodesLeadNoReadOutOfTheView) {
  for (const Kernels* kernels : all_tables()) {
    for (const size_t cols : {54, 256, 300, 512}) {
      for (Pair& p : pairs(16, cols)) {
        const PackedLayout at = packed_layout(16 * cols);
        const size_t body = at.body(escape_count(p.packed.data.data(), at));
        std::fill(p.packed.data.begin() + static_cast<ptrdiff_t>(body), p.packed.data.end(),
                  std::byte{0});  // nothing but escapes
        for (const Side side : {Side::kBegin, Side::kEnd}) {
          const GuardedBytes data(p.packed.data, side);
          const WeightView view{p.packed.encoding, data.data(), nullptr, 16, cols};
          for (const size_t columns : {1, 4}) {
            const auto x = input_values(Kind::kOrdinary, cols * columns, 7);
            const auto packed_x = pack_columns(Encoding::kBf16, x, cols, columns);
            std::vector<float> y(16 * columns);
            kernels->matmul_packed(view, {0, 16},
                                   {packed_x.data(), columns, packed_pairs_length(cols)},
                                   {y.data(), 16});
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace k3::kernels
