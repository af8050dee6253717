#include "weights/safetensors.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>
#include <string>
#include <vector>

#include "base/hash.h"
#include "support/checkpoint_maker.h"
#include "support/messages.h"
#include "support/test_data.h"

namespace k3::weights {
namespace {

namespace fs = std::filesystem;
using test::mentions;

struct Seen {
  std::string name;
  DType dtype;
  std::vector<uint64_t> shape;
  uint64_t offset;
  uint64_t bytes;
};

class Safetensors : public ::testing::Test {
 protected:
  fs::path path() const { return dir_.path() / "model.safetensors"; }

  void write(const std::string& header, size_t data_bytes) const {
    test::write_safetensors(path(), header, std::string(data_bytes, 'd'));
  }

  SafetensorsHeader read() {
    seen_.clear();
    return read_safetensors(path(), [this](const TensorEntry& e) {
      seen_.push_back(
          {std::string(e.name), e.dtype, {e.shape.begin(), e.shape.end()}, e.offset, e.bytes});
    });
  }

  /// The message of the refusal, which must name the file.
  std::string refusal() {
    const std::string message = test::error_of(ErrorKind::kCheckpoint, [&] { read(); });
    EXPECT_TRUE(mentions(message, path().string()));
    return message;
  }
  std::string refusal(const std::string& header, size_t data_bytes) {
    write(header, data_bytes);
    return refusal();
  }

  test::TempDir dir_;
  std::vector<Seen> seen_;
};

TEST_F(Safetensors, GivesEveryTensorWithItsPlaceInTheFile) {
  const std::string header = R"({"a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},)"
                             R"("b":{"data_offsets":[24,28],"dtype":"BF16","shape":[2,1]}}  )";
  write(header, 28);
  const SafetensorsHeader read_header = read();
  EXPECT_EQ(read_header.file_bytes, 8 + header.size() + 28);
  EXPECT_EQ(read_header.data_start, 8 + header.size());
  EXPECT_EQ(read_header.tensor_count, 2u);
  ASSERT_EQ(seen_.size(), 2u);
  EXPECT_EQ(seen_[0].name, "a");
  EXPECT_EQ(seen_[0].dtype, DType::kF32);
  EXPECT_EQ(seen_[0].shape, (std::vector<uint64_t>{2, 3}));
  EXPECT_EQ(seen_[0].offset, 8 + header.size());
  EXPECT_EQ(seen_[0].bytes, 24u);
  EXPECT_EQ(seen_[1].name, "b");
  EXPECT_EQ(seen_[1].dtype, DType::kBf16);
  EXPECT_EQ(seen_[1].offset, 8 + header.size() + 24);
}

TEST_F(Safetensors, HashesLengthAndHeader) {
  const std::string header = "{}      ";
  write(header, 0);
  const std::string bytes = std::string("\x08\0\0\0\0\0\0\0", 8) + header;
  EXPECT_EQ(read().header_hash, checksum(std::as_bytes(std::span(bytes))));
}

TEST_F(Safetensors, AcceptsWhatTheFormatAllows) {
  const std::vector<std::pair<std::string, size_t>> files = {
      {"{}", 0},
      {"{}   ", 0},
      {R"({"__metadata__":{}})", 0},
      {R"({"__metadata__":{"format":"pt","x":""},"a":{"dtype":"U8","shape":[],"data_offsets":[0,1]}})",
       1},
      // Zero-size tensors, also between others and at the end.
      {R"({"a":{"dtype":"F32","shape":[0,5],"data_offsets":[0,0]}})", 0},
      {R"({"z":{"dtype":"F32","shape":[0],"data_offsets":[4,4]},"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"b":{"dtype":"U8","shape":[3],"data_offsets":[4,7]}})",
       7},
      // Tensors in another order than their data.
      {R"({"b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]},"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})",
       3},
      // Dtypes that the model never needs.
      {R"({"b":{"dtype":"F8_E8M0","shape":[2],"data_offsets":[0,2]},"c":{"dtype":"I64","shape":[1],"data_offsets":[2,10]}})",
       10},
      {R"({"r":{"dtype":"U8","shape":[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1],"data_offsets":[0,1]}})", 1},
  };
  for (const auto& [header, data] : files) {
    write(header, data);
    EXPECT_NO_THROW(read()) << header;
  }
}

