// The step against the model of the numeric contract written out plainly (support/plain_model):
// equal bits, so that no other order of operations, wiring of residuals or place of a norm passes.
#include "engine/step.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <sstream>

#include "kernels/dispatch.h"
#include "support/checkpoint_maker.h"
#include "support/messages.h"
#include "support/plain_model.h"
#include "support/run_k3.h"
#include "support/test_data.h"
#include "unit/weights/trunk_model.h"

namespace k3::engine {
namespace {

namespace fs = std::filesystem;
using test::Vector;

constexpr size_t kNewTokens = 4;

std::string joined(const std::vector<uint32_t>& ids) {
  std::ostringstream out;
  for (size_t i = 0; i < ids.size(); ++i) out << (i == 0 ? "" : ",") << ids[i];
  return out.str();
}

/// What the program says of a prompt: the logits before each of the kNewTokens.
Vector program_logits(const fs::path& model, const fs::path& trunk,
                      const std::vector<uint32_t>& prompt, const std::string& isa) {
  const test::TempDir dir;
  const fs::path dump = dir.path() / "logits";
  const test::K3Result run =
      test::run_k3({.args = {"generate", model.string(), "--trunk", trunk.string(), "--ignore-eos",
                             "-n", std::to_string(kNewTokens), "--dump-logits", dump.string(),
                             "--ids", joined(prompt)},
                    .env = {{"K3_ISA", isa}}});
  EXPECT_EQ(run.exit_code, 0) << run.err;
  std::ifstream in(dump, std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  Vector out(bytes.size() / sizeof(float));
  std::copy_n(bytes.data(), out.size() * sizeof(float), reinterpret_cast<char*>(out.data()));
  return out;
}

Vector plain_logits(const fs::path& directory, const std::vector<uint32_t>& prompt) {
  test::PlainModel model(directory);
  Vector row, out;
  for (uint32_t id : prompt) row = model.take(id);
  for (size_t i = 0; i < kNewTokens; ++i) {
    if (i > 0) {
      const auto best = std::max_element(row.begin(), row.end()) - row.begin();
      row = model.take(static_cast<uint32_t>(best));
    }
    out.insert(out.end(), row.begin(), row.end());
  }
  return out;
}

std::vector<std::string> instruction_sets() {
  std::vector<std::string> names;
  for (const auto isa : {kernels::Isa::kScalar, kernels::Isa::kAvx2, kernels::Isa::kAvx512}) {
    if (isa == kernels::Isa::kScalar || isa <= kernels::best_isa()) {
      names.emplace_back(kernels::isa_name(isa));
    }
  }
  return names;
}

/// Packs in chunks of so few bytes that matrices are cut, also inside the rows of a head.
void expect_same_bits(const fs::path& model, uint64_t chunk_bytes,
                      const std::vector<uint32_t>& prompt) {
  const test::TempDir dir;
  const fs::path trunk = dir.path() / "trunk.k3";
  weights::write_trunk(test::TrunkModel(model).input(chunk_bytes), trunk, {});
  const Vector expected = plain_logits(model, prompt);
  for (const std::string& isa : instruction_sets()) {
    const Vector found = program_logits(model, trunk, prompt, isa);
    ASSERT_EQ(found.size(), expected.size());
    for (size_t i = 0; i < found.size(); ++i) {
      ASSERT_EQ(std::bit_cast<uint32_t>(found[i]), std::bit_cast<uint32_t>(expected[i]))
          << isa << ": logit " << i << " is " << found[i] << ", not " << expected[i];
    }
  }
}

std::vector<uint32_t> some_ids(size_t count, uint32_t below) {
  std::vector<uint32_t> ids;
  for (size_t i = 0; i < count; ++i) ids.push_back(static_cast<uint32_t>(i * i * 7 + 3) % below);
  return ids;
}

TEST(Step, HasTheBitsOfTheContractWrittenOutPlainlyOverTwoTilesOfPositions) {
  const test::TempDir dir;
  Json config = test::tiny_config();
  config["text_config"]["routed_scaling_factor"] = 0.7;
  config["text_config"]["num_experts_per_token"] = 5;
  test::make_checkpoint(dir.path(), {.config = config});
  expect_same_bits(dir.path(), 1024, some_ids(261, 300));
}

TEST(Step, HasTheBitsOfTheContractWrittenOutPlainlyOnAllTestModels) {
  for (const char* model : {"tiny-k3", "random-a", "random-b", "random-c", "oracle"}) {
    SCOPED_TRACE(model);
    expect_same_bits(test::data_dir() / model, 4096, some_ids(9, 100));
  }
}

}  // namespace
}  // namespace k3::engine
