// k3 doctor: is this machine fit for this checkpoint, and what to do next.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/host.h"
#include "base/json.h"
#include "base/one_line.h"
#include "commands/commands.h"
#include "commands/drive_speeds.h"
#include "commands/options.h"
#include "commands/streams.h"
#include "engine/isa.h"
#include "engine/machine.h"
#include "engine/memory_plan.h"
#include "io/block_reader.h"
#include "io/direct_file.h"
#include "io/drive.h"
#include "io/io_thread.h"
#include "k3/engine.h"
#include "k3/error.h"
#include "kernels/dispatch.h"
#include "model/config.h"
#include "model/trunk_order.h"
#include "text/tokenizer.h"
#include "weights/checkpoint_index.h"
#include "weights/embedding.h"
#include "weights/model_directory.h"
#include "weights/shard_identity.h"
#include "weights/trunk_format.h"
#include "weights/trunk_layout.h"
#include "weights/trunk_stream.h"
#include "weights/trunk_writer.h"

namespace k3::commands {
namespace {

namespace fs = std::filesystem;

struct DoctorCommand {
  std::optional<fs::path> model;
  std::optional<fs::path> trunk;
  Output output;

  fs::path trunk_path() const { return trunk.value_or(*model / "trunk.k3"); }
};

/// What was found so far: one line a topic for people, one member for scripts, and what is wrong.
struct Examination {
  std::string text;
  OrderedJson json;
  std::vector<std::string> incomplete;  // the checkpoint or its trunk file: exit 3
  std::vector<std::string> unfit;       // the machine: exit 5
  std::string next;                     // the command to run

  void line(std::string_view topic, std::string_view what) {
    text += fmt::format("{:<8}  {}\n", topic, one_line(what));
  }
};

template <typename Value>
OrderedJson or_null(const std::optional<Value>& value) {
  return value ? OrderedJson(value->value) : OrderedJson(nullptr);
}

std::string cpu_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != line.npos) return line.substr(colon + 2);
  }
  return "unknown CPU";
}

void examine_cpu(const HostLimits& limits, Examination& found) {
  const std::optional<kernels::Isa> isa = kernels::best_isa();
  const std::string name = cpu_name();
  const std::string isa_name = isa ? std::string(kernels::isa_name(*isa)) : "";
  found.line("cpu", fmt::format("{}, {} core(s) for this process, {}", name, limits.usable_cores,
                                isa ? isa_name : "no AVX2"));
  found.json["cpu"] = {{"name", name}, {"usable_cores", limits.usable_cores}, {"isa", nullptr}};
  if (isa) {
    found.json["cpu"]["isa"] = isa_name;
  } else {
    found.unfit.push_back("this CPU lacks AVX2 and FMA, which k3 needs");
  }
}

std::string shown(const std::optional<Bytes>& bytes, const char* absent) {
  return bytes ? format_bytes(*bytes) : absent;
}

void examine_memory(const HostLimits& limits, const std::optional<Bytes>& safe,
                    Examination& found) {
  found.line("memory", fmt::format("{} in all, {} available, cgroup limit {}; safe to use: {}",
                                   shown(limits.memory_total, "unknown"),
                                   shown(limits.memory_available, "unknown"),
                                   shown(limits.cgroup_limit, "none"), shown(safe, "unknown")));
  found.json["memory"] = {{"total_bytes", or_null(limits.memory_total)},
                          {"available_bytes", or_null(limits.memory_available)},
                          {"cgroup_limit_bytes", or_null(limits.cgroup_limit)},
                          {"safe_budget_bytes", or_null(safe)}};
}

std::string speed_text(const io::ReadSpeed& speed) {
  return fmt::format(
      "{:.2f} GB/s ({}, {}){}", speed.gbps(), speed.reader,
      speed.direct ? "direct" : "no O_DIRECT here: through the page cache",
      speed.holes ? ", but the file has holes, which read faster than any drive" : "");
}

/// Where a path lies and how fast it reads; `speed` may be null: nothing there to read.
void examine_drive(std::string_view topic, const fs::path& path, const io::ReadSpeed* speed,
                   Examination& found) {
  const io::DriveFacts facts = io::drive_facts(path);
  OrderedJson json = {{"file_system", facts.file_system},
                      {"device", facts.device},
                      {"free_bytes", facts.free.value},
                      {"direct_io", nullptr},
                      {"gbps", nullptr},
                      {"io", nullptr},
                      {"holes", nullptr}};
  std::string text =
      fmt::format("{} on {}, {} free", facts.file_system, facts.device, format_bytes(facts.free));
  if (speed != nullptr) {
    text += ", reads " + speed_text(*speed);
    json["direct_io"] = speed->direct;
    json["gbps"] = speed->gbps();
    json["io"] = speed->reader;
    json["holes"] = speed->holes;
  }
  found.line("", text);
  found.json[std::string(topic)]["drive"] = std::move(json);
}

