#include "support/engine_runs.h"

#include <fmt/format.h>

#include <cstdlib>
#include <fstream>
#include <stdexcept>

#include "base/hash.h"
#include "base/json.h"
#include "io/block_reader.h"
#include "kernels/dispatch.h"
#include "support/run_k3.h"

namespace k3::test {
namespace {

namespace fs = std::filesystem;

void raise_positions(const fs::path& config, uint64_t max_positions) {
  std::ifstream in(config);
  Json json = Json::parse(in);
  json.at("text_config").at("max_position_embeddings") = max_positions;
  std::ofstream(config) << json.dump();
}

EngineOptions engine_options(const PackedModel& model, uint64_t prompt_tokens,
                             uint64_t new_tokens) {
  EngineOptions options;
  options.model = model.path();
  options.prompt_tokens = prompt_tokens;
  options.new_tokens = new_tokens;
  return options;
}

}  // namespace

PackedModel::PackedModel(const std::string& name, uint64_t max_positions, const std::string& codec)
    : path_(dir_.path() / name) {
  fs::copy(data_dir() / name, path_);
  raise_positions(path_ / "config.json", max_positions);
  const K3Result packed = run_k3({.args = {"pack", path_.string(), "-q", "--codec", codec}});
  if (packed.exit_code != 0) throw std::runtime_error(packed.err);
}

Bytes PackedModel::least_budget(uint64_t tokens) const {
  EngineOptions options = engine_options(*this, 1, tokens - 1);
  options.plan_only = true;
  options.threads = 2;
  return Engine::open(options)->plan().least_budget;
}

std::string Setting::name() const {
  return fmt::format("batch {}, {} x least budget, {} threads, {}, {}",
                     batch ? std::to_string(*batch) : "all", budget_times, threads, isa, io);
}

GenerateHooks ReceiptHooks::hooks() {
  return {.on_prompt = nullptr, .on_token = [this](uint32_t id, std::span<const float> logits) {
            ids_.push_back(id);
            logits_.insert(logits_.end(), logits.begin(), logits.end());
          }};
}

std::string ReceiptHooks::receipt(const std::vector<uint32_t>& prompt) const {
  Sha256 sha;
  sha.update(std::as_bytes(std::span(prompt)));
  sha.update(std::as_bytes(std::span(ids_)));
  sha.update(std::as_bytes(std::span(logits_)));
  return sha.hex_digest();
}

RunResult run_engine(const PackedModel& model, const std::vector<uint32_t>& prompt,
                     uint64_t new_tokens, const Setting& setting) {
  ::setenv("K3_ISA", setting.isa.c_str(), 1);
  ::setenv("K3_IO", setting.io.c_str(), 1);
  EngineOptions options = engine_options(model, prompt.size(), new_tokens);
  options.batch_rows = setting.batch;
  options.threads = setting.threads;
  options.budget =
      model.least_budget(prompt.size() + new_tokens) * setting.budget_times + kSanitizersGrowth;
  const auto engine = Engine::open(options);
  ReceiptHooks kept;
  engine->generate(prompt, {.max_tokens = new_tokens, .eos_ids = {}, .stop_ids = {}}, kept.hooks());
  return {kept.receipt(prompt), kept.ids(), engine->stats(), engine->plan()};
}

std::vector<uint32_t> some_ids(size_t count, uint64_t vocab_size, uint64_t seed) {
  std::vector<uint32_t> ids(count);
  uint64_t state = seed;
  for (uint32_t& id : ids) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    id = static_cast<uint32_t>((state >> 33) % vocab_size);
  }
  return ids;
}

bool host_has_isa(const std::string& isa) {
  return kernels::best_isa() >= kernels::isa_from_name(isa);
}

bool host_has_uring() {
  std::string why;
  return io::make_uring_reader(1, &why) != nullptr;
}

}  // namespace k3::test
