// What the float64 references say of the test models (tests/data/goldens/README.md).
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

namespace k3::test {

struct GoldenCase {
  std::string model;  // folder under tests/data
  std::string name;
  std::optional<std::string> text;  // encodes to `ids` with special tokens recognised
  std::vector<uint32_t> ids;        // the prompt
  std::vector<uint32_t> greedy;     // what follows, not stopping at terminal ids
  std::string greedy_text;          // the same as text, where the model has a tokenizer
  std::vector<double> margin;       // largest minus second largest logit at each of those steps
  std::map<size_t, std::vector<float>> rows;  // step -> logits; step 0 follows the prompt
  double bound;  // how far a right float32 engine may be off in any logit of this model
};

/// For test output: model and case.
std::ostream& operator<<(std::ostream& out, const GoldenCase& golden);

/// tiny-k3, random-a, random-b, random-c, oracle.
const std::vector<std::string>& golden_models();

/// Every case of one model.
std::vector<GoldenCase> golden_cases(const std::string& model);

}  // namespace k3::test