struct Checkpoint {
  model::Config config;
  weights::CheckpointIndex index;
};

/// That a file is not usable, or not readable, is a finding; anything else is the end.
bool is_finding(const Error& error) {
  return error.kind() == ErrorKind::kCheckpoint || error.kind() == ErrorKind::kRead;
}

/// The blocks by which a trunk file knows its shards: one that cannot be read is the fault of the
/// shard, not of the trunk file.
void read_samples(const fs::path& directory, const weights::CheckpointIndex& index) {
  for (const weights::ShardInfo& shard : index.shards()) {
    weights::sample_hash(directory / shard.name, shard.bytes);
  }
}

/// Null, with what is wrong in found.incomplete, when the checkpoint is not usable.
std::optional<Checkpoint> examine_checkpoint(const fs::path& directory, Examination& found) {
  found.json["model"] = {{"path", directory.string()}, {"complete", false}};
  try {
    weights::require_model_directory(directory);
    const weights::ShardListing listing = weights::list_shards(directory);
    found.json["model"]["shards"] = listing.names.size();
    found.json["model"]["missing"] = listing.missing;
    if (!listing.missing.empty()) {
      found.incomplete.push_back(fmt::format("{} of {} shards are missing: {}",
                                             listing.missing.size(), listing.names.size(),
                                             fmt::join(listing.missing, ", ")));
      return std::nullopt;
    }
    Checkpoint checkpoint{model::load_config(directory), {}};
    checkpoint.index = weights::CheckpointIndex::inspect(
        directory, model::checkpoint_request(checkpoint.config), found.incomplete);
    if (!found.incomplete.empty()) return std::nullopt;
    model::check_shapes(checkpoint.config, checkpoint.index);
    read_samples(directory, checkpoint.index);
    found.json["model"]["complete"] = true;
    return checkpoint;
  } catch (const Error& error) {
    if (!is_finding(error)) throw;
    found.incomplete.push_back(error.what());
    return std::nullopt;
  }
}

std::optional<Checkpoint> examine_model(const fs::path& directory, Examination& found) {
  std::optional<Checkpoint> checkpoint = examine_checkpoint(directory, found);
  if (!checkpoint) {
    found.line("model", fmt::format("{}: not complete", directory.string()));
    for (const std::string& problem : found.incomplete) found.line("", problem);
    found.json["model"]["problems"] = found.incomplete;
    return std::nullopt;
  }
  Bytes bytes;
  for (const auto& shard : checkpoint->index.shards()) bytes += Bytes{shard.bytes};
  found.line("model", fmt::format("{}: {} shards, {}, complete", directory.string(),
                                  checkpoint->index.shards().size(), format_bytes(bytes)));
  found.json["model"]["bytes"] = bytes.value;
  try {
    const io::ReadSpeed speed = measure_experts(directory);
    examine_drive("model", directory, &speed, found);
  } catch (const Error& error) {
    if (!is_finding(error)) throw;
    found.incomplete.push_back(error.what());
    found.line("", error.what());
    return std::nullopt;
  }
  return checkpoint;
}

/// The trunk as `k3 pack` would lay it out.
weights::TrunkLayout future_layout(const Checkpoint& checkpoint) {
  const auto tensors = model::trunk_order(checkpoint.config);
  std::vector<weights::DType> dtypes;
  for (size_t i = 0; i < tensors.size(); ++i) dtypes.push_back(checkpoint.index.tensor(i).dtype);
  return weights::lay_out_trunk(tensors, dtypes);
}

/// Chunks in whole blocks, and a manifest, whose size is that of its records, nearly.
Bytes future_file_bytes(const weights::TrunkLayout& layout, const Checkpoint& checkpoint) {
  uint64_t sum = weights::kTrunkAlignment;
  for (const auto& chunk : layout.chunks) sum += weights::padded_bytes(chunk);
  sum += layout.chunks.size() * (sizeof(weights::ChunkRecord) + sizeof(weights::SegmentRecord));
  sum += uint64_t{checkpoint.config.moe_layers()} * checkpoint.config.num_experts *
         sizeof(weights::ExpertRecord);
  sum += checkpoint.config.vocab_size * sizeof(uint64_t);  // checksums of the embedding
  return Bytes{sum + (1u << 20)};
}

