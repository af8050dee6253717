// The program against the float64 references: every prompt of tests/data/goldens, as ids and as
// text, through pack and generate. Logits after the prompt, greedy ids, and what the receipt says.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <span>
#include <sstream>
#include <string>
#include <vector>

#include "base/hash.h"
#include "support/goldens.h"
#include "support/run_k3.h"
#include "support/test_data.h"

namespace k3::test {
namespace {

struct Generated {
  nlohmann::json json;
  std::vector<float> logits;  // rows, one a generated token
};

std::string joined(const std::vector<uint32_t>& ids) {
  std::ostringstream out;
  for (size_t i = 0; i < ids.size(); ++i) out << (i == 0 ? "" : ",") << ids[i];
  return out.str();
}

std::vector<float> read_floats(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  std::vector<float> out(bytes.size() / sizeof(float));
  std::copy_n(bytes.data(), out.size() * sizeof(float), reinterpret_cast<char*>(out.data()));
  return out;
}

class Golden : public testing::TestWithParam<GoldenCase> {
 protected:
  /// The trunk file of the case's model, packed once for all of its cases.
  static std::string trunk(const std::string& model) {
    static const TempDir dir;
    static std::map<std::string, std::string> packed;
    std::string& path = packed[model];
    if (path.empty()) {
      path = (dir.path() / (model + ".k3")).string();
      const auto run = run_k3({.args = {"pack", (data_dir() / model).string(), "-o", path}});
      EXPECT_EQ(run.exit_code, 0) << run.err;
    }
    return path;
  }

  static Generated generate(const GoldenCase& golden, const std::vector<std::string>& prompt) {
    const TempDir dir;
    const std::string dump = (dir.path() / "logits.f32").string();
    K3Command command{.args = {"generate", (data_dir() / golden.model).string(), "--trunk",
                               trunk(golden.model), "--ignore-eos", "-n",
                               std::to_string(golden.greedy.size()), "--json", "--dump-logits",
                               dump}};
    command.args.insert(command.args.end(), prompt.begin(), prompt.end());
    const K3Result run = run_k3(command);
    EXPECT_EQ(run.exit_code, 0) << run.err;
    Generated out{nlohmann::json::parse(run.out, nullptr, false), read_floats(dump)};
    EXPECT_TRUE(out.json.is_object()) << run.out;
    return out;
  }
};

/// The largest difference of a row of logits from the reference's, and where it is.
void expect_near(const std::vector<float>& expected, std::span<const float> row, double bound,
                 size_t step) {
  ASSERT_EQ(row.size(), expected.size());
  double worst = -1;
  size_t where = 0;
  for (size_t i = 0; i < row.size(); ++i) {
    const double difference = std::abs(double(row[i]) - double(expected[i]));
    if (difference <= worst) continue;  // a NaN is never skipped
    worst = difference;
    where = i;
    if (std::isnan(difference)) break;
  }
  EXPECT_TRUE(worst <= bound) << "step " << step << ": id " << where << " is off by " << worst
                              << ", allowed " << bound;
}

TEST_P(Golden, LogitsAndGreedyIdsAreThoseOfTheReference) {
  const GoldenCase& golden = GetParam();
  const Generated run = generate(golden, {"--ids", joined(golden.ids)});
  ASSERT_FALSE(HasFailure());
  const std::vector<uint32_t> ids = run.json.at("ids");
  ASSERT_EQ(ids.size(), golden.greedy.size());
  const size_t vocab_size = golden.rows.at(0).size();
  ASSERT_EQ(run.logits.size(), ids.size() * vocab_size);
  for (size_t step = 0; step < ids.size(); ++step) {
    const std::span row = std::span(run.logits).subspan(step * vocab_size, vocab_size);
    EXPECT_EQ(ids[step], size_t(std::max_element(row.begin(), row.end()) - row.begin()));
    if (golden.rows.contains(step)) expect_near(golden.rows.at(step), row, golden.bound, step);
    // Where the margin is as small as rounding, another choice is no mistake, and what follows it
    // cannot be compared.
    if (ids[step] != golden.greedy[step] && golden.margin[step] <= 2 * golden.bound) break;
    ASSERT_EQ(ids[step], golden.greedy[step]) << "step " << step;
  }
}

TEST_P(Golden, TheReportSaysWhatWasAskedAndDone) {
  const GoldenCase& golden = GetParam();
  const Generated run = generate(golden, {"--ids", joined(golden.ids)});
  ASSERT_FALSE(HasFailure());
  EXPECT_EQ(run.json.at("prompt_ids"), golden.ids);
  EXPECT_EQ(run.json.at("finish_reason"), "length");
  EXPECT_EQ(run.json.at("stats").at("prompt_tokens"), golden.ids.size());
  EXPECT_EQ(run.json.at("stats").at("generated_tokens"), golden.greedy.size());
  EXPECT_EQ(run.json.at("text").is_null(), !golden.text.has_value());
  const std::vector<uint32_t> ids = run.json.at("ids");
  Sha256 digest;
  digest.update(std::as_bytes(std::span(golden.ids)));
  digest.update(std::as_bytes(std::span(ids)));
  digest.update(std::as_bytes(std::span(run.logits)));
  EXPECT_EQ(run.json.at("receipt"), digest.hex_digest());
}

class GoldenText : public Golden {};

TEST_P(GoldenText, TextAndItsIdsAreTheSamePrompt) {
  const GoldenCase& golden = GetParam();
  const Generated by_text = generate(golden, {"--special", "-p", *golden.text});
  const Generated by_ids = generate(golden, {"--ids", joined(golden.ids)});
  ASSERT_FALSE(HasFailure());
  EXPECT_EQ(by_text.json.at("prompt_ids"), golden.ids);
  EXPECT_EQ(by_text.json.at("receipt"), by_ids.json.at("receipt"));
  EXPECT_EQ(by_text.json.at("text"), by_ids.json.at("text"));
  EXPECT_EQ(by_text.json.at("text"), golden.greedy_text);
}

std::vector<GoldenCase> cases(bool only_with_text) {
  std::vector<GoldenCase> out;
  for (const std::string& model : golden_models()) {
    for (GoldenCase& golden : golden_cases(model)) {
      if (golden.text || !only_with_text) out.push_back(std::move(golden));
    }
  }
  return out;
}

std::string case_name(const testing::TestParamInfo<GoldenCase>& info) {
  std::string name = info.param.model + "_" + info.param.name;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(Models, Golden, testing::ValuesIn(cases(false)), case_name);
INSTANTIATE_TEST_SUITE_P(Models, GoldenText, testing::ValuesIn(cases(true)), case_name);

}  // namespace
}  // namespace k3::test
