// One run of the engine on tiny-k3 through a reader that spoils some of its reads.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "k3/engine.h"
#include "k3/error.h"
#include "support/fault_reader.h"

namespace k3::test {

/// How a run ended: with all tokens, or with an error after some of them.
struct FaultyOutcome {
  std::vector<uint32_t> ids;  // handed out before the end
  std::string receipt;        // digest of these ids and of their logits
  std::optional<ErrorKind> error;
  std::string message;
  RunStats stats;
};

constexpr uint64_t kRunTokens = 3;

/// tiny-k3 and its trunk file, with expert checksums on request; packed once for all tests.
std::filesystem::path fault_model();
std::filesystem::path fault_trunk(bool expert_checksums);
/// A model that needs fewer reads, and its trunk file.
std::filesystem::path small_fault_model();
std::filesystem::path small_fault_trunk();

/// Options of a run near the least budget, so that little of the trunk stays in memory, with every
/// chunk checked whenever it is read.
EngineOptions fault_options(const std::filesystem::path& model, const std::filesystem::path& trunk);

/// Opens with the faults; reads of opening itself do not pass through the reader.
std::unique_ptr<Engine> open_faulty(const EngineOptions& options, const Faults& faults,
                                    std::shared_ptr<FaultControl> control);
/// Called with the tokens so far once another has been handed out.
using AfterToken = std::function<void(const std::vector<uint32_t>& ids)>;
/// Generates kRunTokens tokens.
FaultyOutcome generate_on(Engine& engine, const AfterToken& after_token = nullptr);
/// Both, on fault_model().
FaultyOutcome run_with(const Faults& faults, std::shared_ptr<FaultControl> control,
                       bool expert_checksums = false);
/// Both, on small_fault_model().
FaultyOutcome run_small_with(const Faults& faults, std::shared_ptr<FaultControl> control);

}  // namespace k3::test
