#include "weights/safetensors.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <unordered_set>

#include "base/hash.h"
#include "base/json.h"
#include "base/unique_fd.h"
#include "io/direct_file.h"
#include "weights/model_directory.h"

namespace k3::weights {
namespace {

constexpr uint64_t kPrefixBytes = 8;
constexpr size_t kRankMax = 16;
constexpr std::string_view kMetadataKey = "__metadata__";

using Visit = std::function<void(const TensorEntry&)>;

/// Takes the events of the header's JSON. Nothing of it is kept but a hash of each name and the
/// byte range of each tensor.
class HeaderHandler {
 public:
  HeaderHandler(uint64_t data_start, const Visit& visit) : data_start_(data_start), visit_(visit) {}

  // Events of the parser; false ends it, reason() says why.
  bool null() { return fail_type("null"); }
  bool boolean(bool) { return fail_type("a boolean"); }
  bool number_integer(int64_t) { return fail_type("a negative number"); }
  bool number_float(double, const std::string& text) {
    return fail_type(fmt::format("{}, not an integer of 64 bits,", text));
  }
  bool binary(Json::binary_t&) { return fail_type("binary data"); }
  bool number_unsigned(uint64_t value);
  bool string(std::string& value);
  bool start_object(size_t);
  bool key(std::string& name);
  bool end_object();
  bool start_array(size_t);
  bool end_array();
  bool parse_error(size_t position, const std::string&, const Json::exception&) {
    return fail(fmt::format("its header is not JSON from byte {} on", position));
  }

  /// Checks across the tensors: they cover the data from its start without overlap or gap.
  bool check_coverage();

  const std::string& reason() const { return reason_; }
  uint64_t tensor_count() const { return ranges_.size(); }
  /// Where the last tensor ends, relative to the data.
  uint64_t data_end() const { return data_end_; }

 private:
  /// What the parser is inside of, or, for k...Value, what must come next.
  enum class Place {
    kOutside,
    kHeader,
    kTensorValue,
    kTensor,
    kDtypeValue,
    kShapeValue,
    kShape,
    kOffsetsValue,
    kOffsets,
    kMetadataValue,
    kMetadata,
    kMetadataText,
  };
  struct Range {
    uint64_t begin;
    uint64_t end;
    auto operator<=>(const Range&) const = default;
  };

  bool fail(std::string reason) {
    reason_ = std::move(reason);
    return false;
  }
  bool fail_tensor(std::string_view problem) {
    return fail(fmt::format("tensor {}: {}", name_, problem));
  }
  bool fail_type(std::string_view found);
  bool go(Place place) {
    place_ = place;
    return true;
  }
  bool header_key(const std::string& name);
  bool tensor_key(const std::string& field);
  bool finish_tensor();
  std::optional<uint64_t> bytes_of_shape() const;

