#include "weights/trunk_source.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <optional>

#include "k3/error.h"

namespace k3::weights {
namespace {

/// The first byte at or after `offset` that is data, or `end` if there is none before it. File
/// systems without holes call everything data.
uint64_t next_data(int fd, uint64_t offset, uint64_t end) {
  const off_t found = ::lseek(fd, static_cast<off_t>(offset), SEEK_DATA);
  if (found >= 0) return std::min(end, static_cast<uint64_t>(found));
  return errno == ENXIO ? end : offset;
}

uint64_t next_hole(int fd, uint64_t offset, uint64_t end) {
  const off_t found = ::lseek(fd, static_cast<off_t>(offset), SEEK_HOLE);
  return found < 0 ? end : std::min(end, static_cast<uint64_t>(found));
}

/// The exponent bits of a bf16 or fp32 number; all set means infinity or NaN.
template <typename Word>
constexpr Word kExponent = sizeof(Word) == 2 ? Word{0x7f80} : static_cast<Word>(0x7f800000u);

template <typename Word>
Word load(const std::byte* from) {
  Word word;
  std::memcpy(&word, from, sizeof(word));
  return word;
}

/// Index of the first element that is not finite.
template <typename Word>
std::optional<uint64_t> find_not_finite(std::span<const std::byte> bytes) {
  constexpr size_t kBlock = 4096 / sizeof(Word);
  const size_t count = bytes.size() / sizeof(Word);
  for (size_t begin = 0; begin < count; begin += kBlock) {
    const size_t end = std::min(count, begin + kBlock);
    // Without a branch inside, so that the compiler makes it a vector loop.
    Word bad = 0;
    for (size_t i = begin; i < end; ++i) {
      const Word word = load<Word>(bytes.data() + i * sizeof(Word));
      bad = static_cast<Word>(bad | ((word & kExponent<Word>) == kExponent<Word> ? 1 : 0));
    }
    if (bad == 0) continue;
    for (size_t i = begin; i < end; ++i) {
      const Word word = load<Word>(bytes.data() + i * sizeof(Word));
      if ((word & kExponent<Word>) == kExponent<Word>) return i;
    }
  }
  return std::nullopt;
}

std::string describe_not_finite(std::span<const std::byte> bytes, DType dtype, uint64_t element) {
  const uint32_t bits = dtype == DType::kBf16
                            ? static_cast<uint32_t>(load<uint16_t>(bytes.data() + element * 2))
                                  << 16
                            : load<uint32_t>(bytes.data() + element * 4);
  const bool infinite = (bits & 0x007fffffu) == 0;
  return fmt::format("{} (bits 0x{:08x} as fp32)", infinite ? "an infinity" : "not a number", bits);
}

}  // namespace

bool read_keeping_holes(const io::DirectFile& file, const std::filesystem::path& path,
                        uint64_t offset, std::span<std::byte> out, std::string_view what) {
  const uint64_t end = offset + out.size();
  uint64_t at = next_data(file.fd(), offset, end);
  const bool any_data = at < end;
  std::memset(out.data(), 0, at - offset);
  while (at < end) {
    const uint64_t hole = next_hole(file.fd(), at, end);
    // All of it is asked for at once: the kernel's own read-ahead keeps two small reads in flight.
    ::posix_fadvise(file.fd(), static_cast<off_t>(at), static_cast<off_t>(hole - at),
                    POSIX_FADV_WILLNEED);
    io::read_exactly(file.fd(), at, out.subspan(at - offset, hole - at), path, what);
    ::posix_fadvise(file.fd(), static_cast<off_t>(at), static_cast<off_t>(hole - at),
                    POSIX_FADV_DONTNEED);
    at = next_data(file.fd(), hole, end);
    std::memset(out.data() + (hole - offset), 0, at - hole);
  }
  return any_data;
}

uint64_t data_bytes(const io::DirectFile& file, uint64_t offset, uint64_t bytes) {
  const uint64_t end = offset + bytes;
  uint64_t sum = 0;
  for (uint64_t at = next_data(file.fd(), offset, end); at < end;) {
    const uint64_t hole = next_hole(file.fd(), at, end);
    sum += io::block_ceil(hole) - io::block_floor(at);
    at = next_data(file.fd(), hole, end);
  }
  return sum;
}

std::vector<RowRun> row_runs(const RowPattern& pattern, uint64_t row, uint64_t count) {
  std::vector<RowRun> runs;
  while (count > 0) {
    const uint64_t within = row % pattern.take;
    const uint64_t length = std::min(count, pattern.take - within);
    runs.push_back({row, row / pattern.take * pattern.period + pattern.begin + within, length});
    row += length;
    count -= length;
  }
  return runs;
}

bool TrunkSource::read_chunk(std::span<const SegmentRecord> segments, std::span<std::byte> out) {
  bool any_data = false;
  uint64_t at = 0;
  for (const SegmentRecord& segment : segments) {
    std::memset(out.data() + at, 0, segment.offset - at);
    at = segment.offset;
    const uint64_t bytes_per_row = row_bytes(segment.tensor);
    const TensorLocation& location = index_.tensor(segment.tensor);
    for (const RowRun& run :
         row_runs(tensors_[segment.tensor].pattern, segment.row_begin, segment.row_count)) {
      const auto piece = out.subspan(at, run.count * bytes_per_row);
      any_data |= read(location.shard, location.offset + run.source_row * bytes_per_row, piece,
                       tensors_[segment.tensor].name);
      at += piece.size();
    }
  }
  return any_data;
}

bool TrunkSource::read(uint32_t number, uint64_t offset, std::span<std::byte> out,
                       std::string_view what) {
  return read_keeping_holes(shard(number), shard_path(number), offset, out, what);
}

void TrunkSource::check_finite(std::span<const SegmentRecord> segments,
                               std::span<const std::byte> chunk) const {
  for (const SegmentRecord& segment : segments) {
    const TrunkTensor& tensor = tensors_[segment.tensor];
    const TensorLocation& location = index_.tensor(segment.tensor);
    const auto rows = chunk.subspan(segment.offset, segment.row_count * row_bytes(segment.tensor));
    const auto bad = location.dtype == DType::kBf16 ? find_not_finite<uint16_t>(rows)
                                                    : find_not_finite<uint32_t>(rows);
    if (!bad) continue;
    const uint64_t row = segment.row_begin + *bad / tensor.cols;
    throw Error(ErrorKind::kCheckpoint,
                fmt::format("{}: tensor {}, row {}, column {} is {}; every weight of a checkpoint "
                            "is finite: download this shard again",
                            shard_path(location.shard).string(), tensor.name,
                            row_runs(tensor.pattern, row, 1).front().source_row, *bad % tensor.cols,
                            describe_not_finite(rows, location.dtype, *bad)));
  }
}

const io::DirectFile& TrunkSource::shard(uint32_t number) {
  if (open_shard_ != number) {
    open_ = io::DirectFile::open_buffered(shard_path(number));
    open_shard_ = number;
    ::posix_fadvise(open_.fd(), 0, 0, POSIX_FADV_SEQUENTIAL);
  }
  return open_;
}

std::filesystem::path TrunkSource::shard_path(uint32_t number) const {
  return directory_ / index_.shards()[number].name;
}

uint64_t TrunkSource::row_bytes(uint32_t tensor) const {
  return tensors_[tensor].cols * dtype_bytes(index_.tensor(tensor).dtype);
}

}  // namespace k3::weights
