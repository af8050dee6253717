// Products with many columns: a few rows of weights are decoded once into the first-level cache and
// serve every column from there. Shared by the vector instruction sets; V is the register of one:
//
//   V::kWidth            lanes of a register; divides 16
//   V::kTileRows         rows decoded together
//   V::Register          and load, load_once, store, multiply, fma on it
//   V::reduce_rows       the sums of kTileRows times 16 lanes
//
// V lives in an unnamed namespace, so every instance has internal linkage.
//
// Blocking the inner dimension changes no bit: the 16 lanes of each sum are stored and loaded
// whole.
#pragma once

#include <cstring>

#include "kernels/lanes.h"
#include "kernels/table.h"

namespace k3::kernels {

/// Elements of a row that are decoded at a time: 8 rows x 512 floats leave two thirds of a 48 KiB
/// cache to the columns and the sums.
constexpr size_t kTileElements = 512;
/// Columns that pass over one decoded tile: their sums take 16 lanes each in the same cache.
constexpr size_t kTileColumns = 24;
/// Columns of one register block.
constexpr size_t kBlockColumns = 3;

/// A tile of decoded weights, in the planes of the packed columns.
template <size_t kRows>
struct DecodedRows {
  alignas(64) float weights[kTileElements / kLanes][kRows][kLanes];
  alignas(64) float scales[kTileElements / kOctetBlock][kRows][kLanes];  // octets only
};

/// The lanes of the sums of a tile.
template <size_t kRows>
struct TileSums {
  alignas(64) float lanes[kTileColumns][kRows][kLanes];
};

struct TileInput {
  const float* data;  // the packed columns of this block, from the tile's first element on
  size_t stride;
};

/// Calls use(r, c, weight, input) for the registers at `half` of one plane.
template <class V, size_t kColumns, class Use>
static inline void for_plane(const float (&weights)[V::kTileRows][kLanes], const TileInput& x,
                             size_t half, Use use) {
  typename V::Register input[kColumns];
  for (size_t c = 0; c < kColumns; ++c) input[c] = V::load(x.data + c * x.stride + half);
  for (size_t r = 0; r < V::kTileRows; ++r) {
    const typename V::Register weight = V::load_once(weights[r] + half);
    for (size_t c = 0; c < kColumns; ++c) use(r, c, weight, input[c]);
  }
}

/// Calls use(r, c) for every sum of a register block.
template <class V, size_t kColumns, class Use>
static inline void for_sums(Use use) {
  for (size_t r = 0; r < V::kTileRows; ++r) {
    for (size_t c = 0; c < kColumns; ++c) use(r, c);
  }
}

/// sums[r][column + c] goes on by the pairs of `length` elements.
template <class V, size_t kColumns>
static void add_pairs(const DecodedRows<V::kTileRows>& w, size_t length, const TileInput& x,
                      size_t column, TileSums<V::kTileRows>& sums) {
  using Register = typename V::Register;
  for (size_t half = 0; half < kLanes; half += V::kWidth) {
    Register acc[V::kTileRows][kColumns];
    for_sums<V, kColumns>(
        [&](size_t r, size_t c) { acc[r][c] = V::load(&sums.lanes[column + c][r][half]); });
    for (size_t i = 0; i < length; i += kLanes) {
      for_plane<V, kColumns>(w.weights[i / kLanes], {x.data + i, x.stride}, half,
                             [&](size_t r, size_t c, Register weight, Register input) {
                               acc[r][c] = V::fma(weight, input, acc[r][c]);
                             });
    }
    for_sums<V, kColumns>(
        [&](size_t r, size_t c) { V::store(&sums.lanes[column + c][r][half], acc[r][c]); });
  }
}

/// The same by the octets of one block: eight products, then the scale, once.
template <class V, size_t kColumns>
static void add_octet_block(const float (*planes)[V::kTileRows][kLanes],
                            const float (&scales)[V::kTileRows][kLanes], const TileInput& x,
                            size_t half, size_t column, TileSums<V::kTileRows>& sums) {
  using Register = typename V::Register;
  Register p[V::kTileRows][kColumns];
  for_plane<V, kColumns>(planes[0], x, half,
                         [&](size_t r, size_t c, Register weight, Register input) {
                           p[r][c] = V::multiply(weight, input);
                         });
  for (size_t k = 1; k < kOctet; ++k) {
    for_plane<V, kColumns>(planes[k], {x.data + k * kLanes, x.stride}, half,
                           [&](size_t r, size_t c, Register weight, Register input) {
                             p[r][c] = V::fma(weight, input, p[r][c]);
                           });
  }
  for_sums<V, kColumns>([&](size_t r, size_t c) {
    float* lanes = &sums.lanes[column + c][r][half];
    V::store(lanes, V::fma(V::load(scales[r] + half), p[r][c], V::load(lanes)));
  });
}

template <class V, size_t kColumns>
static void add_octets(const DecodedRows<V::kTileRows>& w, size_t length, const TileInput& x,
                       size_t column, TileSums<V::kTileRows>& sums) {
  for (size_t first = 0; first < length; first += kOctetBlock) {
    for (size_t half = 0; half < kLanes; half += V::kWidth) {
      add_octet_block<V, kColumns>(w.weights + first / kLanes, w.scales[first / kOctetBlock],
                                   {x.data + first, x.stride}, half, column, sums);
    }
  }
}

template <class V>
struct PairSteps {
  static constexpr size_t kGroup = kPairGroup;
  template <size_t kColumns>
  static void add(const DecodedRows<V::kTileRows>& w, size_t length, const TileInput& x,
                  size_t column, TileSums<V::kTileRows>& sums) {
    add_pairs<V, kColumns>(w, length, x, column, sums);
  }
};

template <class V>
struct OctetSteps {
  static constexpr size_t kGroup = kOctetBlock;
  template <size_t kColumns>
  static void add(const DecodedRows<V::kTileRows>& w, size_t length, const TileInput& x,
                  size_t column, TileSums<V::kTileRows>& sums) {
    add_octets<V, kColumns>(w, length, x, column, sums);
  }
};

/// The stored bytes that the next tile will decode. They are asked for while this one is
/// multiplied: runs of at most 2 KiB a row are too short for the hardware's own prefetching.
struct NextTile {
  const std::byte* data;
  size_t row_bytes;
  size_t bytes;  // of each row
  size_t rows;
};

static inline void prefetch_part(const NextTile& next, size_t part, size_t parts) {
  for (size_t r = next.rows * part / parts; r < next.rows * (part + 1) / parts; ++r) {
    for (size_t i = 0; i < next.bytes; i += 64) {
      __builtin_prefetch(next.data + r * next.row_bytes + i);
    }
  }
}

/// All columns of a pass over one decoded tile, in blocks of three and a last one of two or one.
template <class V, class Steps>
static void add_columns(const DecodedRows<V::kTileRows>& w, size_t length, const TileInput& x,
                        size_t count, const NextTile& next, TileSums<V::kTileRows>& sums) {
  static_assert(kBlockColumns == 3);
  const size_t blocks = (count + kBlockColumns - 1) / kBlockColumns;
  for (size_t b = 0; b < blocks; ++b) {
    prefetch_part(next, b, blocks);
    const size_t column = b * kBlockColumns;
    const TileInput block{x.data + column * x.stride, x.stride};
    switch (count - column) {
      case 1:
        Steps::template add<1>(w, length, block, column, sums);
        break;
      case 2:
        Steps::template add<2>(w, length, block, column, sums);
        break;
      default:
        Steps::template add<3>(w, length, block, column, sums);
    }
  }
}

static inline size_t at_most(size_t value, size_t limit) {
  return value < limit ? value : limit;
}

/// The tile after the one at `first` of the rows [row, row + kRows) in a range that ends at `end`.
template <size_t kRows, size_t kBits>
static NextTile next_tile(const WeightView& w, size_t row, size_t first, size_t end) {
  first += kTileElements;
  if (first >= w.cols) {
    first = 0;
    row += kRows;
  }
  if (row >= end) return {};
  const size_t row_bytes = w.cols * kBits / 8;
  return {w.data + row * row_bytes + first * kBits / 8, row_bytes,
          at_most(w.cols - first, kTileElements) * kBits / 8, at_most(end - row, kRows)};
}

/// y = W x for kTileRows rows from `row` on (fewer at the end of the range) and kTileColumns
/// columns. Format::decode(w, row, first, count, tile, r) writes the planes of `count` elements of
/// a row, padded to a whole group, as row r of the tile.
template <class V, class Format>
static void multiply_tile_rows(const WeightView& w, size_t row, size_t end, const PackedColumns& x,
                               const ColumnsOut& y) {
  using Steps = typename Format::template Steps<V>;
  DecodedRows<V::kTileRows> decoded;
  TileSums<V::kTileRows> sums;
  const size_t row_count = at_most(end - row, V::kTileRows);
  if (row_count < V::kTileRows) decoded = {};  // missing rows are computed, as zeros, and dropped
  std::memset(sums.lanes, 0, x.count * sizeof sums.lanes[0]);
  for (size_t first = 0; first < w.cols; first += kTileElements) {
    const size_t count = at_most(w.cols - first, kTileElements);
    for (size_t r = 0; r < row_count; ++r) Format::decode(w, row + r, first, count, decoded, r);
    const size_t length = (count + Steps::kGroup - 1) / Steps::kGroup * Steps::kGroup;
    add_columns<V, Steps>(decoded, length, {x.data + first, x.stride}, x.count,
                          next_tile<V::kTileRows, Format::kBits>(w, row, first, end), sums);
  }
  for (size_t c = 0; c < x.count; ++c) {
    float row_sums[V::kTileRows];
    V::reduce_rows(sums.lanes[c], row_sums);
    std::memcpy(y.data + c * y.stride + row, row_sums, row_count * sizeof(float));
  }
}

template <class V, class Format>
static void multiply_tiles(const WeightView& w, Range rows, const PackedColumns& x,
                           const ColumnsOut& y) {
  for (size_t column = 0; column < x.count; column += kTileColumns) {
    const PackedColumns pass{x.data + column * x.stride, at_most(x.count - column, kTileColumns),
                             x.stride};
    const ColumnsOut out{y.data + column * y.stride, y.stride};
    for (size_t row = rows.begin; row < rows.end; row += V::kTileRows) {
      multiply_tile_rows<V, Format>(w, row, rows.end, pass, out);
    }
  }
}

}  // namespace k3::kernels