/// As the plan of a run would find it, with experts that straddle blocks as far as they can.
Bytes least_budget(const Checkpoint& checkpoint, const weights::TrunkLayout& layout) {
  const model::Config& c = checkpoint.config;
  const auto tensors = model::trunk_order(c);
  uint64_t head_rows = 0;
  for (const auto& segment : layout.segments) {
    const bool head =
        static_cast<model::Role>(tensors[segment.tensor].role) == model::Role::kLmHead;
    if (head) head_rows = std::max<uint64_t>(head_rows, segment.row_count);
  }
  Bytes expert, slot;
  for (const uint64_t part : model::checkpoint_request(c).expert_shape.part_bytes) {
    if (c.moe_layers() == 0) break;
    expert += Bytes{part};
    slot += Bytes{io::ReadJob::buffer_bytes(io::kBlockSize - 1, part)};
  }
  const weights::TensorLocation& embedding = checkpoint.index.tensor(tensors.size());
  const engine::PlanInput input{.config = c,
                                .chunks = layout.chunks,
                                .head_chunk_rows = head_rows,
                                .expert_slot = slot,
                                .expert_payload = expert,
                                .embedding_buffer = weights::EmbeddingReader::bytes_needed(
                                    c.hidden_size * weights::dtype_bytes(embedding.dtype)),
                                .embedding_row = {},
                                .process = resident_bytes().value_or(Bytes{}),
                                .index = {},
                                .tokenizer = {},
                                .threads = read_host_limits().usable_cores,
                                .context = 1,
                                .prompt_rows = 1,
                                .batch_rows = {},
                                .prompt_logits = false,
                                .budget = {},
                                .safe_budget = Bytes{uint64_t{1} << 50}};
  return engine::make_plan(input).least_budget;
}

void examine_least(Bytes least, Examination& found) {
  const auto safe = engine::safe_budget(read_host_limits(), resident_bytes().value_or(Bytes{}));
  found.line("budget", fmt::format("about {} is the least", format_bytes(least)));
  found.json["plan"] = {{"least_budget_bytes", least.value}};
  if (!safe || least <= *safe) return;
  found.unfit.push_back(
      fmt::format("about {} of memory is the least that a run needs, {} is safe to "
                  "use here",
                  format_bytes(least), format_bytes(*safe)));
}

void examine_missing_trunk(const DoctorCommand& command, const Checkpoint& checkpoint,
                           Examination& found) {
  const fs::path path = command.trunk_path();
  const weights::TrunkLayout layout = future_layout(checkpoint);
  const Bytes needed = future_file_bytes(layout, checkpoint);
  examine_least(least_budget(checkpoint, layout), found);
  const Bytes least = weights::least_space(needed, weights::CodecChoice::kLossless);
  const Bytes free = io::drive_facts(path).free;
  found.line("trunk", fmt::format("{}: not made yet, it needs about {}, {} at most", path.string(),
                                  format_bytes(least), format_bytes(needed)));
  found.json["trunk"] = {{"path", path.string()},
                         {"exists", false},
                         {"least_bytes", least.value},
                         {"needed_bytes", needed.value}};
  examine_drive("trunk", path, nullptr, found);
  std::error_code ignored;
  const fs::path parent = fs::absolute(path, ignored).parent_path();
  const bool writable = ::access(parent.c_str(), W_OK) == 0;
  const bool room = least <= free;
  if (!room) {
    found.unfit.push_back(fmt::format("the trunk file needs about {}, {} has {} free",
                                      format_bytes(least), parent.string(), format_bytes(free)));
  } else if (free < needed) {
    found.line("", fmt::format("{} are free: enough unless the weights pack badly; if the disk "
                               "gets full, the same command continues",
                               format_bytes(free)));
  }
  found.next = fmt::format("k3 pack {}", command.model->string());
  if (!writable || !room) {
    found.next += " -o /another/drive/trunk.k3";
  } else if (command.trunk) {
    found.next += " -o " + path.string();
  }
}

void examine_plan(const DoctorCommand& command, Examination& found) {
  EngineOptions options;
  options.model = *command.model;
  options.trunk = command.trunk;
  options.plan_only = true;
  const auto tokenizer = text::Tokenizer::load(*command.model);
  if (tokenizer) options.tokenizer = tokenizer->memory();
  const Plan plan = Engine::open(options)->plan();
  found.json["plan"] = {{"budget_bytes", plan.budget.value},
                        {"least_budget_bytes", plan.least_budget.value}};
  found.line("budget", fmt::format("the least is {}, {} is safe here; see k3 plan",
                                   format_bytes(plan.least_budget), format_bytes(plan.budget)));
  found.next = fmt::format("k3 generate {}{} {}", command.model->string(),
                           command.trunk ? " --trunk " + command.trunk->string() : "",
                           tokenizer ? "-p \"Once upon a time\"" : "--ids 1,2,3");
}

/// `k3 pack` replaces trunk files only; what cannot be read is not known to be one.
bool is_replaceable(const fs::path& path) {
  std::error_code error;
  try {
    return fs::is_regular_file(path, error) && !io::holds_other(path, weights::kTrunkMagic);
  } catch (const Error&) {
    return false;
  }
}

