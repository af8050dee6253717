#include "weights/trunk_codec.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <random>
#include <vector>

#include "kernels/packed.h"

namespace k3::weights {
namespace {

using Words = std::vector<uint16_t>;

std::span<const std::byte> bytes_of(const Words& words) {
  return std::as_bytes(std::span(words));
}

uint16_t bf16(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return static_cast<uint16_t>(bits >> 16);
}

Words words(size_t count, const std::function<uint16_t(size_t)>& word) {
  Words all(count);
  for (size_t i = 0; i < count; ++i) all[i] = word(i);
  return all;
}

/// Normal weights whose rows have scales of their own.
Words normal_rows(size_t rows, size_t cols) {
  std::mt19937 engine(1);
  std::normal_distribution<float> normal;
  Words all;
  for (size_t r = 0; r < rows; ++r) {
    const float scale = 0.02F * std::exp(0.5F * normal(engine));
    for (size_t c = 0; c < cols; ++c) all.push_back(bf16(scale * normal(engine)));
  }
  return all;
}

struct Result {
  Packed packed;
  std::vector<std::byte> stored;
};

Result pack(const Words& weights) {
  Result result{{}, std::vector<std::byte>(weights.size() * 2, std::byte{0x5a})};
  result.packed = pack_weights(bytes_of(weights), result.stored);
  result.stored.resize(result.packed.bytes);
  return result;
}

void expect_exact(const Words& weights, const char* what) {
  const Result result = pack(weights);
  ASSERT_LE(result.packed.bytes, weights.size() * 2) << what;
  if (result.packed.codec == Codec::kRaw) return;
  ASSERT_TRUE(is_sound(result.packed.codec, result.stored, weights.size())) << what;
  Words back(weights.size());
  unpack_weights(result.packed.codec, result.stored, std::as_writable_bytes(std::span(back)));
  ASSERT_EQ(back, weights) << what;
}

TEST(TrunkCodec, AllWeightsComeBackExactlyAndNoneTakeMoreThanRaw) {
  std::mt19937 engine(2);
  for (const size_t count : {1, 31, 32, 54, 255, 256, 257, 7168, 16384, 16385, 90 * 1037}) {
    const auto any = [&](size_t) { return static_cast<uint16_t>(engine()); };
    const auto one_of = [](uint16_t word) { return [word](size_t) { return word; }; };
    expect_exact(words(count, any), "any bits");
    expect_exact(words(count, one_of(0)), "zeros");
    expect_exact(words(count, one_of(0x3f80)), "a single value");
    expect_exact(words(count, one_of(0xffff)), "a NaN");
    expect_exact(words(count, [](size_t i) { return static_cast<uint16_t>(i % 128); }),
                 "subnormals");
    expect_exact(words(count, [](size_t i) { return static_cast<uint16_t>(0x7f80 + i % 128); }),
                 "infinities and payloads of NaNs");
    expect_exact(words(count, [](size_t i) { return static_cast<uint16_t>(i * 37 << 7); }),
                 "all exponents as often");
    expect_exact(words(count, [](size_t i) { return static_cast<uint16_t>(i % 16 << 7 | i % 7); }),
                 "sixteen exponents");
    expect_exact(words(count, [](size_t i) { return i % 256 == 7 ? 0x8000 : 0x4000; }),
                 "one escape a block");
  }
  expect_exact(normal_rows(30, 1000), "normal weights");
}

TEST(TrunkCodec, NormalWeightsOfVaryingScaleTakeAtMost71Percent) {
  for (const auto& [rows, cols] : {std::pair<size_t, size_t>{96, 7168}, {512, 512}, {512, 128}}) {
    const Words weights = normal_rows(rows, cols);
    const Result result = pack(weights);
    EXPECT_EQ(result.packed.codec, Codec::kPacked3);
    EXPECT_LE(static_cast<double>(result.packed.bytes),
              0.71 * static_cast<double>(weights.size() * 2));
  }
}

TEST(TrunkCodec, WeightsOfSixteenExponentsTakeTheLongerCode) {
  const Result result = pack(
      words(4096, [](size_t i) { return static_cast<uint16_t>((100 + i % 16) << 7 | i % 7); }));
  EXPECT_EQ(result.packed.codec, Codec::kPacked4);
}

TEST(TrunkCodec, ZerosAndNoiseStayRaw) {
  EXPECT_EQ(pack(Words(5000)).packed.codec, Codec::kRaw);
  std::mt19937 engine(3);
  EXPECT_EQ(pack(words(5000, [&](size_t) { return static_cast<uint16_t>(engine()); })).packed.codec,
            Codec::kRaw);
}

TEST(TrunkCodec, ChunksThatContradictThemselvesAreNotSound) {
  const Words weights = normal_rows(40, 512);
  Result result = pack(weights);
  const auto sound = [&] { return is_sound(result.packed.codec, result.stored, weights.size()); };
  ASSERT_TRUE(sound());
  EXPECT_FALSE(is_sound(result.packed.codec, result.stored, weights.size() + 256));
  EXPECT_FALSE(is_sound(result.packed.codec, std::span(result.stored).first(100), weights.size()));
  const auto at = kernels::packed_layout(weights.size());
  for (const size_t place : {size_t{0}, at.bases - 4, at.counts, at.escapes - 1}) {
    result.stored[place] ^= std::byte{1};
    EXPECT_FALSE(sound()) << place;
    result.stored[place] ^= std::byte{1};
  }
  result.stored.pop_back();
  EXPECT_FALSE(sound());
}

}  // namespace
}  // namespace k3::weights
