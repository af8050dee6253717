#include "weights/trunk_file.h"

#include <gtest/gtest.h>

#include <cstring>

#include "base/hash.h"
#include "trunk_model.h"
#include "weights/shard_identity.h"
#include "weights/trunk_contents.h"
#include "weights/trunk_manifest.h"

namespace {

namespace fs = std::filesystem;
using namespace k3;        // NOLINT
using namespace k3::test;  // NOLINT
using weights::FileHeader;
using weights::ManifestHeader;
using weights::TrunkFile;

/// A packed trunk whose bytes a test may change, with checksums made to fit again where asked.
class TrunkFileTest : public testing::Test {
 protected:
  TrunkFileTest() : model(made.directory()), path(dir.path() / "trunk.k3") {
    model.pack(path);
    std::memcpy(&header, read_bytes(path).data(), sizeof(header));
  }

  Error open_error() {
    return error_of([&] { TrunkFile::open(path); });
  }

  void expect_refused(const std::string& text) {
    const Error error = open_error();
    EXPECT_EQ(error.kind(), ErrorKind::kCheckpoint);
    EXPECT_TRUE(mentions(error, "trunk.k3")) << error.what();
    EXPECT_TRUE(mentions(error, text)) << error.what();
  }

  void write_header() {
    header.header_checksum = weights::file_header_checksum(header);
    write_bytes(path, 0, std::string(reinterpret_cast<const char*>(&header), sizeof(header)));
  }

  /// Changes manifest bytes and makes every checksum fit: only the checks of the records are left.
  template <typename T>
  void set_in_manifest(uint64_t offset, T value) {
    write_bytes(path, header.manifest_offset + offset,
                std::string(reinterpret_cast<const char*>(&value), sizeof(value)));
    const std::string manifest = read_bytes(path).substr(header.manifest_offset);
    header.manifest_checksum = checksum(std::as_bytes(std::span(manifest)));
    write_header();
  }

  weights::ManifestOffsets offsets() {
    return weights::manifest_offsets(TrunkFile::open(path).header());
  }

