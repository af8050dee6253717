// Runs of the engine inside the test's own process, and what is compared of them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "k3/engine.h"
#include "support/sanitizers.h"
#include "support/test_data.h"

namespace k3::test {

/// What a sanitizer makes a process grow by from one engine to the next: a budget just above the
/// least that was told before must hold that too.
inline constexpr Bytes kSanitizersGrowth{kSanitized ? 64'000'000 : 0};

/// A small model of tests/data, packed, that takes as many positions as a test wants.
class PackedModel {
 public:
  explicit PackedModel(const std::string& name, uint64_t max_positions = 8192,
                       const std::string& codec = "auto");
  const std::filesystem::path& path() const { return path_; }
  /// The least budget for a run of so many tokens in all.
  Bytes least_budget(uint64_t tokens) const;

 private:
  TempDir dir_;
  std::filesystem::path path_;
};

/// How a run is done. Nothing of it may change a bit.
struct Setting {
  std::optional<uint64_t> batch;  // prompt rows a pass at most
  uint64_t budget_times = 8;      // of the least; 1 is the floor
  uint64_t threads = 2;
  std::string isa = "avx2";
  std::string io = "uring";

  std::string name() const;
};

struct RunResult {
  std::string receipt;  // over prompt ids, ids and logits, as `generate --json` makes it
  std::vector<uint32_t> ids;
  RunStats stats;
  Plan plan;
};

RunResult run_engine(const PackedModel& model, const std::vector<uint32_t>& prompt,
                     uint64_t new_tokens, const Setting& setting);

/// Receipts are made of this.
class ReceiptHooks {
 public:
  GenerateHooks hooks();
  std::string receipt(const std::vector<uint32_t>& prompt) const;
  const std::vector<uint32_t>& ids() const { return ids_; }

 private:
  std::vector<uint32_t> ids_;
  std::vector<float> logits_;
};

/// Pseudo-random ids below `vocab_size`.
std::vector<uint32_t> some_ids(size_t count, uint64_t vocab_size, uint64_t seed = 1);

/// Whether this host can run with a setting's instruction set and back end.
bool host_has_isa(const std::string& isa);
bool host_has_uring();

}  // namespace k3::test
