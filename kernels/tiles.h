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

/// Elements of a row that are decoded at a time: 8 rows of 640 floats take 20 KiB of a first-level
/// cache, and a row of the latent cache (576) is one tile: 0.64 of the FMA peak, with 512 elements,
/// that is with a second tile of 64, 0.56.
constexpr size_t kTileElements = 640;
/// The most that a format may take instead.
constexpr size_t kTileElementsMax = 768;
/// Columns that pass over one decoded tile: their sums take 16 lanes each in the same cache.
constexpr size_t kTileColumns = 24;
/// The most that a format may take instead, where decoding costs more than leaving the cache.
constexpr size_t kTileColumnsMax = 64;
/// Columns of one register block.
constexpr size_t kBlockColumns = 3;

/// A tile of decoded weights, in the planes of the packed columns.
template <size_t kRows>
struct DecodedRows {
  alignas(64) float weights[kTileElementsMax / kLanes][kRows][kLanes];
  alignas(64) float scales[kTileElementsMax / kOctetBlock][kRows][kLanes];  // octets only
};

/// The lanes of the sums of a tile.
template <size_t kRows>
struct TileSums {
  alignas(64) float lanes[kTileColumnsMax][kRows][kLanes];
};

/// Asks for the stored bytes that the next tile will decode, a few lines at every step of this one:
/// runs of at most 2 KiB a row are too short for the hardware's own prefetching, and all at once
/// they would hold up the loads of the columns. Measured with 16 columns of bf16 from memory:
/// nothing asked for 0.42 of the FMA peak, a burst for each block of columns 0.57, spread 0.73.
struct NextTile {
  static constexpr size_t kLine = 64;
  const std::byte* data;
  size_t row_bytes;
  size_t bytes;  // of each row, from `data` on
  size_t rows;
  size_t lines_per_step;
  size_t row;
  size_t offset;

  void step() {
    for (size_t line = 0; line < lines_per_step && row < rows; ++line) {
      __builtin_prefetch(data + row * row_bytes + offset);
      offset += kLine;
      if (offset < bytes) continue;
      offset = 0;
      ++row;
    }
  }
};

template <class V>
struct Tile {
  static constexpr size_t kRows = V::kTileRows;
  DecodedRows<kRows> w;
  TileSums<kRows> sums;
  size_t length;  // elements, whole groups
  NextTile next;
};

/// The packed columns of a register block, from some element of the tile on.
struct TileInput {
  const float* data;
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

/// The sums of kColumns columns from `column` on go on by the pairs of a tile.
template <class V>
struct PairSteps {
  using Register = typename V::Register;
  static constexpr size_t kGroup = kPairGroup;

  template <size_t kColumns>
  static void add(Tile<V>& tile, const TileInput& x, size_t column) {
    auto* sums = &tile.sums.lanes[column];
    for (size_t half = 0; half < kLanes; half += V::kWidth) {
      Register acc[V::kTileRows][kColumns];
      for_sums<V, kColumns>([&](size_t r, size_t c) { acc[r][c] = V::load(&sums[c][r][half]); });
      for (size_t i = 0; i < tile.length; i += kLanes) {
        if (i % kPairGroup == 0) tile.next.step();
        for_plane<V, kColumns>(tile.w.weights[i / kLanes], {x.data + i, x.stride}, half,
                               [&](size_t r, size_t c, Register weight, Register input) {
                                 acc[r][c] = V::fma(weight, input, acc[r][c]);
                               });
      }
      for_sums<V, kColumns>([&](size_t r, size_t c) { V::store(&sums[c][r][half], acc[r][c]); });
    }
  }
};

/// The same by its octets: eight products, then the scale, once.
template <class V>
struct OctetSteps {
  using Register = typename V::Register;
  static constexpr size_t kGroup = kOctetBlock;

  template <size_t kColumns>
  static void add(Tile<V>& tile, const TileInput& x, size_t column) {
    for (size_t first = 0; first < tile.length; first += kOctetBlock) {
      for (size_t half = 0; half < kLanes; half += V::kWidth) {
        add_block<kColumns>(tile, first, {x.data + first, x.stride}, half, column);
      }
    }
  }