  const uint64_t data_start_;
  const Visit& visit_;
  Place place_ = Place::kOutside;
  std::string reason_;
  std::unordered_set<uint64_t> names_;  // hashes
  std::vector<Range> ranges_;
  uint64_t data_end_ = 0;
  bool metadata_seen_ = false;
  // The tensor that is being read.
  std::string name_;
  std::optional<DType> dtype_;
  std::vector<uint64_t> shape_;
  std::vector<uint64_t> offsets_;
  bool shape_seen_ = false;
  bool offsets_seen_ = false;
};

bool HeaderHandler::fail_type(std::string_view found) {
  switch (place_) {
    case Place::kOutside:
      return fail(fmt::format("its header is {}, expected an object", found));
    case Place::kTensorValue:
      return fail_tensor(fmt::format("{}, expected an object", found));
    case Place::kDtypeValue:
      return fail_tensor(fmt::format("dtype is {}, expected text", found));
    case Place::kShapeValue:
      return fail_tensor(fmt::format("shape is {}, expected a list", found));
    case Place::kShape:
      return fail_tensor(fmt::format("{} in shape, expected a size", found));
    case Place::kOffsetsValue:
    case Place::kOffsets:
      return fail_tensor(fmt::format("{} in data_offsets, expected [begin, end]", found));
    default:
      return fail(fmt::format("__metadata__ has {}, expected text", found));
  }
}

bool HeaderHandler::number_unsigned(uint64_t value) {
  if (place_ == Place::kShape) {
    if (shape_.size() == kRankMax) {
      return fail_tensor(fmt::format("more than {} dimensions", kRankMax));
    }
    shape_.push_back(value);
    return true;
  }
  if (place_ == Place::kOffsets && offsets_.size() < 2) {
    offsets_.push_back(value);
    return true;
  }
  return fail_type("a number");
}

bool HeaderHandler::string(std::string& value) {
  if (place_ == Place::kMetadataText) return go(Place::kMetadata);
  if (place_ != Place::kDtypeValue) return fail_type("text");
  dtype_ = dtype_from_name(value);
  if (!dtype_) return fail_tensor(fmt::format("unknown dtype \"{}\"", value));
  return go(Place::kTensor);
}

bool HeaderHandler::start_object(size_t) {
  switch (place_) {
    case Place::kOutside:
      return go(Place::kHeader);
    case Place::kMetadataValue:
      return go(Place::kMetadata);
    case Place::kTensorValue:
      return go(Place::kTensor);
    default:
      return fail_type("an object");
  }
}

bool HeaderHandler::key(std::string& name) {
  switch (place_) {
    case Place::kHeader:
      return header_key(name);
    case Place::kTensor:
      return tensor_key(name);
    default:
      return go(Place::kMetadataText);
  }
}

bool HeaderHandler::header_key(const std::string& name) {
  if (name == kMetadataKey) {
    if (metadata_seen_) return fail("__metadata__ appears twice");
    metadata_seen_ = true;
    return go(Place::kMetadataValue);
  }
  name_ = name;
  if (!names_.insert(checksum(std::as_bytes(std::span(name)))).second) {
    return fail_tensor("appears twice");
  }
  dtype_.reset();
  shape_.clear();
  offsets_.clear();
  shape_seen_ = offsets_seen_ = false;
  return go(Place::kTensorValue);
}

bool HeaderHandler::tensor_key(const std::string& field) {
  if (field == "dtype" && !dtype_) return go(Place::kDtypeValue);
  if (field == "shape" && !shape_seen_) {
    shape_seen_ = true;
    return go(Place::kShapeValue);
  }
  if (field == "data_offsets" && !offsets_seen_) {
    offsets_seen_ = true;
    return go(Place::kOffsetsValue);
  }
  return fail_tensor(fmt::format("unexpected field \"{}\"", field));
}

bool HeaderHandler::start_array(size_t) {
  if (place_ == Place::kShapeValue) return go(Place::kShape);
  if (place_ == Place::kOffsetsValue) return go(Place::kOffsets);
  return fail_type("a list");
}

bool HeaderHandler::end_array() {
  if (place_ == Place::kOffsets && offsets_.size() != 2) return fail_type("one number or none");
  return go(Place::kTensor);
}

bool HeaderHandler::end_object() {
  if (place_ == Place::kHeader) return go(Place::kOutside);
  if (place_ == Place::kMetadata) return go(Place::kHeader);
  return finish_tensor() && go(Place::kHeader);
}

/// Absent when the product leaves 64 bits.
std::optional<uint64_t> HeaderHandler::bytes_of_shape() const {
  uint64_t bytes = dtype_bytes(*dtype_);
  for (uint64_t size : shape_) {
    if (__builtin_mul_overflow(bytes, size, &bytes)) return std::nullopt;
  }
  return bytes;
}

bool HeaderHandler::finish_tensor() {
  if (!dtype_) return fail_tensor("dtype is missing");
  if (!shape_seen_) return fail_tensor("shape is missing");
  if (!offsets_seen_) return fail_tensor("data_offsets is missing");
  const uint64_t begin = offsets_[0], end = offsets_[1];
  if (begin > end) return fail_tensor(fmt::format("begins at {}, after its end {}", begin, end));
  const std::optional<uint64_t> bytes = bytes_of_shape();
  if (!bytes) return fail_tensor("its shape overflows 64 bits");
  if (*bytes != end - begin) {
    return fail_tensor(
        fmt::format("{} bytes by data_offsets, {} by dtype and shape", end - begin, *bytes));
  }
  ranges_.push_back({begin, end});
  data_end_ = std::max(data_end_, end);
  visit_({.name = name_,
          .dtype = *dtype_,
          .shape = shape_,
          .offset = data_start_ + begin,
          .bytes = *bytes});
  return true;
}

bool HeaderHandler::check_coverage() {
  std::sort(ranges_.begin(), ranges_.end());
  uint64_t covered = 0;
  for (const Range& range : ranges_) {
    if (range.begin != covered) {
      return fail(
          fmt::format("{} at byte {} of the data, where a tensor ends and the next begins "
                      "at {}",
                      range.begin < covered ? "tensors overlap" : "a gap", covered, range.begin));
    }
    covered = range.end;
  }
  return true;
}

[[noreturn]] void refuse(const std::filesystem::path& path, std::string_view problem) {
  throw Error(ErrorKind::kCheckpoint, fmt::format("{}: {}", path.string(), problem));
}

constexpr std::string_view kAgain = "; download this shard again";

/// The file and its size; only regular files are opened (a pipe would hang).
struct OpenFile {
  UniqueFd fd;
  uint64_t bytes;
};

OpenFile open_file(const std::filesystem::path& path) {
  struct stat info = {};
  if (::stat(path.c_str(), &info) != 0) {
    refuse(path, fmt::format("{}{}", std::strerror(errno), errno == ENOENT ? kAgain : ""));
  }
  if (!S_ISREG(info.st_mode)) refuse(path, "not a regular file, expected a safetensors shard");
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd.valid()) refuse(path, std::strerror(errno));
  return {std::move(fd), static_cast<uint64_t>(info.st_size)};
}

/// The length that the file gives for its header, checked before anything of that size is
/// allocated.
uint64_t header_length(const std::filesystem::path& path, const OpenFile& file) {
  if (file.bytes < kPrefixBytes) {
    refuse(path, fmt::format("{} bytes, too short for a safetensors file{}", file.bytes, kAgain));
  }
  std::string start(std::min<uint64_t>(file.bytes, 32), '\0');
  io::read_exactly(file.fd.get(), 0, std::as_writable_bytes(std::span(start)), path, "header");
  uint64_t length = 0;
  std::memcpy(&length, start.data(), kPrefixBytes);
  if (length == 0 || length > kHeaderBytesMax) {
    const bool begins_as_one = std::string_view(start).substr(kPrefixBytes).starts_with("{");
    refuse(path, fmt::format("{}header length {}, expected 1 to {}{}",
                             begins_as_one ? ""
                                           : fmt::format("not a safetensors file but {}: ",
                                                         describe_content(start)),
                             length, kHeaderBytesMax, kAgain));
  }
  if (kPrefixBytes + length > file.bytes) {
    refuse(path, fmt::format("{} bytes found, but its header alone is {}: cut short{}", file.bytes,
                             kPrefixBytes + length, kAgain));
  }
  return length;
}

/// The format allows spaces after the object and nothing else. (A NUL, never valid in JSON, would
/// end the parser's input without an error.)
void check_ends(const std::filesystem::path& path, std::string_view json) {
  if (json.front() != '{') refuse(path, "its header does not begin with {");
  const size_t last = json.find_last_not_of(' ');
  if (json[last] != '}') refuse(path, "its header does not end with } and spaces");
  if (json.find('\0') != json.npos) refuse(path, "its header has a NUL byte");
}

}  // namespace

SafetensorsHeader read_safetensors(const std::filesystem::path& path, const Visit& visit) {
  const OpenFile file = open_file(path);
  const uint64_t data_start = kPrefixBytes + header_length(path, file);
  std::vector<char> header(data_start);
  io::read_exactly(file.fd.get(), 0, std::as_writable_bytes(std::span(header)), path, "header");
  const std::string_view json = std::string_view(header.data(), data_start).substr(kPrefixBytes);
  check_ends(path, json);
  HeaderHandler handler(data_start, visit);
  if (!Json::sax_parse(json.begin(), json.end(), &handler)) refuse(path, handler.reason());
  const uint64_t data_bytes = file.bytes - data_start;
  if (handler.data_end() != data_bytes) {
    refuse(path, fmt::format("{} bytes found, {} expected by its header{}", file.bytes,
                             data_start + handler.data_end(), kAgain));
  }
  if (!handler.check_coverage()) refuse(path, handler.reason());
  return {.file_bytes = file.bytes,
          .data_start = data_start,
          .tensor_count = handler.tensor_count(),
          .header_hash = checksum(std::as_bytes(std::span(header)))};
}

}  // namespace k3::weights