  TempDir dir;
  MadeModel made;
  TrunkModel model;
  fs::path path;
  FileHeader header{};
};

TEST_F(TrunkFileTest, SaysWhereEverythingOfTheCheckpointLies) {
  const TrunkFile trunk = TrunkFile::open(path);
  ASSERT_EQ(trunk.tensors().size(), model.tensors.size());
  for (size_t i = 0; i < model.tensors.size(); ++i) {
    EXPECT_EQ(trunk.name(trunk.tensors()[i]), model.tensors[i].name);
    EXPECT_EQ(trunk.tensors()[i].role, model.tensors[i].role);
    EXPECT_EQ(trunk.tensors()[i].layer, model.tensors[i].layer);
    EXPECT_EQ(trunk.tensors()[i].rows, model.tensors[i].rows);
    EXPECT_EQ(trunk.tensors()[i].cols, model.tensors[i].cols);
  }
  const auto& embedding = model.index.tensor(model.tensors.size());
  EXPECT_EQ(trunk.header().embedding_offset, embedding.offset);
  EXPECT_EQ(trunk.header().embedding_rows, model.config.vocab_size);
  EXPECT_EQ(trunk.header().embedding_cols, model.config.hidden_size);
  EXPECT_EQ(trunk.header().config_fingerprint, model.config.fingerprint());
  EXPECT_EQ(trunk.expert_checksum(0, 0), nullptr);
  for (const auto& chunk : trunk.chunks()) EXPECT_EQ(chunk.offset % 4096, 0u);
}

TEST_F(TrunkFileTest, HasTheChecksumOfEveryRowOfTheEmbedding) {
  for (const char* name : {"random-a", "tiny-k3"}) {
    SCOPED_TRACE(name);
    const TrunkModel other(data_dir() / name);
    other.pack(dir.path() / name);
    const TrunkFile trunk = TrunkFile::open(dir.path() / name);
    const auto& table = other.index.tensor(other.tensors.size());
    const std::string shard = read_bytes(other.directory / other.index.shards()[table.shard].name);
    const uint64_t row_bytes = table.bytes / table.shape[0];
    ASSERT_EQ(trunk.embedding_checksums().size(), table.shape[0]);
    for (uint64_t row = 0; row < table.shape[0]; ++row) {
      const std::string bytes = shard.substr(table.offset + row * row_bytes, row_bytes);
      ASSERT_EQ(trunk.embedding_checksums()[row], checksum(std::as_bytes(std::span(bytes)))) << row;
    }
  }
}

TEST_F(TrunkFileTest, MovedItIsTheSame) {
  TrunkFile first = TrunkFile::open(path);
  const TrunkFile second = std::move(first);
  EXPECT_EQ(second.name(second.tensors()[3]), model.tensors[3].name);
}

TEST_F(TrunkFileTest, AnyFlippedByteOfTheHeaderIsRefused) {
  for (const uint64_t at : {0u, 7u, 8u, 12u, 16u, 24u, 32u, 40u, 47u, 48u, 4095u}) {
    flip_byte(path, at);
    expect_refused("");
    flip_byte(path, at);
  }
  EXPECT_STREQ(open_error().what(), "nothing");
}

TEST_F(TrunkFileTest, AnyFlippedByteOfTheManifestIsRefusedByName) {
  const uint64_t step = header.manifest_bytes / 31;
  for (uint64_t at = 0; at < header.manifest_bytes; at += step) {
    flip_byte(path, header.manifest_offset + at);
    expect_refused("manifest is damaged");
    flip_byte(path, header.manifest_offset + at);
  }
}

TEST_F(TrunkFileTest, OlderAndNewerVersionsAreRefusedByNumber) {
  for (const uint32_t version : {0u, 1u, 3u, 77u}) {
    header.version = version;
    write_header();
    expect_refused("version " + std::to_string(version) + ", this program reads version 2");
  }
}

TEST_F(TrunkFileTest, FilesOfAnotherKindAreRefused) {
  write_bytes(path, 0, "GGUF");
  expect_refused("not a trunk file");
  fs::resize_file(path, 0);
  expect_refused("not a trunk file");
  fs::remove(path);
  EXPECT_EQ(open_error().kind(), ErrorKind::kCheckpoint);
}

TEST_F(TrunkFileTest, ACutOrExtendedFileIsRefusedWithBothSizes) {
  const uint64_t size = fs::file_size(path);
  fs::resize_file(path, size - 1);
  expect_refused("has " + std::to_string(size - 1) + " bytes, expected " + std::to_string(size));
  fs::resize_file(path, size + 1);
  expect_refused("has " + std::to_string(size + 1) + " bytes, expected " + std::to_string(size));
}

TEST_F(TrunkFileTest, RecordsThatReferToWhatIsNotThereAreRefused) {
  const auto at = offsets();
  const std::string good = read_bytes(path);
  auto refused = [&](uint64_t offset, auto value, const std::string& text) {
    SCOPED_TRACE(text);
    set_in_manifest(offset, value);
    expect_refused(text);
    write_bytes(path, 0, good);
  };
  refused(offsetof(ManifestHeader, chunk_count), uint32_t{0xffffffff}, "counts");
  refused(offsetof(ManifestHeader, experts_per_layer), uint32_t{0xffffffff}, "counts");
  refused(at.shards, uint32_t{0xffffff00}, "name of a shard");
  refused(at.shards + 4, uint32_t{0}, "name of a shard");
  refused(at.tensors + 4, uint8_t{2}, "type of a tensor");
  refused(at.tensors + 16, uint64_t{0}, "shape of a tensor");
  refused(at.tensors + 16, uint64_t{1000}, "rows");
  refused(at.chunks, uint64_t{4097}, "place of a chunk");
  refused(at.chunks, uint64_t{1} << 63, "size of a chunk");
  refused(at.chunks + 8, uint64_t{1} << 62, "size of a chunk");
  refused(at.chunks + 16, uint64_t{1}, "length of a chunk");
  refused(at.chunks + 32, uint32_t{1}, "segments of a chunk");
  refused(at.chunks + 36, uint32_t{0xffffffff}, "segments of a chunk");
  refused(at.chunks + 40, uint8_t{9}, "codec 9");
  refused(at.segments, uint32_t{1}, "order of the rows");
  refused(at.segments + 4, uint32_t{1}, "order of the rows");
  refused(at.segments + 8, uint32_t{0xffffffff}, "rows of a segment");
  refused(at.segments + 12, uint32_t{4}, "place of a segment");
  refused(at.experts, uint32_t{99}, "shard of an expert");
  refused(at.experts + 8, uint64_t{0} - 8, "place of an expert");
  refused(offsetof(ManifestHeader, embedding_shard), uint32_t{99}, "embedding");
  refused(offsetof(ManifestHeader, embedding_offset), uint64_t{1} << 40, "embedding");
  refused(offsetof(ManifestHeader, embedding_cols), uint64_t{1} << 29, "embedding");
  for (const uint64_t rows : {uint64_t{0}, uint64_t{1}, uint64_t{1} << 32, uint64_t{1} << 61}) {
    refused(offsetof(ManifestHeader, embedding_rows), rows, "counts");
  }
  EXPECT_STREQ(open_error().what(), "nothing");
}

TEST_F(TrunkFileTest, AShardNameCannotLeaveTheModelDirectory) {
  const auto at = offsets();
  write_bytes(path, 0, read_bytes(path));
  set_in_manifest(at.strings, '/');
  expect_refused("outside the model directory");
}

TEST_F(TrunkFileTest, ACheckpointOfTheSameShapeAndAnotherSeedIsRefused) {
  const MadeModel other(2);
  const TrunkFile trunk = TrunkFile::open(path);
  trunk.check_shards(made.directory(), true);
  const Error error = error_of([&] { trunk.check_shards(other.directory(), false); });
  EXPECT_EQ(error.kind(), ErrorKind::kCheckpoint);
  EXPECT_TRUE(mentions(error, "has other content")) << error.what();
  for (const auto& shard : trunk.shards()) {
    EXPECT_TRUE(mentions(error, std::string(trunk.name(shard)))) << error.what();
  }
}

TEST_F(TrunkFileTest, AllMissingAndAllCutShardsAreListed) {
  const TrunkFile trunk = TrunkFile::open(path);
  const std::string missing(trunk.name(trunk.shards()[1]));
  const std::string cut(trunk.name(trunk.shards()[2]));
  fs::remove(made.directory() / missing);
  fs::resize_file(made.directory() / cut, 5000);
  const Error error = error_of([&] { trunk.check_shards(made.directory(), false); });
  EXPECT_TRUE(mentions(error, missing + " missing")) << error.what();
  EXPECT_TRUE(mentions(error, cut + " has 5000 bytes, expected ")) << error.what();
}

TEST_F(TrunkFileTest, DifferencesFromACheckpointAreNamed) {
  const TrunkFile trunk = TrunkFile::open(path);
  EXPECT_EQ(trunk_difference(trunk, describe_trunk(model.input(), {}), {}), "");
  weights::PackOptions with_checksums;
  with_checksums.expert_checksums = true;
  EXPECT_EQ(trunk_difference(trunk, describe_trunk(model.input(), with_checksums), with_checksums),
            "it has no expert checksums");
  EXPECT_EQ(trunk_difference(trunk, describe_trunk(model.input(8192), {}), {}),
            "it is laid out differently");
  const MadeModel other(2);
  const TrunkModel other_model(other.directory());
  EXPECT_NE(trunk_difference(trunk, describe_trunk(other_model.input(), {}), {}), "");
}

TEST(ShardIdentity, SeesAChangeInAnyOfSixteenSpreadBlocksFirstAndLastAmongThem) {
  const TempDir dir;
  const fs::path file = dir.path() / "shard";
  const uint64_t blocks = 1000;
  const uint64_t bytes = blocks * 4096 - 1000;
  write_bytes(file, 0, "");
  std::ofstream(file, std::ios::binary) << std::string(bytes, 'a');
  const uint64_t before = weights::sample_hash(file, bytes);
  EXPECT_EQ(weights::sample_hash(file, bytes), before);
  uint32_t seen = 0;
  for (uint64_t block = 0; block < blocks; ++block) {
    const std::string old(1, 'a');
    write_bytes(file, block * 4096 + 17, "b");
    if (weights::sample_hash(file, bytes) != before) ++seen;
    write_bytes(file, block * 4096 + 17, old);
  }
  EXPECT_EQ(seen, weights::kSampleBlocks);
  for (const uint64_t at : {uint64_t{0}, bytes - 1}) {
    write_bytes(file, at, "b");
    EXPECT_NE(weights::sample_hash(file, bytes), before);
    write_bytes(file, at, "a");
  }
}

TEST(ShardIdentity, TakesAllOfASmallFile) {
  const TempDir dir;
  const fs::path file = dir.path() / "shard";
  const uint64_t bytes = 5 * 4096 + 1;
  std::ofstream(file, std::ios::binary) << std::string(bytes, 'a');
  const uint64_t before = weights::sample_hash(file, bytes);
  for (uint64_t at = 0; at < bytes; at += 4096) {
    write_bytes(file, at, "b");
    EXPECT_NE(weights::sample_hash(file, bytes), before) << at;
    write_bytes(file, at, "a");
  }
  EXPECT_EQ(weights::sample_hash(file, 0), weights::sample_hash(file, 0));
}

}  // namespace
