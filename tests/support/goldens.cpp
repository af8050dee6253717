#include "support/goldens.h"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "support/test_data.h"

namespace k3::test {
namespace {

// The project's promise for every model, and how it is tightened where the noise of a float32 run
// of the reference was measured: another order of the same operations is off by as much again,
// with room for the worst of a vocabulary.
constexpr double kBoundMax = 1e-4;
constexpr double kBoundOfNoise = 4;

std::string read_file(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) throw std::runtime_error("cannot open " + path.string());
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

nlohmann::json read_golden_json(const std::string& model) {
  return nlohmann::json::parse(read_file(data_dir() / "goldens" / (model + ".json")));
}

std::vector<float> floats_of(const std::string& bytes) {
  std::vector<float> out(bytes.size() / sizeof(float));
  std::copy_n(bytes.data(), out.size() * sizeof(float), reinterpret_cast<char*>(out.data()));
  return out;
}

std::vector<GoldenCase> numpy_cases(const std::string& model) {
  const nlohmann::json doc = read_golden_json(model);
  const std::vector<float> logits =
      floats_of(read_file(data_dir() / "goldens" / doc.at("logits_file").get<std::string>()));
  const size_t vocab_size = doc.at("vocab_size");
  double noise = 0;
  for (const auto& c : doc.at("cases")) {
    noise = std::max(noise, c.at("float32_max_abs_diff").get<double>());
  }
  std::vector<GoldenCase> out;
  for (const auto& c : doc.at("cases")) {
    const auto row = logits.begin() + c.at("row").get<ptrdiff_t>() * ptrdiff_t(vocab_size);
    GoldenCase& golden = out.emplace_back();
    golden.model = model;
    golden.name = c.at("name");
    if (c.contains("text")) golden.text = c.at("text").get<std::string>();
    c.at("ids").get_to(golden.ids);
    c.at("greedy").get_to(golden.greedy);
    golden.greedy_text = c.value("greedy_text", "");
    c.at("greedy_margin").get_to(golden.margin);
    golden.rows[0] = {row, row + ptrdiff_t(vocab_size)};
    golden.bound = std::min(kBoundMax, kBoundOfNoise * noise);
  }
  return out;
}

/// A prompt that ends at each position whose logits are recorded. The last one recorded has no
/// prompt of its own: it follows from decoding.
std::vector<GoldenCase> oracle_cases(const std::string& model) {
  const nlohmann::json doc = read_golden_json(model);
  const std::vector<uint32_t> ids = doc.at("ids");
  const std::vector<uint32_t> argmax = doc.at("argmax");
  const std::vector<double> margin = doc.at("top1_margin");
  const size_t prompt_size = doc.at("prompt").size();
  std::vector<GoldenCase> out;
  for (const auto& item : doc.at("logits").items()) {
    const size_t position = std::stoul(item.key());
    if (position >= prompt_size) continue;
    const bool whole = position + 1 == prompt_size;
    const auto begin = ptrdiff_t(position);
    const auto end = whole ? ptrdiff_t(argmax.size()) : begin + 1;
    GoldenCase& golden = out.emplace_back();
    golden.model = model;
    golden.name = "first-" + std::to_string(position + 1);
    golden.ids.assign(ids.begin(), ids.begin() + begin + 1);
    golden.greedy.assign(argmax.begin() + begin, argmax.begin() + end);
    golden.margin.assign(margin.begin() + begin, margin.begin() + end);
    item.value().get_to(golden.rows[0]);
    const auto last = std::to_string(argmax.size() - 1);
    if (whole) doc.at("logits").at(last).get_to(golden.rows[argmax.size() - 1 - position]);
    golden.bound = kBoundMax;
  }
  return out;
}

}  // namespace

std::ostream& operator<<(std::ostream& out, const GoldenCase& golden) {
  return out << golden.model << " " << golden.name;
}

const std::vector<std::string>& golden_models() {
  static const std::vector<std::string> models = {"tiny-k3", "random-a", "random-b", "random-c",
                                                  "oracle"};
  return models;
}

std::vector<GoldenCase> golden_cases(const std::string& model) {
  return model == "oracle" ? oracle_cases(model) : numpy_cases(model);
}

}  // namespace k3::test
