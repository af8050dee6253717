// The boundary: an opened model that runs sequences. Commands see this, not the parts.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "k3/plan.h"
#include "k3/units.h"

namespace k3 {

namespace io {
class BlockReader;
}
namespace engine {
struct OpenedModel;
}

/// Where a sequence may start from in place of nothing: one of the two, or neither.
struct ResumeOptions {
  std::optional<std::filesystem::path> file;   // this snapshot, whose ids `prompt` begins with
  std::optional<std::filesystem::path> cache;  // the longest of a prompt cache that fits
  std::vector<uint32_t> prompt;                // ids of the whole sequence, restored ones too
};

struct EngineOptions {
  std::filesystem::path model;                 // the checkpoint directory
  std::optional<std::filesystem::path> trunk;  // default: model/trunk.k3
  std::optional<Bytes> budget;                 // default: what is safe on this host
  std::optional<uint64_t> context;             // default: what the run needs
  uint64_t prompt_tokens = 1;                  // of the whole prompt, restored ones too
  uint64_t new_tokens = 0;                     // that it may add
  std::optional<uint64_t> batch_rows;          // at most so many prompt rows a pass
  bool prompt_logits = false;                  // logits of every prompt row are wanted (score)
  ResumeOptions resume;
  bool undo = false;  // keep a copy of the states, where it fits, so that a failed step is undone
  std::optional<uint64_t> threads;
  bool check_always = false;  // verify every chunk at every read
  Bytes tokenizer;            // heap that the caller's tokenizer holds
  bool plan_only = false;     // open() plans and allocates nothing; any budget may be asked about
};

/// Where a run stands; passed to EngineHooks::on_progress from the computing thread.
struct RunProgress {
  uint32_t layer;  // of layers; == layers at the output head
  uint32_t layers;
  uint64_t passes_done;  // whole ones since opening
  uint64_t rows;         // rows of the pass
  uint64_t position;     // of the first of them
  uint64_t read_bytes;   // from the drive since opening
};

/// Seconds of the steps, by what the computing threads were busy with.
struct TimeByKind {
  double trunk = 0;      // products with the trunk's matrices, those named below excepted
  double experts = 0;    // routed experts
  double head = 0;       // products with the output head
  double kda = 0;        // short convolution, decay, delta rule
  double attention = 0;  // scores and sums over the latent cache
  double router = 0;     // scores of the experts and the choice
  double waiting = 0;    // for bytes, and checking them at their first use
  double rest = 0;       // norms, mixtures, packing, results
};

struct RunStats {
  double prefill_seconds = 0;
  double decode_seconds = 0;
  uint64_t prompt_tokens = 0;
  uint64_t reused_tokens = 0;  // of the prompt, restored from a snapshot
  uint64_t generated_tokens = 0;
  uint64_t passes = 0;
  uint64_t trunk_bytes = 0;  // payload: what was asked for and used
  uint64_t expert_bytes = 0;
  uint64_t embedding_bytes = 0;
  uint64_t expert_hits = 0;
  uint64_t expert_uses = 0;
  uint64_t disk_bytes = 0;  // with widening to blocks
  uint64_t max_reads_in_flight = 0;
  uint64_t direct_fallbacks = 0;
  uint64_t checksum_retries = 0;
  double read_seconds = 0;  // with a read in flight
  double compute_seconds = 0;
  double wait_seconds = 0;  // computing threads waiting for bytes
  TimeByKind time;
  std::optional<Bytes> peak_rss;
  std::string isa;  // "avx512"
  std::string io;   // "uring"
  bool direct_io = true;
  uint64_t threads = 0;
};

enum class FinishReason { kLength, kEos, kStop };

struct GenerateOptions {
  uint64_t max_tokens = 128;
  std::vector<uint32_t> eos_ids;   // end with FinishReason::kEos
  std::vector<uint32_t> stop_ids;  // end with FinishReason::kStop
};

/// Any of them may be left out.
struct GenerateHooks {
  /// The whole prompt has been taken in.
  std::function<void()> on_prompt;
  /// Each new token with its logits [vocab_size], as soon as it is chosen; may throw to stop.
  std::function<void(uint32_t id, std::span<const float> logits)> on_token;
};

/// The ids of a snapshot: those taken in, then those pending.
struct SavedIds {
  std::vector<uint32_t> ids;
  uint64_t taken_in;
};
/// Reads them without a model. Error(kCheckpoint) when the file is no usable snapshot.
SavedIds read_saved_ids(const std::filesystem::path& snapshot);
/// Error(kUsage) unless a snapshot could be written there.
void check_snapshot_place(const std::filesystem::path& snapshot);
/// Snapshots that a prompt cache keeps.
size_t prompt_cache_capacity();

/// With EngineOptions::plan_only, plan(), plan_for(), vocab_size() and eos_ids() alone may be
/// called. After an Error from generate() or score() the engine is as it was before the step that
/// failed if whole(): the same calls may go on from position(). They wait for reads that are still
/// in flight, for ever where the drive hangs. If not whole(), they throw Error(kUsage).
class Engine {
 public:
  /// Opens checkpoint and trunk, checks that they belong together, plans, allocates. Throws Error.
  static std::unique_ptr<Engine> open(const EngineOptions& options);
  /// The same with a reader of the caller's: how tests inject faults. Null: as K3_IO and the host
  /// say.
  static std::unique_ptr<Engine> open(const EngineOptions& options,
                                      std::unique_ptr<io::BlockReader> reader);
  /// The same with a model that is already open, in place of options.model and options.trunk: how
  /// steps are measured on weights that lie in no file.
  static std::unique_ptr<Engine> open(const EngineOptions& options, engine::OpenedModel model,
                                      std::unique_ptr<io::BlockReader> reader);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  const Plan& plan() const;
  /// How another budget would be divided, whether or not this host has it. Error(kBudget) when it
  /// is too small.
  Plan plan_for(Bytes budget) const;
  uint64_t vocab_size() const;
  /// The eos ids of config.json and generation_config.json.
  const std::vector<uint32_t>& eos_ids() const;
  uint64_t position() const;  // tokens of the sequence taken in so far

  /// Progress before each layer; may throw to stop the run.
  void set_progress(std::function<void(const RunProgress&)> on_progress);

  /// Takes the prompt in and continues it greedily. The sequence goes on from where it is (a new
  /// engine: from nothing, or what was restored); the prompt may be empty when the logits of the
  /// last position are known. Error(kUsage) for ids outside the vocabulary or a context too small.
  FinishReason generate(std::span<const uint32_t> prompt, const GenerateOptions& options,
                        const GenerateHooks& hooks);

  /// Log-likelihood of each id after the ones before it: ids.size() - 1 values (natural logarithm).
  /// Error(kUsage) as generate(), and for no ids at all.
  std::vector<double> score(std::span<const uint32_t> ids);

  /// True unless a step failed that could not be undone: then nothing can be saved.
  bool whole() const;
  /// Writes the sequence to `file`, complete or not at all. `ids` are all that belong to it: the
  /// first position() were taken in, the rest is pending.
  void save(const std::filesystem::path& file, std::span<const uint32_t> ids) const;
  /// The same into a prompt cache, from which the oldest are then removed.
  void save_to_cache(const std::filesystem::path& directory, std::span<const uint32_t> ids) const;

  RunStats stats() const;
  /// Makes a run end soon with Error(kInterrupted), also where it waits for the drive; for good.
  /// From any thread.
  void interrupt();

 private:
  struct Parts;
  explicit Engine(std::unique_ptr<Parts> parts);
  std::unique_ptr<Parts> parts_;
};

}  // namespace k3
