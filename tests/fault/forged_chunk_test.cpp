// Packed chunks with senseless bytes under checksums that fit: as a broken packer or somebody's
// intent would leave them.
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <functional>
#include <iterator>
#include <random>
#include <span>
#include <sstream>

#include "base/hash.h"
#include "fault/command_run.h"
#include "kernels/packed.h"
#include "support/messages.h"
#include "weights/trunk_manifest.h"

namespace k3::test {
namespace {

namespace fs = std::filesystem;
using weights::ChunkRecord;
using weights::Codec;

/// The trunk file of tiny-k3 in memory.
class Forgery {
 public:
  Forgery() {
    std::ifstream in(fault_trunk(false), std::ios::binary);
    const std::string text{std::istreambuf_iterator<char>(in), {}};
    bytes_.resize(text.size());
    std::memcpy(bytes_.data(), text.data(), text.size());
    header_ = at<weights::FileHeader>(0);
    manifest_ = at<weights::ManifestHeader>(header_.manifest_offset);
  }

  /// The numbers of the packed chunks.
  std::vector<uint64_t> packed() const {
    std::vector<uint64_t> numbers;
    for (uint64_t c = 0; c < manifest_.chunk_count; ++c) {
      if (static_cast<Codec>(chunk(c).codec) == Codec::kPacked3) numbers.push_back(c);
    }
    return numbers;
  }

  /// Changes the stored bytes of a chunk, and all checksums so that they fit.
  void forge(
      uint64_t number,
      const std::function<void(const kernels::PackedLayout&, std::span<std::byte>)>& change) {
    ChunkRecord record = chunk(number);
    const auto stored = std::span(bytes_).subspan(record.offset, record.stored_bytes);
    change(kernels::packed_layout(record.raw_bytes / 2), stored);
    record.checksum = checksum(stored);
    put(record_offset(number), record);
    header_.manifest_checksum = checksum(std::span(bytes_).subspan(header_.manifest_offset));
    header_.header_checksum = weights::file_header_checksum(header_);
    put(0, header_);
  }

  K3Result run(const fs::path& path) const {
    std::ofstream out(path, std::ios::binary);
    out.write(reinterpret_cast<const char*>(bytes_.data()),
              static_cast<std::streamsize>(bytes_.size()));
    out.close();
    K3Command command = generate_command(fault_model());
    command.args.back() = path.string();
    return run_k3(command);
  }

 private:
  template <class T>
  T at(uint64_t offset) const {
    T value;
    std::memcpy(&value, bytes_.data() + offset, sizeof value);
    return value;
  }
  template <class T>
  void put(uint64_t offset, const T& value) {
    std::memcpy(bytes_.data() + offset, &value, sizeof value);
  }
  uint64_t record_offset(uint64_t number) const {
    return header_.manifest_offset + weights::manifest_offsets(manifest_).chunks +
           number * sizeof(ChunkRecord);
  }
  ChunkRecord chunk(uint64_t number) const { return at<ChunkRecord>(record_offset(number)); }

  std::vector<std::byte> bytes_;
  weights::FileHeader header_;
  weights::ManifestHeader manifest_;
};

TEST(ForgedChunk, ThatContradictsItselfEndsTheRunWithExitFourNamingFileAndTensor) {
  const TempDir dir;
  const std::vector<uint64_t> packed = Forgery().packed();
  ASSERT_GT(packed.size(), 10u);
  for (const uint64_t number : {packed[0], packed[packed.size() / 2], packed.back()}) {
    for (const bool counts : {true, false}) {
      Forgery forgery;
      forgery.forge(number, [&](const kernels::PackedLayout& at, std::span<std::byte> stored) {
        stored[counts ? at.counts : at.bases - 4] ^= std::byte{1};
      });
      const K3Result result = forgery.run(dir.path() / "forged.k3");
      expect_one_line(result, 4);
      EXPECT_TRUE(mentions(result.err, "forged.k3") && mentions(result.err, "contradict"))
          << result.err;
    }
  }
}

TEST(ForgedChunk, WithSenselessCodesGivesWrongWordsOrAnErrorAndNoCrash) {
  const TempDir dir;
  std::mt19937 engine(1);
  for (const bool all_escapes : {true, false}) {
    Forgery forgery;
    for (const uint64_t number : forgery.packed()) {
      forgery.forge(number, [&](const kernels::PackedLayout& at, std::span<std::byte> stored) {
        const size_t body = at.body(kernels::escape_count(stored.data(), at));
        for (std::byte& byte : stored.subspan(body)) {
          byte = all_escapes ? std::byte{0} : static_cast<std::byte>(engine());
        }
      });
    }
    const K3Result result = forgery.run(dir.path() / "forged.k3");
    EXPECT_EQ(result.signal, 0) << result.err;
    EXPECT_FALSE(result.timed_out);
    if (result.exit_code != 0) expect_one_line(result, 1);  // a product that is not finite
  }
}

}  // namespace
}  // namespace k3::test
