// The table of kernels: one pointer per operation, one table per instruction set.
//
// Kernels are pure functions: no I/O, no allocation, no threads, no exceptions, nothing of K3. The
// scalar table defines every result (docs/numeric-contract.md); the others equal it bit for bit
// (a NaN counts as a NaN). Callers split work over threads by the ranges that most functions take;
// no split and no batch size changes a bit.
//
// Buffers: float pointers need 4-byte alignment only, weights none. Nothing is read or written
// outside the stated lengths. Outputs never overlap inputs unless "in place" is said.
#pragma once

#include <cstddef>
#include <cstdint>

namespace k3::kernels {

enum class Isa : uint8_t { kScalar, kAvx2, kAvx512 };

/// kPacked3 and kPacked4 are bf16 with exponents as codes of 3 or 4 bits (packed.h).
enum class Encoding : uint8_t { kBf16 = 0, kF32 = 1, kMxfp4 = 2, kPacked3 = 3, kPacked4 = 4 };

constexpr bool is_packed(Encoding encoding) {
  return encoding == Encoding::kPacked3 || encoding == Encoding::kPacked4;
}

/// Rows of a weight matrix W[rows, cols], row-major, as stored in the checkpoint or packed.
struct WeightView {
  Encoding encoding;
  const std::byte* data;    // kMxfp4: packed nibbles, cols/2 bytes a row
  const std::byte* scales;  // kMxfp4: E8M0 bytes, cols/32 a row; else null
  size_t rows;
  size_t cols;
};

/// Input vectors in lane order (pack_pairs or pack_octets): column c starts at data + c*stride.
struct PackedColumns {
  const float* data;
  size_t count;
  size_t stride;  // in floats, at least the padded length
};

/// Output of a product: y[c*stride + r] for row r of the view and column c.
struct ColumnsOut {
  float* data;
  size_t stride;
};

/// A half-open range of rows, heads, positions, ... that one call works on.
struct Range {
  size_t begin;
  size_t end;
};

/// Lengths of packed inputs: whole groups of 32 (bf16, fp32) and whole blocks of 128 (MXFP4).
static constexpr size_t packed_pairs_length(size_t n) {
  return (n + 31) / 32 * 32;
}
static constexpr size_t packed_octets_length(size_t n) {
  return (n + 127) / 128 * 128;
}

/// Room that `count` weights need in Kernels::unpack: the blocks of 256 that they lie in.
static constexpr size_t unpack_scratch_bytes(size_t count) {
  return 2 * (count + 512);
}

/// Vectors of accumulate_rows, in natural order.
struct RowBatch {
  size_t count;
  const float* x;
  size_t x_stride;
  float* y;
  size_t y_stride;
};

/// One head of a KDA layer over `positions` consecutive positions (docs/numeric-contract.md, KDA).
struct KdaHead {
  size_t dim;          // D: rows (keys) and columns (values) of the state
  size_t positions;    // T
  size_t stride;       // floats between the same channel of two positions in q, k, v, decay and out
  const float* q;      // [T, D], l2-normalised and scaled
  const float* k;      // [T, D], l2-normalised
  const float* v;      // [T, D]
  const float* decay;  // [T, D], d = exp(g) in (0, 1], by key row
  const float* beta;   // [T], beta_stride floats apart
  size_t beta_stride;
  float* state;  // [D, D] row-major by key row, updated in place
  float* out;    // [T, D]
};

/// A tile of at most 256 cached positions seen by some heads of one query row.
struct AttentionTile {
  size_t positions;   // 1..256
  size_t width;       // floats of a cache row that are summed (kv_lora_rank)
  size_t row_stride;  // floats between two cache rows
  const float* rows;  // cache rows of the tile, natural order
  size_t heads;       // how many heads
  float scale;        // score = dot * scale
  const float* dots;  // [heads, dot_stride]: query times cache row, not yet scaled
  size_t dot_stride;
  float* maximum;  // [heads], -inf before the first tile
  float* total;    // [heads], 0 before the first tile
  float* sums;     // [heads, width], 0 before the first tile
};

struct Kernels {
  Isa isa;

  // ---- products (dot products over features; lanes and order in lanes.h) ----

  /// y = W x for the rows of `rows` and every column. One call serves one column and many.
  /// x is packed with pack_pairs (kBf16, kF32) or pack_octets (kMxfp4) from vectors of w.cols.
  void (*matmul_bf16)(const WeightView& w, Range rows, const PackedColumns& x, const ColumnsOut& y);
  void (*matmul_f32)(const WeightView& w, Range rows, const PackedColumns& x, const ColumnsOut& y);
  void (*matmul_mxfp4)(const WeightView& w, Range rows, const PackedColumns& x,
                       const ColumnsOut& y);
  /// The bits of matmul_bf16 on the weights that w packs. At most 65536 columns.
  void (*matmul_packed)(const WeightView& w, Range rows, const PackedColumns& x,
                        const ColumnsOut& y);

