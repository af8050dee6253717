#include "kernels/packed.h"

#include <utility>

#include "kernels/avx2/bf16.h"
#include "kernels/avx2/functions.h"
#include "kernels/avx2/vector.h"
#include "kernels/far_rows.h"
#include "kernels/tiles.h"

namespace k3::kernels::avx2 {
namespace {

constexpr size_t kHalf = kPackedUnit / 2;  // bytes of a register

inline __m256i load_half(const std::byte* from) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
}

/// Calls use.operator()<u>() for every unit of a block.
template <class Use>
inline void for_units(Use use) {
  [&]<size_t... u>(std::index_sequence<u...>) {
    (use.template operator()<u>(), ...);
  }
  (std::make_index_sequence<kUnits>());
}

/// The codes of half h of unit u.
template <size_t kCodeBits, size_t u, size_t h>
inline __m256i code_of(const std::byte* codes) {
  if constexpr (kCodeBits == 4) {
    const __m256i two = load_half(codes + u / 2 * kPackedUnit + h * kHalf);
    return _mm256_and_si256(_mm256_srli_epi16(two, u % 2 * 4), _mm256_set1_epi8(15));
  } else {
    constexpr int kUp = 2 - static_cast<int>(u + 4 * h);  // of the upper bit, to bit 2
    const __m256i lower = _mm256_srli_epi16(load_half(codes + h * kHalf), 2 * u);
    const __m256i all = load_half(codes + kPackedUnit);
    const __m256i upper = kUp > 0 ? _mm256_slli_epi16(all, kUp > 0 ? kUp : 0)
                                  : _mm256_srli_epi16(all, kUp > 0 ? 0 : -kUp);
    return _mm256_or_si256(_mm256_and_si256(lower, _mm256_set1_epi8(3)),
                           _mm256_and_si256(upper, _mm256_set1_epi8(4)));
  }
}

/// The exponents of a block, unit by unit. Behind each unit lies a place for what it does not have.
struct Exponents {
  alignas(64) std::byte units[kUnits][kPackedUnit + kHalf];
};

/// Escapes at the bytes the bits of which are set. Four at once whether there are or not (the place
/// of none is 64): a branch for each would be guessed wrong too often, and 2 % of the units of
/// normal weights have more.
inline void put_escapes(uint64_t places, const std::byte* escapes, std::byte* unit) {
  constexpr size_t kAtOnce = 4;
  size_t i = 0;
  for (; i < kAtOnce; ++i, places &= places - 1) unit[_tzcnt_u64(places)] = escapes[i];
  for (; places != 0; ++i, places &= places - 1) unit[_tzcnt_u64(places)] = escapes[i];
}

/// Writes the exponents of half h of unit u; returns a bit for each that is an escape.
template <size_t kCodeBits, size_t u, size_t h>
inline uint64_t put_codes(const std::byte* codes, __m256i base, Exponents& to) {
  const __m256i code = code_of<kCodeBits, u, h>(codes);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to.units[u] + h * kHalf),
                      _mm256_add_epi8(base, code));
  const __m256i escaped = _mm256_cmpeq_epi8(code, _mm256_setzero_si256());
  return static_cast<uint64_t>(static_cast<uint32_t>(_mm256_movemask_epi8(escaped))) << h * kHalf;
}

template <size_t kCodeBits>
inline void rebuild_exponents(const PackedCursor& at, Exponents& to) {
  const std::byte* codes = at.block + kPackedBlock;
  const __m256i base = _mm256_set1_epi8(std::to_integer<char>(*at.base));
  const std::byte* escapes = at.escapes;
  for_units([&]<size_t u>() {
    const uint64_t places =
        put_codes<kCodeBits, u, 0>(codes, base, to) | put_codes<kCodeBits, u, 1>(codes, base, to);
    put_escapes(places, escapes, to.units[u]);
    escapes += __builtin_popcountll(places);
  });
}

inline __m256i rotated(__m256i words) {
  return _mm256_or_si256(_mm256_srli_epi16(words, 1), _mm256_slli_epi16(words, 15));
}

/// Words 16h .. 16h + 15 of both groups of a unit.
struct Words {
  __m256i low;
  __m256i high;
};

template <size_t u, size_t h>
inline Words half(const std::byte* block, const Exponents& exponents) {
  const __m256i kept = load_half(block + u * kPackedUnit + h * kHalf);
  const __m256i exponent = load_half(exponents.units[u] + h * kHalf);
  return {rotated(_mm256_unpacklo_epi8(kept, exponent)),
          rotated(_mm256_unpackhi_epi8(kept, exponent))};
}

template <size_t h, size_t u>
inline void store_half(const Words& words, std::byte* out) {
  auto* to = reinterpret_cast<__m256i*>(out + 2 * u * kPackedUnit + h * kHalf);
  _mm256_storeu_si256(to, words.low);
  _mm256_storeu_si256(to + 2, words.high);
}

/// Blocks the exponents of which are rebuilt one block ahead of their use: a register loaded from
/// where bytes were just stored waits until all of them have reached the cache.
template <size_t kCodeBits>
class Blocks {
 public:
  /// `count` blocks, at least one, from block `first` of w on.
  Blocks(const WeightView& w, size_t first, size_t count) : ahead_(w, first), left_(count) {
    rebuild_exponents<kCodeBits>(ahead_, exponents_[0]);
  }