TEST_F(Safetensors, DecodesNamesBeforeComparing) {
  write(R"({"\u0041\"\\":{"dtype":"U8","shape":[],"data_offsets":[0,1]}})", 1);
  read();
  EXPECT_EQ(seen_.at(0).name, "A\"\\");
  EXPECT_TRUE(mentions(refusal(R"({"A":{"dtype":"U8","shape":[],"data_offsets":[0,1]},)"
                               R"("\u0041":{"dtype":"U8","shape":[],"data_offsets":[1,2]}})",
                               2),
                       "tensor A: appears twice"));
}

/// A header whose one tensor has these fields.
std::string tensor(const std::string& fields) {
  return "{\"t\":{" + fields + "}}";
}

struct BrokenHeader {
  std::string header;
  size_t data_bytes;
  const char* reason;
};
const BrokenHeader kBrokenHeaders[] = {
    {" {}", 0, "does not begin with {"},
    {"[]", 0, "does not begin with {"},
    {"{}\n", 0, "does not end with } and spaces"},
    {"{}x", 0, "does not end with } and spaces"},
    {"{}{}", 0, "not JSON"},
    {"{} {}", 0, "not JSON"},
    {std::string("{}\0{}", 5), 0, "NUL byte"},
    {R"({"t")", 0, "does not end"},
    {R"({"t"})", 0, "not JSON"},
    {R"({"t":3})", 0, "tensor t: a number, expected an object"},
    {R"({"t":null})", 0, "tensor t: null, expected an object"},
    {R"({"t":"x"})", 0, "tensor t: text, expected an object"},
    {R"({"t":[]})", 0, "tensor t: a list, expected an object"},
    {tensor(R"("shape":[1],"data_offsets":[0,1])"), 1, "dtype is missing"},
    {tensor(R"("dtype":"U8","data_offsets":[0,1])"), 1, "shape is missing"},
    {tensor(R"("dtype":"U8","shape":[1])"), 1, "data_offsets is missing"},
    {tensor(""), 1, "dtype is missing"},
    {tensor(R"("dtype":3,"shape":[1],"data_offsets":[0,1])"), 1, "dtype is a number"},
    {tensor(R"("dtype":null,"shape":[1],"data_offsets":[0,1])"), 1, "dtype is null"},
    {tensor(R"("dtype":"U8","shape":1,"data_offsets":[0,1])"), 1, "shape is a number"},
    {tensor(R"("dtype":"U8","shape":{},"data_offsets":[0,1])"), 1, "shape is an object"},
    {tensor(R"("dtype":"U8","shape":["1"],"data_offsets":[0,1])"), 1, "text in shape"},
    {tensor(R"("dtype":"U8","shape":[[1]],"data_offsets":[0,1])"), 1, "a list in shape"},
    {tensor(R"("dtype":"U8","shape":[1],"data_offsets":1)"), 1, "in data_offsets"},
    {tensor(R"("dtype":"U8","shape":[1],"data_offsets":[])"), 1, "in data_offsets"},
    {tensor(R"("dtype":"U8","shape":[1],"data_offsets":[1])"), 1, "in data_offsets"},
    {tensor(R"("dtype":"U8","shape":[1],"data_offsets":[0,1,1])"), 1, "in data_offsets"},
    {tensor(R"("dtype":"U8","shape":[1],"data_offsets":[0,"1"])"), 1, "in data_offsets"},
    {tensor(R"("dtype":"U8","shape":[1],"data_offsets":[0,true])"), 1, "in data_offsets"},
    {tensor(R"("dtype":"U8","dtype":"U8","shape":[1],"data_offsets":[0,1])"), 1, "\"dtype\""},
    {tensor(R"("dtype":"U8","shape":[1],"shape":[1],"data_offsets":[0,1])"), 1, "\"shape\""},
    {tensor(R"("dtype":"U8","shape":[1],"data_offsets":[0,1],"x":1)"), 1, "field \"x\""},
    {tensor(R"("dtype":"F7","shape":[1],"data_offsets":[0,1])"), 1, "unknown dtype \"F7\""},
    {tensor(R"("dtype":"bf16","shape":[1],"data_offsets":[0,2])"), 2, "unknown dtype"},
    {tensor(R"("dtype":"U8","shape":[-1],"data_offsets":[0,1])"), 1, "a negative number in shape"},
    {tensor(R"("dtype":"U8","shape":[1.5],"data_offsets":[0,1])"), 1, "1.5, not an integer"},
    {tensor(R"("dtype":"U8","shape":[1e0],"data_offsets":[0,1])"), 1, "1e0, not an integer"},
    {tensor(R"("dtype":"U8","shape":[18446744073709551616],"data_offsets":[0,1])"), 1,
     "not an integer of 64 bits"},
    {tensor(R"("dtype":"U8","shape":[4294967296,4294967296],"data_offsets":[0,0])"), 0,
     "overflows"},
    {tensor(R"("dtype":"F32","shape":[4611686018427387904],"data_offsets":[0,0])"), 0, "overflows"},
    {tensor(R"("dtype":"U8","shape":[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1],"data_offsets":[0,1])"), 1,
     "more than 16 dimensions"},
    {tensor(R"("dtype":"U8","shape":[1],"data_offsets":[1,0])"), 1, "begins at 1, after its end"},
    {tensor(R"("dtype":"U8","shape":[1],"data_offsets":[-1,0])"), 1, "a negative number"},
    {tensor(R"("dtype":"U8","shape":[2],"data_offsets":[0,1])"), 1, "1 bytes by data_offsets, 2"},
    {tensor(R"("dtype":"F32","shape":[1],"data_offsets":[0,1])"), 1, "1 bytes by data_offsets, 4"},
    {R"({"__metadata__":[]})", 0, "__metadata__ has a list"},
    {R"({"__metadata__":"x"})", 0, "__metadata__ has text"},
    {R"({"__metadata__":{"a":1}})", 0, "__metadata__ has a number"},
    {R"({"__metadata__":{"a":{}}})", 0, "__metadata__ has an object"},
    {R"({"__metadata__":{"a":["x"]}})", 0, "__metadata__ has a list"},
    {R"({"__metadata__":{},"__metadata__":{}})", 0, "__metadata__ appears twice"},
    {R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})",
     2, "tensor a: appears twice"},
    {R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}})",
     3, "overlap at byte 2"},
    {R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})",
     2, "overlap at byte 2"},
    {R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[2],"data_offsets":[3,5]}})",
     5, "a gap at byte 2"},
    {R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}})", 3, "a gap at byte 0"},
};

