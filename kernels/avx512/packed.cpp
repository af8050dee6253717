#include "kernels/packed.h"

#include "kernels/avx2/functions.h"
#include "kernels/avx512/bf16.h"
#include "kernels/avx512/functions.h"
#include "kernels/avx512/packed_vbmi2.h"
#include "kernels/avx512/vector.h"
#include "kernels/tiles.h"

namespace k3::kernels::avx512 {
namespace {

// The first CPUs with AVX-512 lack them; theirs is the unpacking of avx2.
const bool has_vbmi2 =
    __builtin_cpu_supports("avx512vbmi") && __builtin_cpu_supports("avx512vbmi2");

template <size_t kCodeBits>
struct PackedRows {
  static constexpr size_t kBits = 8 + kCodeBits;
  static constexpr size_t kElements = kTileElementsMax;  // whole blocks
  static constexpr size_t kColumns = kTileColumnsMax;    // few passes: unpacking is dear
  template <class V>
  using Steps = PairSteps<V>;

  static const std::byte* first(const WeightView& w) { return PackedCursor(w, 0).block; }
  static void decode(const WeightView& w, size_t row, size_t first, size_t count,
                     DecodedRows<Vector::kTileRows>& to, size_t r) {
    alignas(64) std::byte scratch[unpack_scratch_bytes(kElements)];
    const std::byte* from = unpack(w, row * w.cols + first, count, scratch);
    for (size_t i = 0; i < count; i += kPairGroup) {
      const __m512i words = load_words(from + 2 * i, count - i);
      _mm512_store_ps(to.weights[i / kLanes][r], even_weights(words));
      _mm512_store_ps(to.weights[i / kLanes + 1][r], odd_weights(words));
    }
  }
};

}  // namespace

const std::byte* unpack(const WeightView& w, size_t begin, size_t count, std::byte* scratch) {
  return has_vbmi2 ? unpack_vbmi2(w, begin, count, scratch)
                   : avx2::unpack(w, begin, count, scratch);
}

void matmul_packed(const WeightView& w, Range rows, const PackedColumns& x, const ColumnsOut& y) {
  if (x.count != 1) {
    if (w.encoding == Encoding::kPacked3)
      return multiply_tiles<Vector, PackedRows<3>>(w, rows, x, y);
    return multiply_tiles<Vector, PackedRows<4>>(w, rows, x, y);
  }
  if (w.cols % kPackedBlock != 0) return multiply_strips(w, rows, x, y, unpack, matmul_bf16);
  if (has_vbmi2) return matvec_packed_vbmi2(w, rows, x.data, y.data);
  avx2::matmul_packed(w, rows, x, y);
}

}  // namespace k3::kernels::avx512
