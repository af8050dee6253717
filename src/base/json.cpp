#include "base/json.h"

#include <fmt/format.h>

#include <vector>

namespace k3 {
namespace {

constexpr size_t kDepthMax = 64;
constexpr size_t kReasonMax = 200;  // the library quotes the token that it stopped at, however long

// Builds the tree itself because the library's own parser lets a later duplicate key win silently.
class TreeBuilder {
 public:
  explicit TreeBuilder(Json& root) : root_(root) {}

  bool null() { return add(nullptr); }
  bool boolean(bool value) { return add(value); }
  bool number_integer(int64_t value) { return add(value); }
  bool number_unsigned(uint64_t value) { return add(value); }
  bool number_float(double value, const std::string&) { return add(value); }
  bool string(std::string& value) { return add(std::move(value)); }
  bool binary(Json::binary_t&) { return fail("binary values are not JSON"); }
  bool start_object(size_t) { return open(Json::object()); }
  bool end_object() { return close(); }
  bool start_array(size_t) { return open(Json::array()); }
  bool end_array() { return close(); }

  bool key(std::string& name) {
    auto [place, inserted] = open_.back()->emplace(name, nullptr);
    if (!inserted) return fail(fmt::format("key \"{}\" appears twice in one object", name));
    value_ = &*place;
    return true;
  }

  bool parse_error(size_t, const std::string&, const Json::exception& error) {
    const std::string_view message = error.what();  // "[json.exception.NAME.ID] text"
    const size_t prefix_end = message.find("] ");
    return fail(std::string(prefix_end == message.npos ? message : message.substr(prefix_end + 2)));
  }

  const std::string& reason() const { return reason_; }

 private:
  bool fail(std::string reason) {
    reason_ = std::move(reason);
    if (reason_.size() > kReasonMax) reason_.replace(kReasonMax, reason_.npos, "...");
    return false;
  }

  Json& place(Json value) {
    if (open_.empty()) return root_ = std::move(value);
    if (!open_.back()->is_array()) return *value_ = std::move(value);
    return open_.back()->emplace_back(std::move(value));
  }

  bool add(Json value) {
    place(std::move(value));
    return true;
  }

  bool open(Json container) {
    if (open_.size() == kDepthMax) {
      return fail(fmt::format("nested deeper than {} levels", kDepthMax));
    }
    open_.push_back(&place(std::move(container)));
    return true;
  }

  bool close() {
    open_.pop_back();
    return true;
  }

  Json& root_;
  std::vector<Json*> open_;  // containers begun and not ended, outermost first
  Json* value_ = nullptr;    // where the value of the last key goes
  std::string reason_;
};

}  // namespace

Json parse_json(std::string_view text, const std::string& what) {
  const auto refuse = [&](const std::string& reason) {
    throw Error(ErrorKind::kCheckpoint, fmt::format("{}: not usable JSON: {}", what, reason));
  };
  // The library takes a NUL for the end of the input and would not look at what follows.
  if (text.find('\0') != text.npos) refuse("it holds a NUL byte");
  Json root;
  TreeBuilder builder(root);
  if (!Json::sax_parse(text, &builder)) refuse(builder.reason());
  return root;
}

std::string dump_json(const OrderedJson& value) {
  return value.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
}

}  // namespace k3
