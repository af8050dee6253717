#include "weights/trunk_layout.h"

#include <gtest/gtest.h>

#include <random>
#include <set>
#include <string>

#include "k3/error.h"
#include "weights/trunk_source.h"

namespace {

using k3::weights::ChunkRecord;
using k3::weights::DType;
using k3::weights::lay_out_trunk;
using k3::weights::SegmentRecord;
using k3::weights::TrunkLayout;
using k3::weights::TrunkTensor;

TrunkTensor matrix(uint64_t rows, uint64_t cols, uint32_t group = 0) {
  TrunkTensor tensor{};
  tensor.name = std::string("m");
  tensor.rows = tensor.source_rows = rows;
  tensor.cols = cols;
  tensor.pattern = {rows, rows, 0};
  tensor.group = group;
  return tensor;
}

uint64_t segment_bytes(const SegmentRecord& segment, const std::vector<TrunkTensor>& tensors,
                       const std::vector<DType>& dtypes) {
  return segment.row_count * tensors[segment.tensor].cols * dtype_bytes(dtypes[segment.tensor]);
}

/// Every row of every tensor once and in order, segments aligned and apart, sizes as stated.
void expect_whole(const TrunkLayout& layout, const std::vector<TrunkTensor>& tensors,
                  const std::vector<DType>& dtypes) {
  uint32_t next_segment = 0;
  uint32_t tensor = 0;
  uint64_t row = 0;
  for (const ChunkRecord& chunk : layout.chunks) {
    ASSERT_EQ(chunk.segment_begin, next_segment);
    ASSERT_GT(chunk.segment_count, 0u);
    uint64_t end = 0;
    uint64_t raw = 0;
    for (uint32_t i = 0; i < chunk.segment_count; ++i) {
      const SegmentRecord& segment = layout.segments[next_segment++];
      ASSERT_EQ(segment.tensor, tensor);
      ASSERT_EQ(segment.row_begin, row);
      ASSERT_EQ(segment.offset % 64, 0u);
      ASSERT_GE(segment.offset, end);
      ASSERT_LT(segment.offset, end + 64);
      raw += segment_bytes(segment, tensors, dtypes);
      end = segment.offset + segment_bytes(segment, tensors, dtypes);
      row += segment.row_count;
      if (row == tensors[tensor].rows) {
        row = 0;
        ++tensor;
      }
    }
    EXPECT_EQ(chunk.raw_bytes, raw);
    EXPECT_EQ(chunk.stored_bytes, end);
  }
  EXPECT_EQ(next_segment, layout.segments.size());
  EXPECT_EQ(tensor, tensors.size());
}

TEST(TrunkLayout, CoversEveryRowExactlyOnceInOrder) {
  std::mt19937 random(1);
  for (int round = 0; round < 200; ++round) {
    std::vector<TrunkTensor> tensors;
    std::vector<DType> dtypes;
    const auto count = static_cast<uint32_t>(1 + random() % 20);
    for (uint32_t i = 0; i < count; ++i) {
      const bool grouped = random() % 2 == 0;
      tensors.push_back(matrix(1 + random() % 300, 1 + random() % 90, grouped ? 1 + i / 4 : 0));
      dtypes.push_back(random() % 2 == 0 ? DType::kBf16 : DType::kF32);
    }
    expect_whole(lay_out_trunk(tensors, dtypes, 1 + random() % 9000), tensors, dtypes);
  }
}

TEST(TrunkLayout, KeepsMatricesApartAndWithinTheChunkSize) {
  const std::vector<TrunkTensor> tensors = {matrix(1000, 100), matrix(3, 100)};
  const TrunkLayout layout = lay_out_trunk(tensors, {DType::kBf16, DType::kBf16}, 20'000);
  for (const ChunkRecord& chunk : layout.chunks) {
    EXPECT_EQ(chunk.segment_count, 1u);
    EXPECT_LE(chunk.stored_bytes, 20'000u);
  }
}

TEST(TrunkLayout, CutsAMatrixIntoEvenSharesOfSixteenRowsWhereTheyFit) {
  // 110 rows at most: ten chunks of 100 rows fill as many chunks as 9 of 110 and one of 10; 112
  // would not fit, so 100 it stays. With room for 120 rows: 9 chunks of 112, the last of 104.
  auto rows = [](uint64_t chunk_bytes) {
    std::vector<uint32_t> counts;
    for (const SegmentRecord& s :
         lay_out_trunk({matrix(1000, 100)}, {DType::kBf16}, chunk_bytes).segments) {
      counts.push_back(s.row_count);
    }
    return counts;
  };
  EXPECT_EQ(rows(110 * 200), std::vector<uint32_t>(10, 100));
  std::vector<uint32_t> expected(8, 112);
  expected.push_back(104);
  EXPECT_EQ(rows(120 * 200), expected);
}

TEST(TrunkLayout, NeverCutsAGroupAndGivesEachGroupItsChunk) {
  const std::vector<TrunkTensor> tensors = {matrix(500, 10, 1), matrix(1, 7, 1), matrix(9, 9, 2),
                                            matrix(4, 4), matrix(5, 5, 2)};
  const TrunkLayout layout = lay_out_trunk(tensors, std::vector<DType>(5, DType::kF32), 64);
  ASSERT_GE(layout.chunks.size(), 4u);
  EXPECT_EQ(layout.chunks[0].segment_count, 2u);
  EXPECT_EQ(layout.chunks[0].stored_bytes, 20'032u + 28u);
  EXPECT_EQ(layout.chunks[1].segment_count, 1u);
  EXPECT_EQ(layout.segments[layout.chunks.back().segment_begin].tensor, 4u);
}

TEST(TrunkLayout, ARowLongerThanAChunkIsAChunkOfItsOwn) {
  const TrunkLayout layout = lay_out_trunk({matrix(3, 1000)}, {DType::kBf16}, 100);
  EXPECT_EQ(layout.chunks.size(), 3u);
  EXPECT_EQ(layout.chunks[2].stored_bytes, 2000u);
}

TEST(TrunkLayout, RefusesARowThatNoChunkCanHold) {
  EXPECT_THROW(lay_out_trunk({matrix(1, uint64_t{1} << 31)}, {DType::kBf16}), k3::Error);
}

TEST(TrunkLayout, CutsTheReleasedMatricesNearFourMebibytes) {
  const TrunkLayout layout = lay_out_trunk({matrix(12288, 7168)}, {DType::kBf16});
  EXPECT_EQ(layout.chunks.size(), 43u);
  EXPECT_EQ(layout.chunks[0].stored_bytes, 288u * 14336u);
}

TEST(RowPattern, IdentityIsOneRun) {
  const auto runs = k3::weights::row_runs({100, 100, 0}, 7, 50);
  ASSERT_EQ(runs.size(), 1u);
  EXPECT_EQ(runs[0].source_row, 7u);
  EXPECT_EQ(runs[0].count, 50u);
}

TEST(RowPattern, HalvesOfAMatrixTakeEverySourceRowOnce) {
  // As kv_b_proj with 5 heads: rows 0..2 of every 7 for W_UK, 3..6 for W_UV.
  std::multiset<uint64_t> sources;
  auto collect = [&](const k3::weights::RowPattern& pattern, uint64_t rows, uint64_t step) {
    for (uint64_t row = 0; row < rows; row += step) {
      uint64_t at = row;
      for (const auto& run : k3::weights::row_runs(pattern, row, std::min(step, rows - row))) {
        EXPECT_EQ(run.trunk_row, at);
        for (uint64_t i = 0; i < run.count; ++i, ++at) {
          const uint64_t expected =
              at / pattern.take * pattern.period + pattern.begin + at % pattern.take;
          EXPECT_EQ(run.source_row + i, expected);
          sources.insert(run.source_row + i);
        }
      }
    }
  };
  collect({3, 7, 0}, 15, 4);
  collect({4, 7, 3}, 20, 6);
  ASSERT_EQ(sources.size(), 35u);
  uint64_t next = 0;
  for (const uint64_t row : sources) EXPECT_EQ(row, next++);
}

}  // namespace
