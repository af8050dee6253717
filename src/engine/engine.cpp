// Opens, plans, allocates and wires the parts; the only file that knows every one of them.
#include "k3/engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>

#include "base/host.h"
#include "base/log.h"
#include "base/thread_pool.h"
#include "engine/generation.h"
#include "engine/isa.h"
#include "engine/machine.h"
#include "engine/memory_plan.h"
#include "engine/opened_model.h"
#include "engine/prompt_cache.h"
#include "engine/snapshot.h"
#include "engine/step.h"
#include "io/arena.h"
#include "k3/error.h"
#include "kernels/dispatch.h"

namespace k3 {
namespace {

using namespace engine;

// Assumed where the kernel does not tell (no /proc): more than k3 holds at the full shape.
constexpr Bytes kProcessUnknown{96'000'000};

uint64_t choose_context(const EngineOptions& options, const model::Config& config) {
  const uint64_t most = config.max_position_embeddings;
  if (options.prompt_tokens > most) {
    throw Error(ErrorKind::kUsage,
                fmt::format("the prompt has {} tokens, the model takes {} positions at most",
                            options.prompt_tokens, most));
  }
  if (!options.context) {
    return options.prompt_tokens + std::min(options.new_tokens, most - options.prompt_tokens);
  }
  if (*options.context > most) {
    throw Error(ErrorKind::kUsage,
                fmt::format("a context of {} is more than the {} positions of the model",
                            *options.context, most));
  }
  if (options.prompt_tokens > *options.context ||
      options.new_tokens > *options.context - options.prompt_tokens) {
    throw Error(
        ErrorKind::kUsage,
        fmt::format("{} tokens of prompt and {} new ones do not fit a context of {}; give a "
                    "larger --context or fewer --max-tokens",
                    options.prompt_tokens, options.new_tokens, *options.context));
  }
  return *options.context;
}

weights::EmbeddingTable embedding_table(const weights::TrunkFile& trunk,
                                        const std::vector<io::FileId>& shards) {
  const weights::ManifestHeader& header = trunk.header();
  const uint32_t shard = header.embedding_shard;
  return {.shard = shards[shard],
          .offset = header.embedding_offset,
          .rows = header.embedding_rows,
          .cols = header.embedding_cols,
          .dtype = static_cast<weights::DType>(header.embedding_dtype),
          .checksums = trunk.embedding_checksums()};
}

Bytes take_budget(const EngineOptions& options, const HostLimits& limits, Bytes resident) {
  if (options.budget) {
    if (!options.plan_only) check_budget(limits, *options.budget);
    return *options.budget;
  }
  const std::optional<Bytes> safe = safe_budget(limits, resident);
  if (!safe) {
    throw Error(ErrorKind::kUsage,
                "this host does not tell how much memory is free (no /proc); give a --budget");
  }
  return *safe;
}

/// Snapshots to try, in order; the plan counts on the first.
std::vector<SnapshotReader> find_snapshots(const ResumeOptions& resume,
                                           const ModelIdentity& model) {
  std::vector<SnapshotReader> found;
  if (resume.cache) found = PromptCache(*resume.cache, model).find(resume.prompt);
  if (resume.file) {
    found.emplace_back(*resume.file);
    found.back().require_model(model);
    if (!found.back().begins(resume.prompt)) {
      throw Error(ErrorKind::kCheckpoint,
                  fmt::format("{}: its ids changed while it was being read; "
                              "is another run writing it?",
                              resume.file->string()));
    }
  }
  return found;
}

}  // namespace

struct Engine::Parts {
  OpenedModel model;
  kernels::Isa isa;
  io::FileTable files;
  io::FileId trunk_id{};
  std::vector<io::FileId> shard_ids;
  weights::EmbeddingTable embedding_table{};
  ModelIdentity identity;
  std::vector<SnapshotReader> snapshots;  // until one was restored
  std::optional<PlanInput> input;         // refers to `model`
  StepShape shape{};
  Plan plan;

  // Allocated by allocate(), in the order in which they refer to each other.
  std::unique_ptr<io::Arena> arena;
  std::unique_ptr<ThreadPool> pool;
  std::unique_ptr<io::IoThread> io;
  std::unique_ptr<weights::TrunkStream> trunk;
  std::unique_ptr<weights::ExpertCache> experts;
  std::unique_ptr<weights::EmbeddingReader> embedding;
  Activations buffers{};
  std::unique_ptr<model::SequenceState> state;
  std::optional<Sequence> sequence;
  std::unique_ptr<Step> step;
  std::function<void(const RunProgress&)> on_progress;
  std::atomic<bool> interrupted{false};
  RunStats stats;

