// y_b[c] goes on by x_b[i] * W[i, c]: eight rows at a time, so that a sum is loaded and stored once
// for eight steps and the rows are read as eight long streams; a vector of eight weights serves up
// to four batch vectors. V is a register of an instruction set with load, store, broadcast, fma,
// and widen for bf16.
#pragma once

#include "kernels/formats.h"
#include "kernels/table.h"

namespace k3::kernels {
namespace {

/// The columns that fill no whole register.
struct OneFloat {
  using Register = float;
  static constexpr size_t kWidth = 1;
  static Register load(const void* from) { return f32_value(static_cast<const std::byte*>(from)); }
  static Register widen(const std::byte* from) { return bf16_value(from); }
  static Register broadcast(float value) { return value; }
  static void store(float* to, Register value) { *to = value; }
  static Register fma(Register a, Register b, Register c) { return __builtin_fmaf(a, b, c); }
};

struct Bf16Weights {
  static constexpr size_t kBytes = 2;
  template <class V>
  static typename V::Register load(const std::byte* from) {
    return V::widen(from);
  }
};

struct F32Weights {
  static constexpr size_t kBytes = 4;
  template <class V>
  static typename V::Register load(const std::byte* from) {
    return V::load(from);
  }
};

constexpr size_t kAccumulatedRows = 8;
constexpr size_t kAccumulatedVectors = 4;

/// Columns [begin, end) in whole registers, for kRows rows from `weights` on; x begins at the first
/// of them. Returns the first column that was left.
template <class V, class Weights, size_t kRows>
size_t accumulate_columns(const std::byte* weights, size_t cols, size_t begin,
                          const RowBatch& batch) {
  size_t c = begin;
  for (; c + V::kWidth <= cols; c += V::kWidth) {
    typename V::Register w[kRows];
    for (size_t i = 0; i < kRows; ++i) {
      w[i] = Weights::template load<V>(weights + (i * cols + c) * Weights::kBytes);
    }
    for (size_t b = 0; b < batch.count; ++b) {
      float* y = batch.y + b * batch.y_stride + c;
      const float* x = batch.x + b * batch.x_stride;
      typename V::Register sum = V::load(y);
      for (size_t i = 0; i < kRows; ++i) sum = V::fma(V::broadcast(x[i]), w[i], sum);
      V::store(y, sum);
    }
  }
  return c;
}

template <class V, class Weights, size_t kRows>
void accumulate_some_rows(const std::byte* weights, size_t cols, const RowBatch& batch) {
  for (size_t b = 0; b < batch.count; b += kAccumulatedVectors) {
    const size_t left = batch.count - b;
    const RowBatch part{left < kAccumulatedVectors ? left : kAccumulatedVectors,
                        batch.x + b * batch.x_stride, batch.x_stride, batch.y + b * batch.y_stride,
                        batch.y_stride};
    const size_t rest = accumulate_columns<V, Weights, kRows>(weights, cols, 0, part);
    accumulate_columns<OneFloat, Weights, kRows>(weights, cols, rest, part);
  }
}

template <class V, class Weights>
void accumulate(const WeightView& w, Range rows, RowBatch batch) {
  const size_t row_bytes = w.cols * Weights::kBytes;
  size_t i = rows.begin;
  for (; i + kAccumulatedRows <= rows.end; i += kAccumulatedRows) {
    accumulate_some_rows<V, Weights, kAccumulatedRows>(w.data + i * row_bytes, w.cols, batch);
    batch.x += kAccumulatedRows;
  }
  for (; i < rows.end; ++i) {
    accumulate_some_rows<V, Weights, 1>(w.data + i * row_bytes, w.cols, batch);
    batch.x += 1;
  }
}

template <class V>
void accumulate(const WeightView& w, Range rows, const RowBatch& batch) {
  if (w.encoding == Encoding::kBf16) {
    accumulate<V, Bf16Weights>(w, rows, batch);
  } else {
    accumulate<V, F32Weights>(w, rows, batch);
  }
}

}  // namespace
}  // namespace k3::kernels
