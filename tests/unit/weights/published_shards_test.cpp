#include "weights/published_shards.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <set>
#include <sstream>
#include <string>

#include "support/test_data.h"

namespace k3::weights {
namespace {

TEST(PublishedShards, AreThoseOfTheManifestOfTheRelease) {
  const auto path = test::shared_dir() / "spec" / "shard_manifest.tsv";
  std::ifstream file(path);
  if (!file) GTEST_SKIP() << path << " is not there";
  size_t count = 0;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("#")) continue;
    std::istringstream fields(line);
    std::string name, sha256;
    uint64_t bytes = 0, data_start = 0, tensors = 0;
    ASSERT_TRUE(fields >> name >> bytes >> data_start >> tensors >> sha256) << line;
    ASSERT_LT(count, published_shards().size());
    const PublishedFile& published = published_shards()[count++];
    EXPECT_EQ(published.name, name);
    EXPECT_EQ(published.bytes, bytes) << name;
    EXPECT_EQ(published.sha256, sha256) << name;
  }
  EXPECT_EQ(count, published_shards().size());
}

/// What holds without the manifest: no line was lost or written twice.
TEST(PublishedShards, AreNumberedWithoutAGapAndNoTwoHaveOneHash) {
  std::set<std::string_view> hashes;
  size_t number = 0;
  for (const PublishedFile& file : published_shards()) {
    char name[64];
    std::snprintf(name, sizeof(name), "model-%05zu-of-000096.safetensors", ++number);
    EXPECT_EQ(file.name, name);
    EXPECT_EQ(file.sha256.size(), 64u);
    EXPECT_EQ(file.sha256.find_first_not_of("0123456789abcdef"), std::string_view::npos);
    EXPECT_TRUE(hashes.insert(file.sha256).second) << file.name;
  }
  EXPECT_EQ(number, 96u);
}

}  // namespace
}  // namespace k3::weights