  Parts(const EngineOptions& options, OpenedModel opened)
      : model(std::move(opened)), isa(choose_isa()) {
    trunk_id = files.add(model.trunk.path());
    for (const auto& shard : model.trunk.shards()) {
      shard_ids.push_back(files.add(model.directory / model.trunk.name(shard)));
    }
    embedding_table = ::k3::embedding_table(model.trunk, shard_ids);
    identity = model_identity(model.trunk);
    snapshots = find_snapshots(options.resume, identity);
    input.emplace(plan_input(options));
    plan = make_plan(*input);
    shape = step_shape(*input, plan);
  }

  PlanInput plan_input(const EngineOptions& options) const {
    const Bytes resident = resident_bytes().value_or(kProcessUnknown);
    const HostLimits limits = read_host_limits();
    const Bytes budget = take_budget(options, limits, resident);
    return {
        .config = model.config,
        .chunks = model.trunk.chunks(),
        .head_chunk_rows = model.head_chunk_rows(),
        .expert_slot = weights::ExpertCache::slot_bytes(model.trunk),
        .expert_payload = model.expert_payload(),
        .embedding_buffer = weights::EmbeddingReader::bytes_needed(embedding_table.row_bytes()),
        .embedding_row = Bytes{embedding_table.row_bytes()},
        .process = resident,
        .index = model.trunk.manifest_bytes(),
        .tokenizer = options.tokenizer,
        .threads = options.threads.value_or(limits.usable_cores),
        .context = choose_context(options, model.config),
        .prompt_rows = options.prompt_tokens - (snapshots.empty() ? 0 : snapshots[0].position()),
        .batch_rows = options.batch_rows,
        .prompt_logits = options.prompt_logits,
        .undo = options.undo,
        .budget = options.budget,
        .safe_budget = budget};
  }

  void allocate(const EngineOptions& options, std::unique_ptr<io::BlockReader> reader) {
    std::string why;
    if (reader == nullptr) reader = io::make_reader(io::kQueueDepth, &why);
    if (!why.empty())
      log::warn("io_uring is not available (" + why + "); reading with pread threads");
    pool = std::make_unique<ThreadPool>(plan.threads);
    io = std::make_unique<io::IoThread>(std::move(reader), files, io::IoThread::Options{});
    arena = std::make_unique<io::Arena>(arena_bytes(plan));
    carve(options);
    arena->seal();
    restore(options.resume);
  }

  void carve(const EngineOptions& options) {
    const model::Config& c = model.config;
    using State = model::SequenceState;
    state = std::make_unique<State>(
        c, plan.context,
        State::Memory{arena->carve<float>(State::kda_floats(c)),
                      arena->carve<float>(State::conv_floats(c)),
                      arena->carve<float>(State::cache_floats(c, plan.context))});
    buffers = Activations::carve(c, shape, *arena);
    embedding = std::make_unique<weights::EmbeddingReader>(
        embedding_table, *io,
        arena->carve<std::byte>(
            weights::EmbeddingReader::bytes_needed(embedding_table.row_bytes()).value));
    const bool undo = plan.undo.value > 0;
    sequence.emplace(Sequence{
        .state = *state,
        .logits = arena->carve<float>(c.vocab_size),
        .undo = arena->carve<float>(undo ? State::kda_floats(c) + State::conv_floats(c) : 0)});
    const weights::TrunkStream::Memory memory{arena->carve<std::byte>(plan.ring.value),
                                              arena->carve<std::byte>(plan.pinned.value)};
    using Check = weights::TrunkStream::Check;
    trunk = std::make_unique<weights::TrunkStream>(
        model.trunk, trunk_id, *io, memory,
        weights::choose_pinned(model.trunk.chunks(), plan.pinned),
        options.check_always ? Check::kAlways : Check::kFirst);
    experts = std::make_unique<weights::ExpertCache>(
        model.trunk, *io, arena->carve<std::byte>(plan.experts.value),
        weights::ExpertCache::Options{
            .first_layer = c.dense_layers,
            .shards = shard_ids,
            .scale_rows = {c.moe_intermediate_size, c.latent_size, c.moe_intermediate_size}});
    step = std::make_unique<Step>(Step::Parts{.config = c,
                                              .kernels = kernels::table(isa),
                                              .pool = *pool,
                                              .trunk_file = model.trunk,
                                              .trunk = *trunk,
                                              .experts = *experts,
                                              .embedding = *embedding,
                                              .buffers = buffers,
                                              .on_layer = [this](uint32_t layer) { report(layer); },
                                              .interrupted = interrupted});
  }

  /// Takes the first snapshot that is whole. A damaged one that was asked for by name is an error;
  /// in a prompt cache it costs the tokens that it would have saved.
  void restore(const ResumeOptions& resume) {
    for (const SnapshotReader& snapshot : snapshots) {
      try {
        snapshot.restore(model.config, *sequence);
        if (resume.cache) PromptCache::mark_used(snapshot.path());
        break;
      } catch (const Error& error) {
        if (resume.file) throw;
        PromptCache::drop(snapshot.path(), error);
      }
    }
    snapshots.clear();
    stats.prompt_tokens = stats.reused_tokens = state->position();
  }

