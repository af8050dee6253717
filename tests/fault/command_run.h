// Runs of the program on copies of tiny-k3, and what they have in common.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "base/json.h"
#include "support/faulty_run.h"
#include "support/run_k3.h"
#include "support/test_data.h"

namespace k3::test {

/// `k3 generate` of three tokens as JSON, with more arguments.
inline K3Command generate_command(const std::filesystem::path& model,
                                  std::vector<std::string> more = {}) {
  K3Command command;
  command.args = {
      "generate", model.string(), "--ids",   "84,104,101,500",           "-n", "3", "--ignore-eos",
      "--json",   "-q",           "--trunk", fault_trunk(false).string()};
  command.args.insert(command.args.end(), more.begin(), more.end());
  return command;
}

/// The receipt of a run that must have gone well; "" otherwise.
inline std::string receipt_of(const K3Result& result) {
  const Json json = Json::parse(result.out, nullptr, false);
  if (result.exit_code == 0 && json.is_object()) return json.at("receipt");
  ADD_FAILURE() << "exit " << result.exit_code << ", signal " << result.signal << ": "
                << result.err;
  return "";
}

inline const std::string& undisturbed_receipt() {
  static const std::string receipt = receipt_of(run_k3(generate_command(fault_model())));
  return receipt;
}

/// A budget of which little is left for keeping weights: a run reads most of the trunk for each
/// token.
inline const std::string& small_budget() {
  constexpr uint64_t kLeft = 2'600'000;
  static const std::string budget = [] {
    const K3Result plan =
        run_k3({.args = {"plan", fault_model().string(), "--trunk", fault_trunk(false).string(),
                         "--budget", "10G", "--disk-gbps", "1", "-c", "64", "--json"},
                .program = K3_FAULTY_BINARY});
    const Json json = parse_json(plan.out, "stdout");
    return std::to_string(json.at("least_budget_bytes").get<uint64_t>() + kLeft);
  }();
  return budget;
}

inline std::string bytes_of(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// Ended by itself with this code and one line on standard error.
inline void expect_one_line(const K3Result& result, int exit_code) {
  EXPECT_EQ(result.exit_code, exit_code) << "signal " << result.signal << ": " << result.err;
  EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
  EXPECT_TRUE(result.err.starts_with("k3: ")) << result.err;
}

/// The same by way of setpriv(1), with these options of it: another user, fewer rights.
inline K3Command with_setpriv(K3Command command, std::vector<std::string> args) {
  args.push_back(command.program.string());
  args.insert(args.end(), command.args.begin(), command.args.end());
  command.args = std::move(args);
  command.program = "/usr/bin/setpriv";
  return command;
}
inline K3Command as_nobody(K3Command command) {
  return with_setpriv(std::move(command),
                      {"--reuid", "65534", "--regid", "65534", "--clear-groups"});
}

/// A copy of tiny-k3 that a test may damage.
class ModelCopy : public testing::Test {
 protected:
  void SetUp() override { restore(); }
  void restore() {
    std::filesystem::remove_all(model_);
    std::filesystem::copy(fault_model(), model_, std::filesystem::copy_options::recursive);
  }
  TempDir dir_;
  std::filesystem::path model_ = dir_.path() / "model";
};

}  // namespace k3::test
