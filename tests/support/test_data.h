// Where tests find their data, and scratch directories that vanish.
#pragma once

#include <filesystem>

namespace k3::test {

/// tests/data of the source tree.
std::filesystem::path data_dir();
/// The shared folder beside the project; third-party data is read from there and may be absent.
std::filesystem::path shared_dir();

/// A fresh directory, removed with everything in it at the end of its scope.
class TempDir {
 public:
  TempDir();
  ~TempDir();
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace k3::test