  void report(uint32_t layer) {
    if (!on_progress) return;
    on_progress({.layer = layer,
                 .layers = model.config.num_hidden_layers,
                 .passes_done = stats.passes,
                 .rows = step->rows(),
                 .position = state->position(),
                 .read_bytes = io->stats().disk_bytes});
  }

  Sequencer sequencer() {
    return {*step, *sequence, *pool, kernels::table(isa), plan.batch_rows, stats};
  }
};

Engine::Engine(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}
Engine::~Engine() = default;

std::unique_ptr<Engine> Engine::open(const EngineOptions& options) {
  return open(options, nullptr);
}

std::unique_ptr<Engine> Engine::open(const EngineOptions& options,
                                     std::unique_ptr<io::BlockReader> reader) {
  return open(options,
              open_model(options.model, options.trunk.value_or(options.model / "trunk.k3")),
              std::move(reader));
}

std::unique_ptr<Engine> Engine::open(const EngineOptions& options, OpenedModel model,
                                     std::unique_ptr<io::BlockReader> reader) {
  auto parts = std::make_unique<Parts>(options, std::move(model));
  if (!options.plan_only) parts->allocate(options, std::move(reader));
  return std::unique_ptr<Engine>(new Engine(std::move(parts)));
}

SavedIds read_saved_ids(const std::filesystem::path& snapshot) {
  const SnapshotReader reader(snapshot);
  return {reader.ids(), reader.position()};
}

void check_snapshot_place(const std::filesystem::path& snapshot) {
  engine::check_snapshot_place(snapshot);
}

size_t prompt_cache_capacity() {
  return PromptCache::kSnapshotsMax;
}

const Plan& Engine::plan() const {
  return parts_->plan;
}
Plan Engine::plan_for(Bytes budget) const {
  PlanInput input = *parts_->input;
  input.budget = budget;
  return make_plan(input);
}
uint64_t Engine::vocab_size() const {
  return parts_->model.config.vocab_size;
}
const std::vector<uint32_t>& Engine::eos_ids() const {
  return parts_->model.config.eos_ids;
}
uint64_t Engine::position() const {
  return parts_->state->position();
}
void Engine::interrupt() {
  parts_->interrupted = true;
  parts_->io->interrupt();
}

void Engine::set_progress(std::function<void(const RunProgress&)> on_progress) {
  parts_->on_progress = std::move(on_progress);
}

FinishReason Engine::generate(std::span<const uint32_t> prompt, const GenerateOptions& options,
                              const GenerateHooks& hooks) {
  return parts_->sequencer().generate(prompt, options, hooks);
}

std::vector<double> Engine::score(std::span<const uint32_t> ids) {
  return parts_->sequencer().score(ids);
}

bool Engine::whole() const {
  return parts_->sequence->whole;
}

void Engine::save(const std::filesystem::path& file, std::span<const uint32_t> ids) const {
  write_snapshot(file, parts_->identity, parts_->model.config, *parts_->sequence, ids);
}

void Engine::save_to_cache(const std::filesystem::path& directory,
                           std::span<const uint32_t> ids) const {
  const PromptCache cache(directory, parts_->identity);
  const std::filesystem::path file = cache.path_for(ids.first(position()));
  std::error_code ignored;
  if (std::filesystem::exists(file, ignored)) {
    PromptCache::mark_used(file);
  } else {
    save(file, ids);
  }
  cache.prune();
}

RunStats Engine::stats() const {
  RunStats stats = parts_->stats;
  const io::IoStats io = parts_->io->stats();
  stats.trunk_bytes = parts_->trunk->stats().streamed_bytes;
  stats.checksum_retries = parts_->trunk->stats().checksum_retries +
                           parts_->experts->stats().checksum_retries +
                           parts_->embedding->checksum_retries();
  stats.expert_bytes = parts_->experts->stats().read_bytes;
  stats.expert_hits = parts_->experts->stats().hits;
  stats.expert_uses = parts_->experts->stats().uses;
  stats.embedding_bytes = parts_->embedding->read_bytes();
  stats.disk_bytes = io.disk_bytes;
  stats.max_reads_in_flight = io.max_reads_in_flight;
  stats.direct_fallbacks = io.direct_fallbacks;
  stats.direct_io = io.all_direct;
  stats.read_seconds = io.busy_seconds;
  stats.wait_seconds = parts_->io->wait_seconds();
  stats.compute_seconds =
      std::max(0.0, stats.prefill_seconds + stats.decode_seconds - stats.wait_seconds);
  stats.time = parts_->step->time();
  stats.peak_rss = peak_resident_bytes();
  stats.isa = kernels::isa_name(parts_->isa);
  stats.io = parts_->io->reader_name();
  stats.threads = parts_->plan.threads;
  return stats;
}

}  // namespace k3