TEST_F(Safetensors, RefusesEveryBrokenHeader) {
  for (const BrokenHeader& c : kBrokenHeaders) {
    EXPECT_TRUE(mentions(refusal(c.header, c.data_bytes), c.reason)) << c.header;
  }
}

TEST_F(Safetensors, TellsSizesFoundAndExpectedOfACutOrGrownFile) {
  const std::string header = R"({"a":{"dtype":"U8","shape":[9],"data_offsets":[0,9]}})";
  const uint64_t start = 8 + header.size();
  for (size_t data : {8u, 10u, 0u}) {
    const std::string message = refusal(header, data);
    EXPECT_TRUE(
        mentions(message, fmt::format("{} bytes found, {} expected", start + data, start + 9)));
    EXPECT_TRUE(mentions(message, "download this shard again"));
  }
}

TEST_F(Safetensors, RefusesAFileWithoutRoomForItsHeader) {
  for (size_t size = 0; size < 8; ++size) {
    std::ofstream(path(), std::ios::binary) << std::string(size, '\1');
    EXPECT_TRUE(mentions(refusal(), fmt::format("{} bytes, too short", size)));
  }
  test::write_safetensors(path(), 3, "{}", "");
  EXPECT_TRUE(mentions(refusal(), "10 bytes found, but its header alone is 11"));
}

