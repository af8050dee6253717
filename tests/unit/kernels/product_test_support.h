// What the tests of the products share: weight matrices of every encoding in guarded memory.
#pragma once

#include <memory>

#include "kernels/lanes.h"
#include "vector_test_support.h"

namespace k3::kernels {

using Side = GuardedFloats::Side;

/// Bytes at one end of accessible memory, at whatever alignment their number gives.
class GuardedBytes {
 public:
  GuardedBytes(const std::vector<std::byte>& bytes, Side side)
      : floats_(bytes.size() / sizeof(float) + 1, side), size_(bytes.size()) {
    const size_t slack = floats_.size() * sizeof(float) - size_;
    data_ = reinterpret_cast<std::byte*>(floats_.data()) + (side == Side::kEnd ? slack : 0);
    std::copy(bytes.begin(), bytes.end(), data_);
  }
  const std::byte* data() const { return data_; }
  size_t size() const { return size_; }

 private:
  GuardedFloats floats_;
  size_t size_;
  std::byte* data_;
};

inline size_t row_bytes(Encoding encoding, size_t cols) {
  switch (encoding) {
    case Encoding::kBf16:
      return cols * 2;
    case Encoding::kF32:
      return cols * 4;
    default:
      return cols / 2;
  }
}

/// A matrix that owns its bytes.
struct Matrix {
  Encoding encoding;
  size_t rows;
  size_t cols;
  std::vector<std::byte> data;
  std::vector<std::byte> scales;

  WeightView view() const { return {encoding, data.data(), scales.data(), rows, cols}; }
};

template <class T>
std::vector<std::byte> bytes_of(const std::vector<T>& values) {
  const auto* first = reinterpret_cast<const std::byte*>(values.data());
  return {first, first + values.size() * sizeof(T)};
}

inline std::vector<std::byte> bf16_bytes(const std::vector<float>& values) {
  std::vector<uint16_t> halves;
  for (const float value : values) {
    halves.push_back(static_cast<uint16_t>(std::bit_cast<uint32_t>(value) >> 16));
  }
  return bytes_of(halves);
}

inline Matrix bf16_matrix(size_t rows, size_t cols, const std::vector<float>& values) {
  return {Encoding::kBf16, rows, cols, bf16_bytes(values), {}};
}

inline Matrix f32_matrix(size_t rows, size_t cols, const std::vector<float>& values) {
  return {Encoding::kF32, rows, cols, bytes_of(values), {}};
}

/// Any nibbles under scales in [first_scale, last_scale].
inline Matrix mxfp4_matrix(size_t rows, size_t cols, int first_scale, int last_scale,
                           uint32_t seed) {
  Matrix matrix{Encoding::kMxfp4, rows, cols, {}, {}};
  std::mt19937 engine(seed);
  for (size_t i = 0; i < rows * cols / 2; ++i) matrix.data.push_back(std::byte(engine() % 256));
  const auto count = static_cast<uint32_t>(last_scale - first_scale + 1);
  for (size_t i = 0; i < rows * cols / kScaleGroup; ++i) {
    matrix.scales.push_back(std::byte(static_cast<uint32_t>(first_scale) + engine() % count));
  }
  return matrix;
}

enum class Kind { kOrdinary, kAdversarial };

inline std::vector<float> input_values(Kind kind, size_t n, uint32_t seed) {
  Values values(seed);
  return kind == Kind::kOrdinary ? values.normal(n) : values.adversarial(n, seed % 2 == 0);
}

inline Matrix any_matrix(Encoding encoding, size_t rows, size_t cols, Kind kind, uint32_t seed) {
  switch (encoding) {
    case Encoding::kBf16:
      return bf16_matrix(rows, cols, input_values(kind, rows * cols, seed));
    case Encoding::kF32:
      return f32_matrix(rows, cols, input_values(kind, rows * cols, seed));
    default:
      return kind == Kind::kOrdinary ? mxfp4_matrix(rows, cols, 117, 130, seed)
                                     : mxfp4_matrix(rows, cols, 0, 255, seed);
  }
}

inline size_t packed_length(Encoding encoding, size_t cols) {
  return encoding == Encoding::kMxfp4 ? packed_octets_length(cols) : packed_pairs_length(cols);
}

/// `count` columns of x, each of `cols` values, in lane order and one behind the other.
inline std::vector<float> pack_columns(Encoding encoding, const std::vector<float>& x, size_t cols,
                                       size_t count) {
  const Kernels& scalar = scalar_table();
  const auto pack = encoding == Encoding::kMxfp4 ? scalar.pack_octets : scalar.pack_pairs;
  const size_t length = packed_length(encoding, cols);
  std::vector<float> packed(length * count);
  for (size_t c = 0; c < count; ++c) pack(x.data() + c * cols, cols, packed.data() + c * length);
  return packed;
}

inline auto matmul_of(const Kernels& kernels, Encoding encoding) {
  switch (encoding) {
    case Encoding::kBf16:
      return kernels.matmul_bf16;
    case Encoding::kF32:
      return kernels.matmul_f32;
    default:
      return kernels.matmul_mxfp4;
  }
}

/// y[column * rows + r] of a whole product.
inline std::vector<float> product(const Kernels& kernels, const Matrix& w,
                                  const std::vector<float>& x, size_t columns) {
  const std::vector<float> packed = pack_columns(w.encoding, x, w.cols, columns);
  std::vector<float> y(w.rows * columns, 77.0F);
  matmul_of(kernels, w.encoding)(w.view(), {0, w.rows},
                                 {packed.data(), columns, packed_length(w.encoding, w.cols)},
                                 {y.data(), w.rows});
  return y;
}

inline std::string_view encoding_name(Encoding encoding) {
  switch (encoding) {
    case Encoding::kBf16:
      return "bf16";
    case Encoding::kF32:
      return "f32";
    default:
      return "mxfp4";
  }
}

constexpr Encoding kEncodings[] = {Encoding::kBf16, Encoding::kF32, Encoding::kMxfp4};

/// Inner lengths of an encoding: whole and partial groups, none to three, some beside the tile of
/// 640.
inline std::vector<size_t> inner_lengths(Encoding encoding) {
  std::vector<size_t> lengths;
  if (encoding == Encoding::kMxfp4) {
    for (size_t n = 0; n <= 3 * kOctetBlock + kScaleGroup; n += kScaleGroup) lengths.push_back(n);
    for (const size_t n : {608, 640, 672, 1312, 1536}) lengths.push_back(n);
    return lengths;
  }
  for (size_t n = 0; n <= 3 * kPairGroup + 1; ++n) lengths.push_back(n);
  for (const size_t n : {639, 640, 641, 672, 1297, 1536}) lengths.push_back(n);
  return lengths;
}

}  // namespace k3::kernels
