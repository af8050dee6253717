// Packed bf16: exact, about 0.70 of the bytes, and rebuilt in the registers of a product
// (docs/trunk-format.md has the reasons).
//
// The weights of a view, row after row without gaps, are cut into blocks of 256 and units of 64;
// the last block is filled up. A weight, rotated left by one bit, is its exponent and a byte of
// mantissa and sign. The byte is kept as it is. The exponent is a code of 3 (or 4) bits: base +
// code with the base of the block; code 0 is an escape, the exponent of which stands in full in the
// list of escapes, in the order of the bytes.
//
//   ends     for every run of 64 blocks, how many escapes there are up to its end, 4 bytes
//   bases    for every block, a byte
//   counts   for every block, its escapes, a byte (at most 255)
//   escapes  a byte each; then zeros up to a multiple of 32
//   blocks   each: 256 bytes of mantissa and sign, then the codes in 96 (or 128) bytes
//
// Byte b of a unit belongs to weight place_in_unit(b): unpacking bytes to words inside lanes of 16
// bytes, as AVX2 and AVX-512 do, then gives words in the order of the weights. The codes lie so
// that one register of them serves several units, each by a shift:
//
//   3 bits   64 bytes: bits 2u, 2u+1 of byte b are the lower bits of byte b of unit u; then 32
//            bytes: bit u + 4h of byte c is the upper bit of byte c + 32h of unit u
//   4 bits   64 bytes for units 0 (lower halves) and 1 (upper halves), 64 bytes for units 2 and 3
//
// A load of escapes may reach up to 320 bytes beyond the last: it ends in the blocks.
#pragma once

#include <cstring>

#include "kernels/formats.h"
#include "kernels/lanes.h"
#include "kernels/table.h"

namespace k3::kernels {

constexpr size_t kPackedBlock = 256;
constexpr size_t kPackedUnit = 64;
constexpr size_t kUnits = kPackedBlock / kPackedUnit;
constexpr size_t kBlocksPerEnd = 64;
constexpr size_t kPackedAlignment = 32;
/// The longest row that a strip (below) holds; longer ones are not packed.
constexpr size_t kPackedColsMax = 65536;

constexpr size_t packed_block_bytes(size_t code_bits) {
  return kPackedBlock + kPackedBlock / 8 * code_bits;
}

constexpr size_t place_in_unit(size_t byte) {
  return byte % 16 / 8 * kPairGroup + byte / 16 * 8 + byte % 8;
}

static inline size_t code_bits_of(Encoding encoding) {
  return encoding == Encoding::kPacked4 ? 4 : 3;
}

/// Where the parts of a packed view begin; the ends do at 0.
struct PackedLayout {
  size_t blocks;  // how many
  size_t bases;
  size_t counts;
  size_t escapes;

  size_t body(size_t escape_count) const {
    return (escapes + escape_count + kPackedAlignment - 1) / kPackedAlignment * kPackedAlignment;
  }
  size_t bytes(size_t escape_count, size_t code_bits) const {
    return body(escape_count) + blocks * packed_block_bytes(code_bits);
  }
};

static inline PackedLayout packed_layout(size_t weights) {
  PackedLayout at{};
  at.blocks = (weights + kPackedBlock - 1) / kPackedBlock;
  at.bases = (at.blocks + kBlocksPerEnd - 1) / kBlocksPerEnd * 4;
  at.counts = at.bases + at.blocks;
  at.escapes = at.counts + at.blocks;
  return at;
}

static inline uint32_t load_u32(const std::byte* from) {
  uint32_t value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

/// The number of all escapes: the last of the ends.
static inline size_t escape_count(const std::byte* data, const PackedLayout& at) {
  return load_u32(data + at.bases - 4);
}

/// True when `bytes` bytes at `data` are a packed view of so many weights: the ends agree with the
/// counts, and the blocks end where the bytes do. Then no unpacking reads outside of them, whatever
/// the codes are.
static inline bool packed_is_sound(const std::byte* data, size_t bytes, size_t weights,
                                   size_t code_bits) {
  const PackedLayout at = packed_layout(weights);
  if (at.blocks == 0 || bytes < at.escapes) return false;
  size_t escapes = 0;
  for (size_t b = 0; b < at.blocks; ++b) {
    escapes += std::to_integer<size_t>(data[at.counts + b]);
    if ((b + 1) % kBlocksPerEnd != 0 && b + 1 != at.blocks) continue;
    if (load_u32(data + b / kBlocksPerEnd * 4) != escapes) return false;
  }
  return bytes == at.bytes(escapes, code_bits);
}

/// The next block of a run of blocks, and the steps to the one after it.
struct PackedCursor {
  const std::byte* block;
  const std::byte* base;
  const std::byte* count;
  const std::byte* escapes;

  PackedCursor(const WeightView& w, size_t number) {
    const PackedLayout at = packed_layout(w.rows * w.cols);
    block = w.data + at.body(escape_count(w.data, at)) +
            number * packed_block_bytes(code_bits_of(w.encoding));
    base = w.data + at.bases + number;
    count = w.data + at.counts + number;
    const size_t run = number / kBlocksPerEnd;
    escapes = w.data + at.escapes + (run == 0 ? 0 : load_u32(w.data + 4 * (run - 1)));
    for (size_t b = run * kBlocksPerEnd; b < number; ++b) {
      escapes += std::to_integer<size_t>(w.data[at.counts + b]);
    }
  }

  /// By the count, not by the codes: what is read stays inside the view.
  void advance(size_t code_bits) {
    escapes += std::to_integer<size_t>(*count);
    block += packed_block_bytes(code_bits);
    ++base;
    ++count;
  }
};

/// Kernels::unpack for an instruction set's rebuild(cursor, out): a block as bf16.
template <size_t kCodeBits, class Rebuild>
static inline const std::byte* unpack_blocks(const WeightView& w, size_t begin, size_t count,
                                             std::byte* scratch, Rebuild rebuild) {
  const size_t first = begin / kPackedBlock;
  const size_t end = (begin + count + kPackedBlock - 1) / kPackedBlock;
  PackedCursor at(w, first);
  std::byte* out = scratch;
  for (size_t b = first; b < end; ++b, out += 2 * kPackedBlock) {
    rebuild(at, out);
    at.advance(kCodeBits);
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
