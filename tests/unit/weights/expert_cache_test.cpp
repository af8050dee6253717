#include "weights/expert_cache.h"

#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "io/arena.h"
#include "trunk_model.h"
#include "weights/trunk_file.h"

namespace k3::weights {
namespace {

/// A packed checkpoint whose experts are asked for through a cache of a chosen number of slots.
class ExpertCacheTest : public testing::Test {
 protected:
  ExpertCacheTest() {
    test::make_checkpoint(dir.path());
    model = std::make_unique<test::TrunkModel>(dir.path());
    model->pack(dir.path() / "trunk.k3");
    file.emplace(TrunkFile::open(dir.path() / "trunk.k3"));
    for (const ShardRecord& shard : file->shards()) {
      const auto path = dir.path() / file->name(shard);
      ids.push_back(files.add(path));
      std::ifstream in(path, std::ios::binary);
      shards.emplace_back(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
    }
  }

  void open(size_t slots) {
    const Bytes memory = ExpertCache::slot_bytes(*file) * slots;
    arena.emplace(io::Arena::padded(memory));
    io.emplace(io::make_pread_reader(16), files, io::IoThread::Options{});
    const model::Config& c = model->config;
    cache.emplace(
        *file, *io, arena->carve<std::byte>(memory.value),
        ExpertCache::Options{c.dense_layers,
                             ids,
                             {c.moe_intermediate_size, c.latent_size, c.moe_intermediate_size}});
  }

  /// Asks, takes all, and compares every part with the shard's bytes.
  void take(uint32_t layer, const std::vector<uint16_t>& experts) {
    cache->request(layer, experts);
    for (const uint16_t wanted : experts) {
      const ExpertView view = cache->next();
      ASSERT_EQ(view.expert, wanted);
      const ExpertRecord& record = file->expert(layer, wanted);
      for (size_t part = 0; part < kExpertParts; ++part) {
        EXPECT_EQ(std::memcmp(view.part[part], shards[record.shard].data() + record.offset[part],
                              file->header().expert_part_bytes[part]),
                  0)
            << "layer " << layer << ", expert " << wanted << ", part " << part;
      }
    }
  }

  test::TempDir dir;
  std::unique_ptr<test::TrunkModel> model;
  std::optional<TrunkFile> file;
  io::FileTable files;
  std::vector<io::FileId> ids;
  std::vector<std::string> shards;
  // In this order: the cache waits for its reads, then the I/O thread ends, then the memory goes.
  std::optional<io::Arena> arena;
  std::optional<io::IoThread> io;
  std::optional<ExpertCache> cache;
};

TEST_F(ExpertCacheTest, GivesTheBytesOfEveryExpertWithAnyNumberOfSlots) {
  for (const size_t slots : {2, 3, 5, 100}) {
    cache.reset();
    io.reset();
    open(slots);
    for (uint32_t layer = 0; layer < file->header().expert_layer_count; ++layer) {
      take(layer, {0, 1, 2, 3, 5, 7});
      take(layer, {1, 4, 6, 7});
    }
  }
}

TEST_F(ExpertCacheTest, FindsAgainWhatStillHasASlot) {
  open(4);
  take(0, {0, 1, 2});
  EXPECT_EQ(cache->stats().hits, 0u);
  take(0, {1, 2});
  EXPECT_EQ(cache->stats().hits, 2u);
  EXPECT_EQ(cache->stats().uses, 5u);
}

TEST_F(ExpertCacheTest, TheLeastRecentlyUsedGivesWay) {
  open(3);
  take(0, {0, 1, 2});
  take(0, {0});
  take(0, {3});  // in the place of 1
  take(0, {0, 2, 3});
  EXPECT_EQ(cache->stats().hits, 1u + 3u);
}

TEST_F(ExpertCacheTest, ReadsEachExpertOfARequestOnce) {
  open(8);
  cache->request(1, std::vector<uint16_t>{0, 1, 2, 3, 4, 5, 6, 7});
  for (int i = 0; i < 8; ++i) cache->next();
  EXPECT_EQ(cache->stats().hits, 0u);
  uint64_t expert = 0;
  for (const uint64_t part : file->header().expert_part_bytes) expert += part;
  EXPECT_EQ(cache->stats().read_bytes, 8 * expert);
}

TEST_F(ExpertCacheTest, MayGoWhileReadsAreInFlight) {
  open(8);
  cache->request(0, std::vector<uint16_t>{0, 1, 2, 3, 4, 5, 6, 7});
  cache.reset();
}

}  // namespace
}  // namespace k3::weights
