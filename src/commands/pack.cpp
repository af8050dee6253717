// k3 pack: writes the trunk file of a checkpoint.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <string>

#include "base/json.h"
#include "base/log.h"
#include "commands/commands.h"
#include "commands/interrupts.h"
#include "commands/options.h"
#include "commands/progress.h"
#include "commands/streams.h"
#include "io/direct_file.h"
#include "k3/error.h"
#include "model/config.h"
#include "model/trunk_order.h"
#include "weights/trunk_contents.h"
#include "weights/trunk_file.h"
#include "weights/trunk_writer.h"

namespace k3::commands {
namespace {

namespace fs = std::filesystem;

struct PackCommand {
  fs::path model;
  fs::path output;  // empty: MODEL/trunk.k3
  std::string codec = "auto";
  bool verify = false;
  bool force = false;
  bool expert_checksums = false;
  Output out;
};

/// What pack needs to know of a checkpoint.
struct Checkpoint {
  model::Config config;
  std::vector<weights::TrunkTensor> tensors;
  weights::CheckpointIndex index;
  weights::PackInput input;
};

void open_checkpoint(const fs::path& directory, Checkpoint& checkpoint) {
  checkpoint.config = model::load_config(directory);
  checkpoint.tensors = model::trunk_order(checkpoint.config);
  const weights::CheckpointRequest request = model::checkpoint_request(checkpoint.config);
  checkpoint.index = weights::CheckpointIndex::open(directory, request);
  model::check_shapes(checkpoint.config, checkpoint.index);
  weights::PackInput& input = checkpoint.input;
  input.directory = directory;
  input.index = &checkpoint.index;
  input.tensors = &checkpoint.tensors;
  input.config_fingerprint = checkpoint.config.fingerprint();
  input.first_expert_layer = checkpoint.config.dense_layers;
  input.expert_layer_count = static_cast<uint32_t>(request.expert_layers.size());
  input.experts_per_layer = request.experts_per_layer;
  std::copy_n(request.expert_shape.part_bytes, weights::kExpertParts, input.expert_part_bytes);
}

/// A file that somebody else made is never replaced, not even with --force.
void refuse_foreign_file(const fs::path& target) {
  if (!io::holds_other(target, weights::kTrunkMagic)) return;
  throw Error(ErrorKind::kUsage,
              fmt::format("{} exists and is not a trunk file: not replaced; name another place "
                          "with -o",
                          target.string()));
}

/// Why an existing trunk file is not the one to be made; empty if it is.
std::string existing_difference(const fs::path& target, const Checkpoint& checkpoint,
                                const weights::PackOptions& options) {
  try {
    return weights::trunk_difference(weights::TrunkFile::open(target),
                                     weights::describe_trunk(checkpoint.input, options), options);
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::kRead) throw;
    return error.what();
  }
}

/// True when the target is there already, complete and fitting.
bool already_packed(const PackCommand& command, const fs::path& target,
                    const Checkpoint& checkpoint, const weights::PackOptions& options) {
  std::error_code absent;
  if (!fs::is_regular_file(target, absent)) return false;  // PartialFile tells what it is
  refuse_foreign_file(target);
  if (command.force) return false;
  const std::string difference = existing_difference(target, checkpoint, options);
  if (difference.empty()) return true;
  throw Error(ErrorKind::kUsage,
              fmt::format("{} exists but does not fit: {}; --force replaces it, -o names another "
                          "place",
                          target.string(), difference));
}

std::string progress_line(const weights::PackProgress& progress, double seconds) {
  if (progress.hashed_done > Bytes{}) {
    return fmt::format(
        "checksums: {} of {}, {} left", format_bytes(progress.hashed_done),
        format_bytes(progress.hashed_total),
        remaining_time(seconds, progress.hashed_done.value, progress.hashed_total.value));
  }
  return fmt::format("packing: {} of {} ({:.0f} %), {:.2f} GB/s, {} left",
                     format_bytes(progress.raw_done), format_bytes(progress.raw_total),
                     100.0 * static_cast<double>(progress.raw_done.value) /
                         static_cast<double>(progress.raw_total.value),
                     static_cast<double>(progress.raw_done.value) / 1e9 / seconds,
                     remaining_time(seconds, progress.raw_done.value, progress.raw_total.value));
}

weights::PackResult write(const fs::path& target, const Checkpoint& checkpoint,
                          weights::PackOptions options, bool quiet) {
  Progress progress(quiet);
  double chunks_took = 0;  // seconds
  options.progress = [&](const weights::PackProgress& now) {
    const bool hashing = now.hashed_done > Bytes{};
    if (!hashing) chunks_took = progress.seconds();
    progress.update(
        [&] { return progress_line(now, progress.seconds() - (hashing ? chunks_took : 0)); });
  };
  return weights::write_trunk(checkpoint.input, target, options);
}

void verify(const fs::path& target, const Checkpoint& checkpoint, bool quiet) {
  end_on_interrupt("interrupted; the trunk file is written but not verified");
  Progress progress(quiet);
  auto show = [&](Bytes done, Bytes total) {
    progress.update([&] {
      return fmt::format("verifying: {} of {}, {} left", format_bytes(done), format_bytes(total),
                         remaining_time(progress.seconds(), done.value, total.value));
    });
  };
  weights::verify_trunk_content(target, checkpoint.input.directory, checkpoint.index,
                                checkpoint.tensors, show);
}

struct Outcome {
  bool written = false;
  bool verified = false;
  Bytes resumed;
  double seconds = 0;
};

struct Family {
  Bytes raw;
  Bytes stored;
};

double ratio(Bytes stored, Bytes raw) {
  return static_cast<double>(stored.value) / static_cast<double>(raw.value);
}

/// Raw and stored bytes by the kind of tensor, over all layers.
std::map<std::string, Family> families(const weights::TrunkFile& trunk) {
  std::map<std::string, Family> all;
  for (const weights::ChunkRecord& chunk : trunk.chunks()) {
    const auto segments = trunk.segments(chunk);
    const auto role = static_cast<model::Role>(trunk.tensors()[segments.front().tensor].role);
    Family& family = all[segments.size() > 1 ? "small tensors" : std::string(role_name(role))];
    family.raw += Bytes{chunk.raw_bytes};
    family.stored += Bytes{chunk.stored_bytes};
  }
  return all;
}

OrderedJson families_json(const weights::TrunkFile& trunk) {
  OrderedJson object = OrderedJson::object();
  for (const auto& [name, family] : families(trunk)) {
    object[name] = {{"raw_bytes", family.raw.value}, {"stored_bytes", family.stored.value}};
  }
  return object;
}

void log_families(const weights::TrunkFile& trunk) {
  for (const auto& [name, family] : families(trunk)) {
    log::debug(fmt::format("{:<24} {:>10} -> {:>10}  {:.3f}", name, format_bytes(family.raw),
                           format_bytes(family.stored), ratio(family.stored, family.raw)));
  }
}

bool is_raw(const weights::TrunkFile& trunk) {
  return std::all_of(trunk.chunks().begin(), trunk.chunks().end(), [](const auto& chunk) {
    return static_cast<weights::Codec>(chunk.codec) == weights::Codec::kRaw;
  });
}

std::string report(const fs::path& target, const Outcome& outcome, bool json) {
  const weights::TrunkFile trunk = weights::TrunkFile::open(target);
  if (json) {
    const OrderedJson object = {{"trunk", target.string()},
                                {"written", outcome.written},
                                {"verified", outcome.verified},
                                {"codec", is_raw(trunk) ? "raw" : "lossless"},
                                {"chunks", trunk.chunks().size()},
                                {"raw_bytes", trunk.raw_bytes().value},
                                {"stored_bytes", trunk.stored_bytes().value},
                                {"file_bytes", trunk.file_bytes().value},
                                {"resumed_bytes", outcome.resumed.value},
                                {"families", families_json(trunk)},
                                {"expert_checksums", trunk.header().expert_checksum_count},
                                {"seconds", outcome.seconds}};
    return dump_json(object) + "\n";
  }
  if (!is_raw(trunk)) log_families(trunk);
  return fmt::format("{}: {} in {} chunks, {:.3f} of the checkpoint's, {} in {:.1f} s{}\n",
                     target.string(), format_bytes(trunk.file_bytes()), trunk.chunks().size(),
                     ratio(trunk.stored_bytes(), trunk.raw_bytes()),
                     outcome.written ? "written" : "already complete", outcome.seconds,
                     outcome.verified ? ", equal to the checkpoint byte for byte" : "");
}

void run_pack(const PackCommand& command) {
  apply_verbosity(command.out);
  const fs::path target = command.output.empty() ? command.model / "trunk.k3" : command.output;
  const Progress clock(true);
  Checkpoint checkpoint;
  open_checkpoint(command.model, checkpoint);
  weights::PackOptions options;
  options.expert_checksums = command.expert_checksums;
  options.codec =
      command.codec == "raw" ? weights::CodecChoice::kRaw : weights::CodecChoice::kLossless;

  end_on_interrupt("interrupted; the same command continues where this one stopped");
  Outcome outcome;
  if (!already_packed(command, target, checkpoint, options)) {
    outcome.resumed = write(target, checkpoint, options, command.out.quiet).resumed;
    outcome.written = true;
  }
  if (outcome.resumed.value > 0) {
    log::info(fmt::format("continued an interrupted run: {} were written already",
                          format_bytes(outcome.resumed)));
  }
  if (command.verify) verify(target, checkpoint, command.out.quiet);
  outcome.verified = command.verify;
  outcome.seconds = clock.seconds();
  print(report(target, outcome, command.out.json));
}

}  // namespace

