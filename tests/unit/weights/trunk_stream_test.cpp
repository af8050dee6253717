#include "weights/trunk_stream.h"

#include <gtest/gtest.h>

#include <algorithm>
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

std::vector<ChunkRecord> chunks_of(const std::vector<uint64_t>& sizes) {
  std::vector<ChunkRecord> chunks(sizes.size());
  for (size_t i = 0; i < sizes.size(); ++i) chunks[i].stored_bytes = sizes[i];
  return chunks;
}

/// Sizes between a block and 4 MiB, as odd as they come.
std::vector<ChunkRecord> uneven_chunks() {
  std::vector<uint64_t> sizes;
  for (uint64_t i = 0; i < 997; ++i) sizes.push_back(1 + i * 2'654'435'761u % (4u << 20));
  return chunks_of(sizes);
}

TEST(ChoosePinned, SpreadsPinnedBytesEvenlyOverThePass) {
  const auto chunks = uneven_chunks();
  uint64_t total = 0;
  for (const auto& chunk : chunks) total += padded_bytes(chunk);
  for (const uint64_t percent : {1, 10, 37, 50, 90, 99}) {
    const uint64_t capacity = total / 100 * percent;
    const auto pinned = choose_pinned(chunks, Bytes{capacity});
    uint64_t seen = 0, taken = 0;
    for (size_t i = 0; i < chunks.size(); ++i) {
      seen += padded_bytes(chunks[i]);
      if (pinned[i]) taken += padded_bytes(chunks[i]);
      const double due = static_cast<double>(seen) * static_cast<double>(percent) / 100;
      EXPECT_LE(static_cast<double>(taken), due + 1) << i;
      EXPECT_GE(static_cast<double>(taken), due - 2.1 * (4u << 20)) << i;  // two chunks behind
    }
    EXPECT_LE(taken, capacity);
  }
}

TEST(ChoosePinned, TakesAllWhenThereIsRoomAndNothingWhenThereIsNone) {
  const auto chunks = chunks_of({1, 4096, 4097, 100'000});
  EXPECT_EQ(choose_pinned(chunks, Bytes{4096 * (1 + 1 + 2 + 25)}),
            std::vector<bool>({true, true, true, true}));
  EXPECT_EQ(choose_pinned(chunks, Bytes{}), std::vector<bool>({false, false, false, false}));
}

/// A trunk of small chunks, and a stream over it in memory of exact size.
class TrunkStreamTest : public testing::Test {
 protected:
  TrunkStreamTest() : model(make()) {
    path = model->directory / "trunk.k3";
    model->pack(path);
    file.emplace(TrunkFile::open(path));
    bytes = read();
  }
  std::unique_ptr<test::TrunkModel> make() {
    test::make_checkpoint(dir.path(), {.config = test::three_layer_config()});
    return std::make_unique<test::TrunkModel>(dir.path());
  }
  std::string read() const {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }

  /// Takes `passes` passes; every chunk must be the file's, in order. Returns the bytes read.
  uint64_t stream(Bytes ring, Bytes pinned, int passes) {
    io::FileTable files;
    const io::FileId id = files.add(path);
    io::Arena arena(io::Arena::padded(ring) + io::Arena::padded(pinned));
    const TrunkStream::Memory memory{arena.carve<std::byte>(ring.value),
                                     arena.carve<std::byte>(pinned.value)};
    io::IoThread io(io::make_pread_reader(16), files, {});
    TrunkStream trunk(*file, id, io, memory, choose_pinned(file->chunks(), pinned),
                      TrunkStream::Check::kFirst);
    for (int pass = 0; pass < passes; ++pass) {
      trunk.begin_pass(pass + 1 < passes);
      for (const ChunkRecord& chunk : file->chunks()) {
        const ChunkView view = trunk.next();
        EXPECT_EQ(view.record, &chunk);
        EXPECT_EQ(std::memcmp(view.bytes, bytes.data() + chunk.offset, chunk.stored_bytes), 0);
      }
    }
    return trunk.stats().streamed_bytes;
  }

  uint64_t padded_total() const {
    uint64_t sum = 0;
    for (const auto& chunk : file->chunks()) sum += padded_bytes(chunk);
    return sum;
  }

  test::TempDir dir;
  std::unique_ptr<test::TrunkModel> model;
  std::filesystem::path path;
  std::optional<TrunkFile> file;
  std::string bytes;
};

TEST_F(TrunkStreamTest, HandsOutTheFileInOrderWhateverTheRing) {
  const Bytes least = TrunkStream::ring_minimum(file->chunks());
  for (const Bytes ring : {least, least + Bytes{4096}, least * 3, Bytes{2 * padded_total()}}) {
    EXPECT_EQ(stream(ring, Bytes{}, 3), 3 * file->stored_bytes().value) << ring.value;
  }
}

TEST_F(TrunkStreamTest, ReadsPinnedChunksOnce) {
  const Bytes least = TrunkStream::ring_minimum(file->chunks());
  EXPECT_EQ(stream(least, Bytes{padded_total()}, 3), file->stored_bytes().value);
  const Bytes half{padded_total() / 2 / 4096 * 4096};
  const auto pinned = choose_pinned(file->chunks(), half);
  uint64_t kept = 0;
  for (size_t i = 0; i < pinned.size(); ++i) {
    if (pinned[i]) kept += file->chunks()[i].stored_bytes;
  }
  EXPECT_GT(kept, 0u);
  EXPECT_EQ(stream(least, half, 3), 3 * file->stored_bytes().value - 2 * kept);
}

}  // namespace
}  // namespace k3::weights