  const std::byte* block() const { return block_; }
  const Exponents& exponents() const { return exponents_[turn_]; }

  void next() {
    block_ = ahead_.block;
    turn_ = 1 - turn_;
    if (--left_ == 0) return;
    ahead_.advance(kCodeBits);
    rebuild_exponents<kCodeBits>(ahead_, exponents_[1 - turn_]);
  }

  /// For views that are in memory and not in a cache.
  void ask_ahead() const {
    for (size_t line = 0; line < packed_block_bytes(kCodeBits); line += 64) {
      __builtin_prefetch(ahead_.block + kPrefetchBytes + line);
    }
    __builtin_prefetch(ahead_.escapes + 64);
  }

 private:
  PackedCursor ahead_;
  const std::byte* block_ = nullptr;
  size_t left_;
  size_t turn_ = 1;
  Exponents exponents_[2];
};

template <size_t kCodeBits>
const std::byte* unpack(const WeightView& w, size_t begin, size_t count, std::byte* scratch) {
  const size_t first = begin / kPackedBlock;
  const size_t end = (begin + count + kPackedBlock - 1) / kPackedBlock;
  Blocks<kCodeBits> blocks(w, first, end - first);
  std::byte* out = scratch;
  for (size_t b = first; b < end; ++b, out += 2 * kPackedBlock) {
    blocks.next();
    for_units([&]<size_t u>() {
      store_half<0, u>(half<u, 0>(blocks.block(), blocks.exponents()), out);
      store_half<1, u>(half<u, 1>(blocks.block(), blocks.exponents()), out);
    });
  }
  return scratch + 2 * (begin % kPackedBlock);
}

/// The sum of lanes 8h .. 8h + 7 goes on by half h of a unit.
inline __m256 add_half(const Words& words, const float* x, __m256 acc) {
  acc = _mm256_fmadd_ps(lower_halves(words.low), _mm256_loadu_ps(x), acc);
  acc = _mm256_fmadd_ps(upper_halves(words.low), _mm256_loadu_ps(x + kLanes), acc);
  acc = _mm256_fmadd_ps(lower_halves(words.high), _mm256_loadu_ps(x + kPairGroup), acc);
  return _mm256_fmadd_ps(upper_halves(words.high), _mm256_loadu_ps(x + kPairGroup + kLanes), acc);
}

template <size_t u>
inline Lanes add_unit(const std::byte* block, const Exponents& exponents, const float* x,
                      const Lanes& acc) {
  return {add_half(half<u, 0>(block, exponents), x, acc.low),
          add_half(half<u, 1>(block, exponents), x + 8, acc.high)};
}

template <size_t kCodeBits>
void matvec(const WeightView& w, Range rows, const float* x, float* y) {
  const size_t blocks = w.cols / kPackedBlock;
  for_far_rows(rows, [&](const size_t(&numbers)[kStreams]) {
    static_assert(kStreams == 2);
    Blocks<kCodeBits> a(w, numbers[0] * blocks, blocks);
    Blocks<kCodeBits> b(w, numbers[1] * blocks, blocks);
    Lanes sum_a = zero_lanes();
    Lanes sum_b = zero_lanes();
    for (size_t i = 0; i < w.cols; i += kPackedBlock) {
      a.ask_ahead();
      b.ask_ahead();
      a.next();
      b.next();
      for_units([&]<size_t u>() {
        const float* in = x + i + u * kPackedUnit;
        sum_a = add_unit<u>(a.block(), a.exponents(), in, sum_a);
        sum_b = add_unit<u>(b.block(), b.exponents(), in, sum_b);
      });
    }
    y[numbers[0]] = reduce(sum_a);
    y[numbers[1]] = reduce(sum_b);
  });
}

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
    const std::byte* from = avx2::unpack(w, row * w.cols + first, count, scratch);
    for (size_t i = 0; i < count; i += kPairGroup) {
      const Group group = load_group(from + 2 * i, count - i);
      store_lanes(to.weights[i / kLanes][r], group.even);
      store_lanes(to.weights[i / kLanes + 1][r], group.odd);
    }
  }
};

}  // namespace

const std::byte* unpack(const WeightView& w, size_t begin, size_t count, std::byte* scratch) {
  return w.encoding == Encoding::kPacked3 ? unpack<3>(w, begin, count, scratch)
                                          : unpack<4>(w, begin, count, scratch);
}

void matmul_packed(const WeightView& w, Range rows, const PackedColumns& x, const ColumnsOut& y) {
  if (x.count != 1) {
    if (w.encoding == Encoding::kPacked3)
      return multiply_tiles<Vector, PackedRows<3>>(w, rows, x, y);
    return multiply_tiles<Vector, PackedRows<4>>(w, rows, x, y);
  }
  if (w.cols % kPackedBlock != 0) return multiply_strips(w, rows, x, y, unpack, matmul_bf16);
  if (w.encoding == Encoding::kPacked3) return matvec<3>(w, rows, x.data, y.data);
  matvec<4>(w, rows, x.data, y.data);
}

}  // namespace k3::kernels::avx2