void add_pack(CLI::App& app) {
  CLI::App* pack = app.add_subcommand("pack", "Write the trunk file that the other commands read");
  auto command = std::make_shared<PackCommand>();
  add_model(*pack, command->model);
  pack->add_option("-o,--output", command->output, "Trunk file to write [MODEL/trunk.k3]")
      ->check(a_name())
      ->type_name("FILE")
      ->group("Result");
  pack->add_option("--codec", command->codec, "How matrices are stored: lossless (auto) or raw")
      ->check(CLI::IsMember({"auto", "raw", "lossless"}))
      ->type_name("NAME")
      ->capture_default_str()
      ->group("Result");
  pack->add_flag("--expert-checksums", command->expert_checksums,
                 "Also record a checksum of every expert (reads all shards) [off]")
      ->group("Result");
  pack->add_flag("--verify", command->verify,
                 "Read it back and compare with the checkpoint byte for byte [off]")
      ->group("Result");
  pack->add_flag("--force", command->force, "Replace a trunk file that is there [off]")
      ->group("Result");
  add_verbosity(*pack, command->out);
  add_json(*pack, command->out);
  pack->footer(
      "An interrupted run is continued by the same command. The trunk of the released model takes\n"
      "111 GB raw, about 0.70 of it packed; holes of a sparse checkpoint stay holes.\n"
      "\n"
      "Examples:\n"
      "  k3 pack ~/Kimi-K3\n"
      "  k3 pack ~/Kimi-K3 -o /mnt/nvme/k3.trunk --verify");
  pack->callback([command] { run_pack(*command); });
}

}  // namespace k3::commands
