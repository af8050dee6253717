#include "support/test_data.h"

#include <cstdlib>
#include <string>
#include <system_error>

namespace k3::test {

std::filesystem::path data_dir() {
  return K3_TEST_DATA;
}
std::filesystem::path shared_dir() {
  return K3_SHARED_DIR;
}

TempDir::TempDir() {
  std::string pattern = (std::filesystem::temp_directory_path() / "k3-test-XXXXXX").string();
  if (::mkdtemp(pattern.data()) == nullptr) throw std::system_error(errno, std::generic_category());
  path_ = pattern;
}

TempDir::~TempDir() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

}  // namespace k3::test