TEST_F(Safetensors, RefusesHeaderLengthsOutOfRangeBeforeAllocating) {
  for (uint64_t length : {uint64_t{0}, kHeaderBytesMax + 1, uint64_t{1} << 60, UINT64_MAX}) {
    test::write_safetensors(path(), length, "{}", "");
    EXPECT_TRUE(mentions(refusal(), fmt::format("header length {}, expected 1 to", length)));
  }
}

TEST_F(Safetensors, ReadsHeadersThatEndAroundABlock) {
  for (size_t blocks : {1u, 2u, 3u}) {
    for (int around : {-1, 0, 1}) {
      const size_t length = 4096 * blocks - 8 + static_cast<size_t>(around);
      std::string header = R"({"a":{"dtype":"U8","shape":[3],"data_offsets":[0,3]}})";
      header.resize(length, ' ');
      write(header, 3);
      EXPECT_EQ(read().data_start, 8 + length);
      EXPECT_EQ(seen_.at(0).offset, 8 + length);
    }
  }
}

TEST_F(Safetensors, SaysWhatAForeignFileIs) {
  const std::vector<std::pair<std::string, const char*>> files = {
      {"version https://git-lfs.github.com/spec/v1\noid sha256:00\n", "a Git LFS pointer"},
      {std::string("GGUF\3\0\0\0", 8) + std::string(100, 'x'), "a GGUF file"},
      {"<!DOCTYPE html><html>not found</html>", "an HTML page"},
  };
  for (const auto& [bytes, meaning] : files) {
    std::ofstream(path(), std::ios::binary) << bytes;
    EXPECT_TRUE(mentions(refusal(), meaning));
  }
}

TEST_F(Safetensors, RefusesWhatIsNoFile) {
  EXPECT_TRUE(mentions(refusal(), "No such file")) << "absent";
  fs::create_directory(path());
  EXPECT_TRUE(mentions(refusal(), "not a regular file"));
  fs::remove(path());
  ASSERT_EQ(::mkfifo(path().c_str(), 0600), 0);
  EXPECT_TRUE(mentions(refusal(), "not a regular file")) << "a pipe must not hang";
}

TEST_F(Safetensors, FollowsSymlinks) {
  const fs::path blob = dir_.path() / "blob";
  test::write_safetensors(blob, "{}", "");
  fs::create_symlink(blob, path());
  EXPECT_EQ(read().file_bytes, 10u);
}

TEST_F(Safetensors, PassesOnWhatTheVisitorThrows) {
  write(R"({"a":{"dtype":"U8","shape":[],"data_offsets":[0,1]}})", 1);
  EXPECT_THROW(read_safetensors(path(), [](const TensorEntry&) { throw std::logic_error("stop"); }),
               std::logic_error);
}

TEST(DTypes, HaveTheNamesAndSizesOfTheFormat) {
  const std::vector<std::tuple<DType, std::string, uint64_t>> all = {
      {DType::kBf16, "BF16", 2},     {DType::kF32, "F32", 4},        {DType::kU8, "U8", 1},
      {DType::kBool, "BOOL", 1},     {DType::kI8, "I8", 1},          {DType::kI16, "I16", 2},
      {DType::kI32, "I32", 4},       {DType::kI64, "I64", 8},        {DType::kU16, "U16", 2},
      {DType::kU32, "U32", 4},       {DType::kU64, "U64", 8},        {DType::kF16, "F16", 2},
      {DType::kF64, "F64", 8},       {DType::kF8E4M3, "F8_E4M3", 1}, {DType::kF8E5M2, "F8_E5M2", 1},
      {DType::kF8E8M0, "F8_E8M0", 1}};
  for (const auto& [dtype, name, bytes] : all) {
    EXPECT_EQ(dtype_name(dtype), name);
    EXPECT_EQ(dtype_bytes(dtype), bytes);
    EXPECT_EQ(dtype_from_name(name), dtype);
  }
  EXPECT_FALSE(dtype_from_name("bf16"));
  EXPECT_FALSE(dtype_from_name(""));
}

}  // namespace
}  // namespace k3::weights