  /// Lane order for bf16 and fp32 weights: groups of 32 -> even plane of 16, odd plane of 16.
  /// Writes packed_pairs_length(n) floats; the padding is +0.
  void (*pack_pairs)(const float* x, size_t n, float* out);
  /// Lane order for MXFP4: blocks of 128 -> eight planes of 16, plane k holds elements 8j+k.
  /// Writes packed_octets_length(n) floats; the padding is +0.
  void (*pack_octets)(const float* x, size_t n, float* out);

  /// dot(a, b) in the 16-lane order of kF32 weights; both in natural order.
  float (*dot)(const float* a, const float* b, size_t n);

  // ---- widening ----
  void (*widen_bf16)(const std::byte* bf16, size_t n, float* out);
  /// Weights [begin, begin + count) of a packed view, rows one after the other, as bf16 in
  /// `scratch` (unpack_scratch_bytes(count)); returns where the first one lies in it.
  const std::byte* (*unpack)(const WeightView& w, size_t begin, size_t count, std::byte* scratch);

  // ---- norms and mixtures ----

  /// y = (x*r)*w with r = 1/sqrt(dot(x,x)/n + eps). In place allowed (y == x).
  void (*rms_norm)(const float* x, const float* w, size_t n, float eps, float* y);
  /// y = x*r with r = 1/sqrt(dot(x,x) + 1e-6), then *scale unless scale == 1. In place allowed.
  void (*l2_norm)(const float* x, size_t n, float scale, float* y);
  /// AttnRes score of one source: dot(source, f) * r, r as in rms_norm.
  float (*attn_res_score)(const float* source, const float* f, size_t n, float eps);
  /// out[i] = chain over s ascending of fma(p[s], sources[s][i], out[i]), from +0.
  void (*weighted_sum)(const float* const* sources, const float* p, size_t count, size_t n,
                       float* out);
  /// p = softmax(scores) for few values: exact maximum, e = exp(s-m), sum in order, e/sum. In
  /// place.
  void (*softmax)(float* scores, size_t count);

  // ---- elementwise ----
  void (*add)(const float* a, const float* b, size_t n, float* out);       // in place allowed
  void (*multiply)(const float* a, const float* b, size_t n, float* out);  // in place allowed
  void (*add_scaled)(const float* x, float scale, size_t n,
                     float* acc);                                       // acc = fma(scale, x, acc)
  void (*divide)(const float* x, float divisor, size_t n, float* out);  // in place allowed
  void (*exp)(const float* x, size_t n, float* out);                    // in place allowed
  void (*sigmoid)(const float* x, size_t n, float* out);                // in place allowed
  /// out = x * sigmoid(gate): the output gates of KDA and MLA. In place allowed (out == x).
  void (*gate)(const float* x, const float* gate, size_t n, float* out);
  /// ((b1*tanh(g/b1)) * sigmoid(g)) * (b2*tanh(u/b2)). In place allowed (out == g or u).
  void (*situ)(const float* g, const float* u, size_t n, float b1, float b2, float* out);
  /// Decay of one KDA head: exp(lower * sigmoid(exp_a * (z + bias))). In place allowed (out == z).
  void (*kda_decay)(const float* z, const float* bias, float exp_a, float lower, size_t n,
                    float* out);
  /// out[c] = z * sigmoid(z), z = fma chain from +0 over taps j, oldest first, of
  /// taps[j*tap_stride + c] * window[j][c]; window[j] is the pre-convolution vector of position
  /// t-count+1+j. In place allowed (out == window[count-1]).
  void (*short_conv)(const float* const* window, const float* taps, size_t tap_stride, size_t count,
                     size_t n, float* out);
  /// True when no element is infinite or NaN.
  bool (*all_finite)(const float* x, size_t n);
  /// Index of the largest element, the lowest index among equals. n >= 1, no NaN.
  size_t (*argmax)(const float* x, size_t n);

  // ---- KDA ----
  void (*kda_head)(const KdaHead& head);

  // ---- latent attention ----

  /// For every vector b < batch.count and every column c of W:
  ///   y[b*y_stride + c] = chain over i in `rows` ascending of fma(x[b*x_stride + i - rows.begin],
  ///   W[i, c], y[b*y_stride + c]), continuing from what y holds: q_lat = q_nope W_UK.
  /// w.encoding is any but kMxfp4; packed views have at most 65536 columns.
  void (*accumulate_rows)(const WeightView& w, Range rows, const RowBatch& batch);
  /// One tile of the online softmax: new maximum, rescale, e = exp(s-m), totals and weighted sums
  /// of latents in ascending order of positions.
  void (*attend_tile)(const AttentionTile& tile);
};

}  // namespace k3::kernels