 private:
  template <size_t kColumns>
  static void add_block(Tile<V>& tile, size_t first, const TileInput& x, size_t half,
                        size_t column) {
    tile.next.step();
    const auto* planes = &tile.w.weights[first / kLanes];
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
    const auto& scales = tile.w.scales[first / kOctetBlock];
    for_sums<V, kColumns>([&](size_t r, size_t c) {
      float* lanes = &tile.sums.lanes[column + c][r][half];
      V::store(lanes, V::fma(V::load(scales[r] + half), p[r][c], V::load(lanes)));
    });
  }
};

/// All columns of a pass over one decoded tile, in blocks of three and a last one of two or one.
template <class V, class Steps>
static void add_columns(Tile<V>& tile, const TileInput& x, size_t count) {
  static_assert(kBlockColumns == 3);
  for (size_t column = 0; column < count; column += kBlockColumns) {
    const TileInput block{x.data + column * x.stride, x.stride};
    switch (count - column) {
      case 1:
        Steps::template add<1>(tile, block, column);
        break;
      case 2:
        Steps::template add<2>(tile, block, column);
        break;
      default:
        Steps::template add<3>(tile, block, column);
    }
  }
}

static inline size_t at_most(size_t value, size_t limit) {
  return value < limit ? value : limit;
}
static inline size_t quotient_up(size_t value, size_t divisor) {
  return (value + divisor - 1) / divisor;
}

/// What formats share that store a row as kBits bits an element and nothing else.
struct PlainRows {
  static constexpr size_t kElements = kTileElements;
  static constexpr size_t kColumns = kTileColumns;
  static const std::byte* first(const WeightView& w) { return w.data; }
};

/// The tile after the one at `first` of the rows from `row` on, in a range that ends at `end`;
/// `steps` are those of the tile at hand.
template <size_t kRows, class Format>
static NextTile next_tile(const WeightView& w, size_t row, size_t first, size_t end, size_t steps) {
  first += Format::kElements;
  if (first >= w.cols) {
    first = 0;
    row += kRows;
  }
  if (row >= end) return {};
  constexpr size_t kBits = Format::kBits;
  const size_t row_bytes = w.cols * kBits / 8;
  const size_t bytes = at_most(w.cols - first, Format::kElements) * kBits / 8;
  const size_t rows = at_most(end - row, kRows);
  const size_t lines = rows * quotient_up(bytes, NextTile::kLine);
  return {Format::first(w) + row * row_bytes + first * kBits / 8,
          row_bytes,
          bytes,
          rows,
          quotient_up(lines, steps),
          0,
          0};
}

/// y = W x for kTileRows rows from `row` on (fewer at the end of the range) and at most
/// Format::kColumns columns. A format has rows of kBits bits an element from first(w) on; kElements
/// of one are a tile, and decode(w, row, first, count, to, r) writes the planes of `count` elements
/// of a row, padded to a whole group, as row r of the tile.
template <class V, class Format>
static void multiply_tile_rows(const WeightView& w, size_t row, size_t end, const PackedColumns& x,
                               const ColumnsOut& y) {
  using Steps = typename Format::template Steps<V>;
  Tile<V> tile;
  const size_t row_count = at_most(end - row, V::kTileRows);
  if (row_count < V::kTileRows) tile.w = {};  // missing rows are computed, as zeros, and dropped
  std::memset(tile.sums.lanes, 0, x.count * sizeof tile.sums.lanes[0]);
  for (size_t first = 0; first < w.cols; first += Format::kElements) {
    const size_t count = at_most(w.cols - first, Format::kElements);
    for (size_t r = 0; r < row_count; ++r) Format::decode(w, row + r, first, count, tile.w, r);
    tile.length = quotient_up(count, Steps::kGroup) * Steps::kGroup;
    const size_t steps =
        quotient_up(x.count, kBlockColumns) * (tile.length / Steps::kGroup) * (kLanes / V::kWidth);
    tile.next = next_tile<V::kTileRows, Format>(w, row, first, end, steps);
    add_columns<V, Steps>(tile, {x.data + first, x.stride}, x.count);
  }
  for (size_t c = 0; c < x.count; ++c) {
    float row_sums[V::kTileRows];
    V::reduce_rows(tile.sums.lanes[c], row_sums);
    std::memcpy(y.data + c * y.stride + row, row_sums, row_count * sizeof(float));
  }
}

template <class V, class Format>
static void multiply_tiles(const WeightView& w, Range rows, const PackedColumns& x,
                           const ColumnsOut& y) {
  for (size_t column = 0; column < x.count; column += Format::kColumns) {
    const PackedColumns pass{x.data + column * x.stride,
                             at_most(x.count - column, Format::kColumns), x.stride};
    const ColumnsOut out{y.data + column * y.stride, y.stride};
    for (size_t row = rows.begin; row < rows.end; row += V::kTileRows) {
      multiply_tile_rows<V, Format>(w, row, rows.end, pass, out);
    }
  }
}

}  // namespace k3::kernels