/// What makes the trunk file anew.
std::string pack_again(const DoctorCommand& command) {
  const fs::path path = command.trunk_path();
  const std::string pack = fmt::format("k3 pack {}", command.model->string());
  if (!is_replaceable(path)) return pack + " -o /another/place/trunk.k3";
  return fmt::format("{}{} --force", pack, command.trunk ? " -o " + path.string() : "");
}

void examine_trunk(const DoctorCommand& command, Examination& found) {
  const fs::path path = command.trunk_path();
  found.json["trunk"] = {{"path", path.string()}, {"exists", true}, {"usable", false}};
  try {
    examine_plan(command, found);
    const io::ReadSpeed speed = measure_trunk(path);
    found.line("trunk", fmt::format("{}: {}, fits the checkpoint", path.string(),
                                    format_bytes(Bytes{fs::file_size(path)})));
    found.json["trunk"]["usable"] = true;
    examine_drive("trunk", path, &speed, found);
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::kBudget) {
      found.unfit.push_back(error.what());
      found.next = fmt::format("k3 plan {} --budget 8G", command.model->string());
    } else if (is_finding(error)) {
      found.incomplete.push_back(error.what());
      found.next = pack_again(command);
    } else {
      throw;
    }
    found.line("trunk", error.what());
  }
}

void examine_files(const DoctorCommand& command, Examination& found) {
  std::optional<Checkpoint> checkpoint = examine_model(*command.model, found);
  if (!checkpoint) {
    found.next = fmt::format("k3 verify {} --hashes", command.model->string());
    return;
  }
  if (io::is_there(command.trunk_path())) {
    checkpoint.reset();  // a run does not hold it, and the plan counts what is resident
    examine_trunk(command, found);
  } else {
    examine_missing_trunk(command, *checkpoint, found);
  }
}

void finish(const DoctorCommand& command, Examination& found) {
  const bool fit = found.incomplete.empty() && found.unfit.empty();
  std::vector<std::string> problems = found.incomplete;
  problems.insert(problems.end(), found.unfit.begin(), found.unfit.end());
  for (const std::string& problem : found.unfit) found.line("not fit", problem);
  found.json["fit"] = fit;
  found.json["problems"] = problems;
  found.json["next"] = found.next;
  found.line("verdict", fit                         ? "fit"
                        : !found.incomplete.empty() ? "the checkpoint is not complete"
                                                    : "this machine is not fit");
  found.text += fmt::format("next: {}\n", one_line(found.next));
  print(command.output.json ? dump_json(found.json) + "\n" : found.text);
  if (fit) return;
  throw Error(found.incomplete.empty() ? ErrorKind::kBudget : ErrorKind::kCheckpoint,
              problems.front());
}

/// Error(kUsage) where K3_ISA or K3_IO asks for what no run would take.
void check_environment() {
  if (kernels::best_isa()) engine::choose_isa();
  std::string reason;
  io::make_reader(1, &reason);
}

void run_doctor(const DoctorCommand& command) {
  apply_verbosity(command.output);
  check_environment();
  if (command.trunk && !command.model) {
    throw Error(ErrorKind::kUsage, "--trunk is examined together with its MODEL: name that too");
  }
  Examination found;
  const HostLimits limits = read_host_limits();
  examine_cpu(limits, found);
  examine_memory(limits, engine::safe_budget(limits, resident_bytes().value_or(Bytes{})), found);
  found.next = "k3 doctor MODEL";
  if (command.model) examine_files(command, found);
  finish(command, found);
}

}  // namespace

void add_doctor(CLI::App& app) {
  auto command = std::make_shared<DoctorCommand>();
  CLI::App* sub = app.add_subcommand("doctor", "Is this machine fit, and what to do next");
  sub->add_option("MODEL", command->model, "Checkpoint directory: config.json and the shards")
      ->check(a_name())
      ->type_name("DIR");
  sub->add_option("--trunk", command->trunk, "Trunk file written by `k3 pack` [MODEL/trunk.k3]")
      ->check(a_name())
      ->type_name("FILE")
      ->group("Model");
  add_json(*sub, command->output);
  add_verbosity(*sub, command->output);
  sub->footer(
      "Reads for a second from each drive. Exit code 0: fit; 3: the checkpoint or its trunk file "
      "is\n"
      "not complete; 5: this machine is not fit.\n"
      "\n"
      "Examples:\n"
      "  k3 doctor\n"
      "  k3 doctor MODEL\n"
      "  k3 doctor MODEL --trunk /fast/trunk.k3 --json");
  sub->callback([command] { run_doctor(*command); });
}

}  // namespace k3::commands
