#include "support/faulty_run.h"

#include <array>

#include "base/hash.h"
#include "support/engine_runs.h"
#include "support/run_k3.h"
#include "support/test_data.h"

namespace k3::test {
namespace {

constexpr std::array<uint32_t, 5> kPrompt = {84, 104, 101, 200, 32};
constexpr size_t kReaderDepth = 16;
// What this process may grow by between planning and opening.
const Bytes kGrowth = Bytes{600'000} + kSanitizersGrowth;

std::filesystem::path pack(const std::filesystem::path& model, const std::filesystem::path& trunk,
                           bool expert_checksums) {
  K3Command command{.args = {"pack", model.string(), "-o", trunk.string()}};
  if (expert_checksums) command.args.push_back("--expert-checksums");
  const K3Result result = run_k3(command);
  if (result.exit_code != 0) throw std::runtime_error(result.err);
  return trunk;
}

}  // namespace

std::filesystem::path fault_model() {
  return data_dir() / "tiny-k3";
}

std::filesystem::path fault_trunk(bool expert_checksums) {
  static const TempDir dir;
  static const std::filesystem::path plain = pack(fault_model(), dir.path() / "plain.k3", false);
  static const std::filesystem::path checked = pack(fault_model(), dir.path() / "checked.k3", true);
  return expert_checksums ? checked : plain;
}

std::filesystem::path small_fault_model() {
  return data_dir() / "random-b";
}

std::filesystem::path small_fault_trunk() {
  static const TempDir dir;
  static const std::filesystem::path trunk =
      pack(small_fault_model(), dir.path() / "small.k3", false);
  return trunk;
}

EngineOptions fault_options(const std::filesystem::path& model,
                            const std::filesystem::path& trunk) {
  EngineOptions options;
  options.model = model;
  options.trunk = trunk;
  options.prompt_tokens = kPrompt.size();
  options.new_tokens = kRunTokens;
  options.threads = 2;
  options.plan_only = true;
  options.check_always = true;  // else a chunk's checksum counts only when it first comes
  options.budget = Engine::open(options)->plan().least_budget + kGrowth;
  options.plan_only = false;
  return options;
}

std::unique_ptr<Engine> open_faulty(const EngineOptions& options, const Faults& faults,
                                    std::shared_ptr<FaultControl> control) {
  return Engine::open(options, std::make_unique<FaultReader>(io::make_pread_reader(kReaderDepth),
                                                             faults, std::move(control)));
}

FaultyOutcome generate_on(Engine& engine, const AfterToken& after_token) {
  FaultyOutcome outcome;
  Sha256 digest;
  GenerateHooks hooks;
  hooks.on_token = [&](uint32_t id, std::span<const float> logits) {
    outcome.ids.push_back(id);
    digest.update(std::as_bytes(std::span(&id, 1)));
    digest.update(std::as_bytes(logits));
    if (after_token) after_token(outcome.ids);
  };
  try {
    engine.generate(kPrompt, {.max_tokens = kRunTokens, .eos_ids = {}, .stop_ids = {}}, hooks);
  } catch (const Error& error) {
    outcome.error = error.kind();
    outcome.message = error.what();
  }
  outcome.receipt = digest.hex_digest();
  outcome.stats = engine.stats();
  return outcome;
}

FaultyOutcome run_with(const Faults& faults, std::shared_ptr<FaultControl> control,
                       bool expert_checksums) {
  const auto options = fault_options(fault_model(), fault_trunk(expert_checksums));
  return generate_on(*open_faulty(options, faults, std::move(control)));
}

FaultyOutcome run_small_with(const Faults& faults, std::shared_ptr<FaultControl> control) {
  const auto options = fault_options(small_fault_model(), small_fault_trunk());
  return generate_on(*open_faulty(options, faults, std::move(control)));
}

}  // namespace k3::test
