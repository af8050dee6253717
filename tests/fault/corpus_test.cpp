// The corpus that fuzzing has kept: every input ends as it should, without libFuzzer.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "support/test_data.h"
#include "tools/fuzz/targets.h"

namespace k3::test {
namespace {

TEST(Corpus, EveryInputOfEveryTargetIsTakenOrRefusedWithAnError) {
  for (const fuzz::Target& target : fuzz::targets()) {
    size_t inputs = 0;
    for (const auto& file :
         std::filesystem::directory_iterator(data_dir() / "corpus" / target.name)) {
      SCOPED_TRACE(file.path().string());
      std::ifstream in(file.path(), std::ios::binary);
      const std::string bytes{std::istreambuf_iterator<char>(in), {}};
      EXPECT_NO_THROW(target.run(bytes));
      EXPECT_NO_THROW(target.run(bytes.substr(0, bytes.size() / 2)));
      ++inputs;
    }
    EXPECT_GT(inputs, 0u) << target.name;
  }
}

}  // namespace
}  // namespace k3::test
