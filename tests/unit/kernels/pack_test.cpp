#include "product_test_support.h"

namespace k3::kernels {
namespace {

std::vector<float> counting(size_t n) {
  std::vector<float> values(n);
  for (size_t i = 0; i < n; ++i) values[i] = static_cast<float>(i + 1);
  return values;
}

std::vector<size_t> pack_lengths() {
  std::vector<size_t> lengths = test_lengths();
  for (const size_t n : {160, 255, 256, 257, 383, 384, 480}) lengths.push_back(n);
  return lengths;
}

TEST(Pack, PairsAreEvenAndOddPlanesOf16PaddedWithZero) {
  for (const Kernels* kernels : all_tables()) {
    for (const size_t n : pack_lengths()) {
      std::vector<float> out(packed_pairs_length(n), 77.0F);
      kernels->pack_pairs(counting(n).data(), n, out.data());
      for (size_t i = 0; i < out.size(); ++i) {
        const size_t element = i / 32 * 32 + i % 16 * 2 + i % 32 / 16;
        const float expected = element < n ? static_cast<float>(element + 1) : 0.0F;
        ASSERT_TRUE(same(out[i], expected)) << label(*kernels, "pack_pairs", n) << " at " << i;
      }
    }
  }
}

TEST(Pack, OctetsAreEightPlanesOf16PaddedWithZero) {
  for (const Kernels* kernels : all_tables()) {
    for (const size_t n : pack_lengths()) {
      std::vector<float> out(packed_octets_length(n), 77.0F);
      kernels->pack_octets(counting(n).data(), n, out.data());
      for (size_t i = 0; i < out.size(); ++i) {
        const size_t element = i / 128 * 128 + i % 16 * 8 + i % 128 / 16;
        const float expected = element < n ? static_cast<float>(element + 1) : 0.0F;
        ASSERT_TRUE(same(out[i], expected)) << label(*kernels, "pack_octets", n) << " at " << i;
      }
    }
  }
}

TEST(Pack, EveryInstructionSetGivesTheBitsOfScalarAndStaysInsideTheArrays) {
  for (const Kernels* kernels : vector_tables()) {
    for (const size_t n : pack_lengths()) {
      const std::vector<float> values = Values(static_cast<uint32_t>(n)).adversarial(n);
      for (const Side side : {Side::kEnd, Side::kBegin}) {
        const GuardedFloats x(values, side);
        for (const bool octets : {false, true}) {
          const size_t length = octets ? packed_octets_length(n) : packed_pairs_length(n);
          std::vector<float> expected(length);
          GuardedFloats out(length, side);
          (octets ? scalar_table().pack_octets : scalar_table().pack_pairs)(x.data(), n,
                                                                            expected.data());
          (octets ? kernels->pack_octets : kernels->pack_pairs)(x.data(), n, out.data());
          expect_same(out, expected, label(*kernels, "pack", n));
        }
      }
    }
  }
}

TEST(Widen, EveryBf16HasTheBitsOfTheUpperHalfOfItsFloat) {
  std::vector<uint16_t> halves(65536);
  std::vector<float> expected(65536);
  for (uint32_t i = 0; i < 65536; ++i) {
    halves[i] = static_cast<uint16_t>(i);
    expected[i] = std::bit_cast<float>(i << 16);
  }
  for (const Kernels* kernels : all_tables()) {
    std::vector<float> out(65536);
    kernels->widen_bf16(bytes_of(halves).data(), 65536, out.data());
    expect_same(out, expected, label(*kernels, "widen_bf16", 65536));
  }
}

TEST(Widen, EveryLengthStaysInsideTheArrays) {
  for (const Kernels* kernels : all_tables()) {
    for (const size_t n : test_lengths()) {
      for (const Side side : {Side::kEnd, Side::kBegin}) {
        const std::vector<float> values = Values(1).adversarial(n);
        const GuardedBytes bf16(bf16_bytes(values), side);
        GuardedFloats out(n, side);
        kernels->widen_bf16(bf16.data(), n, out.data());
        for (size_t i = 0; i < n; ++i) {
          const uint32_t bits = std::bit_cast<uint32_t>(values[i]) & 0xFFFF0000U;
          ASSERT_TRUE(same(out.data()[i], std::bit_cast<float>(bits)));
        }
      }
    }
  }
}

}  // namespace
}  // namespace k3::kernels
