// Packed chunks of the trunk: weights come back as they were, damage is found or stays inside the
// chunk, and every instruction set reads the same from it.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <span>
#include <vector>

#include "base/check.h"
#include "kernels/dispatch.h"
#include "tools/fuzz/targets.h"
#include "weights/dtype.h"
#include "weights/trunk_codec.h"

namespace k3::fuzz {
namespace {

using weights::Codec;
using Buffer = std::vector<std::byte>;  // as long as what is in it: a read beyond it is seen

/// Takes the input apart from the front; zeros when it has ended.
class Input {
 public:
  explicit Input(std::string_view bytes) : bytes_(bytes) {}
  size_t byte() {
    if (bytes_.empty()) return 0;
    const auto first = static_cast<uint8_t>(bytes_[0]);
    bytes_.remove_prefix(1);
    return first;
  }
  size_t word() {
    const size_t low = byte();
    return low | byte() << 8;
  }
  Buffer rest() const {
    const auto bytes = std::as_bytes(std::span(bytes_));
    return {bytes.begin(), bytes.end()};
  }

 private:
  std::string_view bytes_;
};

struct Chunk {
  Codec codec;
  Buffer stored;
  size_t weights;
};

std::vector<const kernels::Kernels*> tables() {
  std::vector<const kernels::Kernels*> all;
  for (const auto isa : {kernels::Isa::kScalar, kernels::Isa::kAvx2, kernels::Isa::kAvx512}) {
    if (isa <= kernels::best_isa()) all.push_back(&kernels::table(isa));
  }
  return all;
}

bool same_bits(float a, float b) {
  return (std::isnan(a) && std::isnan(b)) ||
         std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b);
}

/// The weights in the range `cut`, by Kernels::unpack.
Buffer unpacked(const kernels::Kernels& k, const kernels::WeightView& view, kernels::Range cut) {
  const size_t count = cut.end - cut.begin;
  Buffer scratch(kernels::unpack_scratch_bytes(count));
  const std::byte* first = k.unpack(view, cut.begin, count, scratch.data());
  return {first, first + 2 * count};
}

/// Products of all rows with two columns, and with the first alone: that is other code.
std::vector<float> products(const kernels::Kernels& k, const kernels::WeightView& view) {
  constexpr size_t kColumns = 2;
  const size_t stride = kernels::packed_pairs_length(view.cols);
  std::vector<float> x(view.cols), packed(kColumns * stride);
  std::vector<float> y((kColumns + 1) * view.rows);
  for (size_t c = 0; c < kColumns; ++c) {
    for (size_t i = 0; i < view.cols; ++i) x[i] = 0.25F * static_cast<float>(i % 7 + c) - 1;
    k.pack_pairs(x.data(), view.cols, packed.data() + c * stride);
  }
  k.matmul_packed(view, {0, view.rows}, {packed.data(), kColumns, stride}, {y.data(), view.rows});
  k.matmul_packed(view, {0, view.rows}, {packed.data(), 1, stride},
                  {y.data() + kColumns * view.rows, view.rows});
  return y;
}

/// Sums over all rows, one for each column.
std::vector<float> row_sums(const kernels::Kernels& k, const kernels::WeightView& view) {
  std::vector<float> x(view.rows), y(view.cols);
  for (size_t i = 0; i < view.rows; ++i) x[i] = 0.5F * static_cast<float>(i % 5) - 1;
  k.accumulate_rows(view, {0, view.rows}, {1, x.data(), view.rows, y.data(), view.cols});
  return y;
}

/// A number of columns that divides the weights, at most `most`.
size_t columns(size_t weights, size_t most) {
  size_t cols = std::clamp<size_t>(most, 1, weights);
  while (weights % cols != 0) --cols;
  return cols;
}

/// Everything that reads a chunk, once it was found sound.
void read_sound(const Chunk& chunk, const Buffer& all, size_t shape, size_t begin, size_t count) {
  const size_t cols = columns(chunk.weights, shape);
  const auto encoding = weights::encoding_of(static_cast<uint8_t>(chunk.codec),
                                             static_cast<uint8_t>(weights::DType::kBf16));
  const kernels::WeightView view{encoding, chunk.stored.data(), nullptr, chunk.weights / cols,
                                 cols};
  begin %= chunk.weights;
  const kernels::Range cut{begin, std::min(chunk.weights, begin + 1 + count)};
  const Buffer expected(all.begin() + static_cast<long>(2 * cut.begin),
                        all.begin() + static_cast<long>(2 * cut.end));
  static const auto every = tables();
  const auto first_products = products(*every[0], view), first_sums = row_sums(*every[0], view);
  for (const kernels::Kernels* k : every) {
    K3_CHECK(unpacked(*k, view, cut) == expected);
    K3_CHECK(std::ranges::equal(products(*k, view), first_products, same_bits));
    K3_CHECK(std::ranges::equal(row_sums(*k, view), first_sums, same_bits));
  }
}

void read(const Chunk& chunk, Input& input) {
  const size_t shape = input.word(), begin = input.word(), count = input.byte();
  if (!weights::is_sound(chunk.codec, chunk.stored, chunk.weights)) return;
  Buffer all(2 * chunk.weights);
  weights::unpack_weights(chunk.codec, chunk.stored, all);
  read_sound(chunk, all, shape, begin, count);
}

/// Buffer that nobody packed.
void read_any(Input& input, Codec codec) {
  const size_t count = 1 + input.word() % 4096;
  Input shape = input;
  read({codec, input.rest(), count}, shape);
}

/// What `pack` writes, with some bytes changed behind its back.
void read_packed(Input& input) {
  const size_t patches = input.byte() % 4;
  std::vector<std::pair<size_t, std::byte>> changes;
  for (size_t i = 0; i < patches; ++i) {
    const size_t at = input.word();
    changes.emplace_back(at, static_cast<std::byte>(input.byte()));
  }
  Input shape = input;
  Buffer words = input.rest();
  words.resize(words.size() / 2 * 2);
  if (words.empty()) return;
  Buffer stored(words.size());
  const weights::Packed packed = weights::pack_weights(words, stored);
  if (packed.codec == Codec::kRaw) return;
  K3_CHECK(packed.bytes < words.size());
  stored.resize(packed.bytes);
  stored.shrink_to_fit();
  Chunk chunk{packed.codec, std::move(stored), words.size() / 2};
  K3_CHECK(weights::is_sound(chunk.codec, chunk.stored, chunk.weights));
  Buffer back(words.size());
  weights::unpack_weights(chunk.codec, chunk.stored, back);
  K3_CHECK(back == words);
  for (const auto& [at, change] : changes) chunk.stored[at % packed.bytes] ^= change;
  read(chunk, shape);
}

}  // namespace

void chunk(std::string_view bytes) {
  Input input(bytes);
  const size_t kind = input.byte() % 3;
  if (kind == 0) {
    read_packed(input);
  } else {
    read_any(input, kind == 1 ? Codec::kPacked3 : Codec::kPacked4);
  }
}

}  // namespace k3::fuzz
