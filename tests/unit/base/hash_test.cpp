#include "base/hash.h"

#include <gtest/gtest.h>

#include <string_view>
#include <vector>

namespace k3 {
namespace {

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

std::string sha256(std::string_view text) {
  Sha256 hash;
  hash.update(bytes_of(text));
  return hash.hex_digest();
}

TEST(Sha256, GivesThePublishedDigests) {
  EXPECT_EQ(sha256(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(sha256("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

TEST(Sha256, DoesNotDependOnHowTheBytesAreCut) {
  Sha256 hash;
  hash.update(bytes_of("a"));
  hash.update({});
  hash.update(bytes_of("bc"));
  EXPECT_EQ(hash.hex_digest(), sha256("abc"));
}

TEST(Checksum, IsXxh3WithSeedZero) {
  EXPECT_EQ(checksum({}), 0x2D06800538D394C2u);  // the published value of the empty input
}

TEST(Checksum, DoesNotDependOnHowTheBytesAreCut) {
  std::vector<std::byte> data(100'000);
  for (size_t i = 0; i < data.size(); ++i) data[i] = static_cast<std::byte>(i * 7 + i / 251);
  const std::span<const std::byte> all(data);
  for (const size_t cut : {size_t{0}, size_t{1}, size_t{255}, size_t{4096}, size_t{99'999}}) {
    Checksum incremental;
    incremental.update(all.first(cut));
    incremental.update(all.subspan(cut));
    EXPECT_EQ(incremental.digest(), checksum(all)) << cut;
  }
}

TEST(Checksum, SeesEveryBitThatChanges) {
  std::vector<std::byte> data(513);
  const uint64_t before = checksum(data);
  for (size_t bit = 0; bit < data.size() * 8; ++bit) {
    const std::byte flip = static_cast<std::byte>(1 << bit % 8);
    data[bit / 8] ^= flip;
    EXPECT_NE(checksum(data), before) << bit;
    data[bit / 8] ^= flip;
  }
}

}  // namespace
}  // namespace k3
