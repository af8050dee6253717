// A file system of a test's own, where it may mount one.
#pragma once

#include <sys/mount.h>

#include <filesystem>
#include <string>

namespace k3::test {

class Mount {
 public:
  Mount(std::filesystem::path where, const char* type, const std::string& options)
      : where_(std::move(where)) {
    std::filesystem::create_directories(where_);
    mounted_ = ::mount("k3-test", where_.c_str(), type, 0, options.c_str()) == 0;
  }
  ~Mount() {
    if (mounted_) ::umount2(where_.c_str(), MNT_DETACH);
  }
  Mount(const Mount&) = delete;
  Mount& operator=(const Mount&) = delete;
  bool mounted() const { return mounted_; }
  const std::filesystem::path& path() const { return where_; }

 private:
  std::filesystem::path where_;
  bool mounted_ = false;
};

}  // namespace k3::test
