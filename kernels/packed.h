// Packed bf16: exact, about 0.70 of the bytes, and rebuilt at the speed of memory
// (docs/trunk-format.md has the reasons).
//
// The weights of a view, row after row without gaps, are cut into groups of 32 and blocks of 256. A
// block has a base: its weights have the exponents base .. base + 2^planes - 1. Those that have
// another one are escapes; in a group they stand with code 0.
//
//   groups   each: 32 bytes, sign in bit 7 and mantissa below it; then, for each plane, 4 bytes
//   with
//            one bit a weight: bit k of (exponent - base). The last group is padded with zeros.
//   starts   for every 64th block, the number of escapes before it, 4 bytes
//   heads    for every block: base, number of escapes (at most 255)
//   escapes  in order, each: place in its block, exponent ^ base
//
// Nothing else is needed to find a weight: all places follow from rows, columns and planes.
#pragma once

#include <cstring>

#include "kernels/formats.h"
#include "kernels/lanes.h"
#include "kernels/table.h"

namespace k3::kernels {

constexpr size_t kPackedBlock = 256;
constexpr size_t kBlocksPerStart = 64;
/// The longest row that a strip (below) holds; longer ones are not packed.
constexpr size_t kPackedColsMax = 65536;

constexpr size_t packed_group_bytes(size_t planes) {
  return kPairGroup + 4 * planes;
}

/// Where the parts of a packed view begin.
struct PackedLayout {
  size_t blocks;
  size_t starts;
  size_t heads;
  size_t escapes;
};

static inline PackedLayout packed_layout(size_t weights, size_t planes) {
  PackedLayout at{};
  at.blocks = (weights + kPackedBlock - 1) / kPackedBlock;
  at.starts = (weights + kPairGroup - 1) / kPairGroup * packed_group_bytes(planes);
  at.heads = at.starts + (at.blocks + kBlocksPerStart - 1) / kBlocksPerStart * 4;
  at.escapes = at.heads + at.blocks * 2;
  return at;
}

static inline size_t planes_of(Encoding encoding) {
  return encoding == Encoding::kPacked4 ? 4 : 3;
}

static inline uint32_t load_u32(const std::byte* from) {
  uint32_t value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

/// Escapes of the blocks before `block`.
static inline size_t escapes_before(const std::byte* data, const PackedLayout& at, size_t block) {
  const size_t start = block / kBlocksPerStart;
  size_t sum = load_u32(data + at.starts + 4 * start);
  for (size_t b = start * kBlocksPerStart; b < block; ++b) {
    sum += std::to_integer<size_t>(data[at.heads + 2 * b + 1]);
  }
  return sum;
}

/// True when `bytes` bytes at `data` are a packed view of so many weights: the starts agree with
/// the heads, and the escapes end where the bytes do. Then no unpacking reads outside of them.
static inline bool packed_is_sound(const std::byte* data, size_t bytes, size_t weights,
                                   size_t planes) {
  const PackedLayout at = packed_layout(weights, planes);
  if (bytes < at.escapes) return false;
  size_t escapes = 0;
  for (size_t b = 0; b < at.blocks; ++b) {
    if (b % kBlocksPerStart == 0 &&
        load_u32(data + at.starts + b / kBlocksPerStart * 4) != escapes) {
      return false;
    }
    escapes += std::to_integer<size_t>(data[at.heads + 2 * b + 1]);
  }
  return bytes - at.escapes == 2 * escapes;
}

/// Puts the escapes of a block, rebuilt with code 0, in their places.
static inline void put_escapes(const std::byte* escape, size_t count, std::byte* block) {
  for (size_t i = 0; i < count; ++i) {
    std::byte* place = block + 2 * std::to_integer<size_t>(escape[2 * i]);
    uint16_t word;
    std::memcpy(&word, place, sizeof word);
    word = static_cast<uint16_t>(word ^ std::to_integer<unsigned>(escape[2 * i + 1]) << 7);
    std::memcpy(place, &word, sizeof word);
  }
}

/// Kernels::unpack for an instruction set's rebuild(groups, count, base, out): `count` groups of
/// one block as bf16.
template <size_t kPlanes, class Rebuild>
static inline const std::byte* unpack_blocks(const WeightView& w, size_t begin, size_t count,
                                             std::byte* scratch, Rebuild rebuild) {
  constexpr size_t kGroupBytes = packed_group_bytes(kPlanes);
  const PackedLayout at = packed_layout(w.rows * w.cols, kPlanes);
  const size_t end = begin + count;
  size_t block = begin / kPackedBlock;
  size_t group = begin / kPairGroup;
  const std::byte* escape = w.data + at.escapes + 2 * escapes_before(w.data, at, block);
  std::byte* out = scratch;
  for (; block * kPackedBlock < end; ++block, out += 2 * kPackedBlock) {
    const size_t first = block * kPackedBlock;
    const size_t last = end < first + kPackedBlock ? end : first + kPackedBlock;
    const size_t groups = (last + kPairGroup - 1) / kPairGroup - group;
    const std::byte* head = w.data + at.heads + 2 * block;
    rebuild(w.data + group * kGroupBytes, groups, std::to_integer<unsigned>(head[0]),
            out + 2 * (group * kPairGroup - first));
    const auto escapes = std::to_integer<size_t>(head[1]);
    put_escapes(escape, escapes, out);
    escape += 2 * escapes;
    group += groups;
  }
  return scratch + 2 * (begin % kPackedBlock);
}

/// Bytes of bf16 that are unpacked at a time: they stay in the first-level cache.
constexpr size_t kStripBytes = 32768;
/// At least so many rows: the product of one row alone waits for its own sum.
constexpr size_t kStripRows = 2;

/// Calls use(strip, row) for the rows of the range, a few at a time, as a view of bf16 whose first
/// row is `row` of `w`.
template <class Use>
static inline void for_strips(const WeightView& w, Range rows, decltype(Kernels::unpack) unpack,
                              Use use) {
  alignas(64) std::byte scratch[unpack_scratch_bytes(kPackedColsMax)];
  const size_t row_bytes = 2 * w.cols;
  size_t step = kStripBytes / row_bytes;
  if (step < kStripRows) step = kStripRows * w.cols <= kPackedColsMax ? kStripRows : 1;
  for (size_t row = rows.begin; row < rows.end; row += step) {
    const size_t count = rows.end - row < step ? rows.end - row : step;
    const std::byte* weights = unpack(w, row * w.cols, count * w.cols, scratch);
    use(WeightView{Encoding::kBf16, weights, nullptr, count, w.cols}, row);
  }
}

/// matmul_packed of one column, or of any number where that is not slow.
static inline void multiply_strips(const WeightView& w, Range rows, const PackedColumns& x,
                                   const ColumnsOut& y, decltype(Kernels::unpack) unpack,
                                   decltype(Kernels::matmul_bf16) multiply) {
  for_strips(w, rows, unpack, [&](const WeightView& strip, size_t row) {
    multiply(strip, {0, strip.rows}, x, {y.data + row, y.stride});
  });
}

/// accumulate_rows of a packed view.
static inline void accumulate_strips(const WeightView& w, Range rows, const RowBatch& batch,
                                     decltype(Kernels::unpack) unpack,
                                     decltype(Kernels::accumulate_rows) accumulate) {
  for_strips(w, rows, unpack, [&](const WeightView& strip, size_t row) {
    RowBatch part = batch;
    part.x += row - rows.begin;
    accumulate(strip, {0, strip.rows}, part);
  });
}

}  // namespace k3::kernels
