#include "weights/index_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <istream>
#include <span>
#include <streambuf>
#include <vector>

#include "base/json.h"
#include "io/direct_file.h"

namespace k3::weights {
namespace {

constexpr size_t kNameMax = 255;  // bytes of a file's name in Linux

using Visit = std::function<void(const std::string&, const std::string&)>;

bool is_plain_name(const std::string& name) {
  return !name.empty() && name.size() <= kNameMax && name != "." && name != ".." &&
         name.find('/') == name.npos && name.find('\0') == name.npos;
}

/// Takes the events of the JSON; everything but weight_map is passed over.
class IndexHandler {
 public:
  explicit IndexHandler(const Visit& visit) : visit_(visit) {}

  bool null() { return other("null"); }
  bool boolean(bool) { return other("a boolean"); }
  bool number_integer(int64_t) { return other("a number"); }
  bool number_unsigned(uint64_t) { return other("a number"); }
  bool number_float(double, const std::string&) { return other("a number"); }
  bool binary(Json::binary_t&) { return other("binary data"); }

  bool string(std::string& value) {
    if (!in_map_) return other("text");
    if (!is_plain_name(value)) {
      return fail(
          fmt::format("tensor {} is placed in \"{:.255}\", expected the name of a file beside "
                      "the index",
                      key_, value));
    }
    visit_(key_, value);
    return true;
  }
  bool key(std::string& name) {
    key_.swap(name);
    map_follows_ = depth_ == 1 && key_ == "weight_map";
    return true;
  }
  bool start_object(size_t) {
    if (map_follows_) {
      if (map_seen_) return fail("weight_map appears twice");
      map_seen_ = in_map_ = true;
      map_follows_ = false;
    } else if (!other("an object")) {
      return false;
    }
    ++depth_;
    return true;
  }
  bool end_object() {
    --depth_;
    in_map_ = false;
    return true;
  }
  bool start_array(size_t) {
    if (!other("a list")) return false;
    ++depth_;
    return true;
  }
  bool end_array() {
    --depth_;
    return true;
  }
  bool parse_error(size_t position, const std::string&, const Json::exception&) {
    return fail(fmt::format("not JSON from byte {} on; download it again", position));
  }

  bool map_seen() const { return map_seen_; }
  const std::string& reason() const { return reason_; }

 private:
  bool fail(std::string reason) {
    reason_ = std::move(reason);
    return false;
  }
  /// A value that is not the name of a shard.
  bool other(std::string_view found) {
    if (in_map_) {
      return fail(fmt::format("tensor {} has {}, expected the name of a shard", key_, found));
    }
    if (map_follows_) return fail(fmt::format("weight_map is {}, expected an object", found));
    return true;
  }

  const Visit& visit_;
  std::string key_;
  std::string reason_;
  size_t depth_ = 0;
  bool map_follows_ = false;  // the last key was weight_map at the top level
  bool map_seen_ = false;
  bool in_map_ = false;
};

/// The bytes of a file as a stream. One of the standard library would hide what the drive said.
class FileBytes : public std::streambuf {
 public:
  explicit FileBytes(const std::filesystem::path& path)
      : path_(path), file_(io::DirectFile::open_buffered(path)), buffer_(kBufferBytes) {}

 private:
  static constexpr size_t kBufferBytes = 64 << 10;

  int_type underflow() override {
    const auto bytes = std::span(buffer_).first(std::min(buffer_.size(), file_.size() - at_));
    if (bytes.empty()) return traits_type::eof();
    io::read_exactly(file_.fd(), at_, std::as_writable_bytes(bytes), path_, "names of tensors");
    at_ += bytes.size();
    setg(bytes.data(), bytes.data(), bytes.data() + bytes.size());
    return traits_type::to_int_type(bytes.front());
  }

  const std::filesystem::path& path_;
  io::DirectFile file_;
  std::vector<char> buffer_;
  uint64_t at_ = 0;
};

}  // namespace

void read_index_file(const std::filesystem::path& path, const Visit& visit) {
  const auto refuse = [&](std::string_view problem) -> Error {
    return Error(ErrorKind::kCheckpoint, fmt::format("{}: {}", path.string(), problem));
  };
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) {
    throw refuse(error ? error.message() : "not a regular file");
  }
  FileBytes bytes(path);
  std::istream file(&bytes);
  IndexHandler handler(visit);
  if (!Json::sax_parse(file, &handler)) throw refuse(handler.reason());
  if (!handler.map_seen()) throw refuse("weight_map is missing");
}

}  // namespace k3::weights
