#include "commands/output_place.h"

#include <fmt/format.h>

#include <algorithm>

#include "k3/error.h"

namespace k3::commands {
namespace {

namespace fs = std::filesystem;

bool lies_in(const fs::path& place, const fs::path& directory) {
  std::error_code error;
  const fs::path inner = fs::weakly_canonical(fs::absolute(place, error), error);
  const fs::path outer = fs::weakly_canonical(fs::absolute(directory, error), error);
  return std::mismatch(outer.begin(), outer.end(), inner.begin(), inner.end()).first == outer.end();
}

bool same_file(const fs::path& a, const fs::path& b) {
  std::error_code error;
  return fs::equivalent(a, b, error) && !error;
}

/// As they will be: neither need be there yet.
bool same_place(const fs::path& a, const fs::path& b) {
  std::error_code error;
  return same_file(a, b) || fs::weakly_canonical(fs::absolute(a, error), error) ==
                                fs::weakly_canonical(fs::absolute(b, error), error);
}

bool linked_from(const fs::path& directory, const fs::path& place) {
  std::error_code error;
  const fs::directory_iterator entries(directory, error);
  return std::any_of(begin(entries), end(entries),
                     [&](const fs::directory_entry& entry) { return same_file(entry, place); });
}

}  // namespace

void refuse_place_of_model(const fs::path& place, const char* option, const fs::path& model,
                           const fs::path& trunk) {
  if (!lies_in(place, model) && !same_file(place, trunk) && !linked_from(model, place)) return;
  std::error_code absent;
  const char* const what =
      fs::exists(place, absent) ? "exists and belongs to the model" : "is in the model directory";
  throw Error(ErrorKind::kUsage,
              fmt::format("{} {}, where nothing but a trunk file is ever written; name another "
                          "place with {}",
                          place.string(), what, option));
}

void refuse_shared_place(const fs::path& place, const char* option, const fs::path& other,
                         const char* other_option) {
  if (!same_place(place, other)) return;
  throw Error(ErrorKind::kUsage,
              fmt::format("{} is the file of {}, which {} would overwrite; name another place with "
                          "{}",
                          place.string(), other_option, option, option));
}

}  // namespace k3::commands
