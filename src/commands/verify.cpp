// k3 verify: is every file of a checkpoint whole, and do the files fit each other?
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/one_line.h"
#include "commands/commands.h"
#include "commands/interrupts.h"
#include "commands/options.h"
#include "commands/progress.h"
#include "commands/streams.h"
#include "engine/opened_model.h"
#include "io/direct_file.h"
#include "k3/error.h"
#include "model/config.h"
#include "model/trunk_order.h"
#include "text/tokenizer.h"
#include "weights/checkpoint_index.h"
#include "weights/chunk_check.h"
#include "weights/embedding_hashes.h"
#include "weights/file_hashes.h"
#include "weights/model_directory.h"
#include "weights/trunk_file.h"

namespace k3::commands {
namespace {

namespace fs = std::filesystem;

struct VerifyOptions {
  fs::path model;
  fs::path trunk;  // empty: MODEL/trunk.k3, if it is there
  bool hashes = false;
  Output output;
};

struct Findings {
  std::vector<std::string> problems;
  std::vector<std::string> shards;  // their names
  uint64_t tensors = 0;
  Bytes bytes;        // of all shards
  std::string trunk;  // the trunk file that was checked, if any
  uint64_t chunks = 0;
  uint64_t hashed = 0;  // files whose SHA-256 was compared
};

/// Runs one check; that the files are not usable, or not readable, is a finding here, not the end.
template <typename Check>
void note(Findings& findings, Check&& check) {
  try {
    check();
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kCheckpoint && error.kind() != ErrorKind::kRead) throw;
    findings.problems.push_back(error.what());
  }
}

/// A line such as "hashes: 3.2 GB of 1.56 TB, 2.10 GB/s, 12 min left".
auto progress_of(const char* what, const VerifyOptions& options) {
  return
      [what, progress = std::make_shared<Progress>(options.output.quiet)](Bytes done, Bytes total) {
        progress->update([&] {
          return fmt::format("{}: {} of {}, {:.2f} GB/s, {} left", what, format_bytes(done),
                             format_bytes(total),
                             static_cast<double>(done.value) / 1e9 / progress->seconds(),
                             remaining_time(progress->seconds(), done.value, total.value));
        });
      };
}

std::optional<model::Config> check_config(const fs::path& directory, Findings& findings) {
  std::optional<model::Config> config;
  note(findings, [&] { config = model::load_config(directory); });
  return config;
}

/// Without a usable config.json the shards are still checked against the index.
void check_shards(const fs::path& directory, const std::optional<model::Config>& config,
                  Findings& findings) {
  weights::CheckpointRequest request;
  if (config) {
    request = model::checkpoint_request(*config);
  } else {
    request.parse_expert = [](std::string_view) { return std::nullopt; };
  }
  const size_t before = findings.problems.size();
  const weights::CheckpointIndex index =
      weights::CheckpointIndex::inspect(directory, request, findings.problems);
  for (const weights::ShardInfo& shard : index.shards()) {
    findings.shards.push_back(shard.name);
    findings.tensors += shard.tensor_count;
    findings.bytes += Bytes{shard.bytes};
  }
  if (config && findings.problems.size() == before) model::check_shapes(*config, index);
}

/// The file itself, every chunk against its checksum, and whether it was made from these shards.
void check_trunk(const VerifyOptions& options, const std::optional<model::Config>& config,
                 Findings& findings) {
  const weights::TrunkFile trunk = weights::TrunkFile::open(findings.trunk);
  findings.chunks = trunk.chunks().size();
  const std::vector<std::string> damaged =
      weights::damaged_chunks(trunk, progress_of("trunk file", options));
  const bool checkpoint_is_whole = findings.problems.empty();
  findings.problems.insert(findings.problems.end(), damaged.begin(), damaged.end());
  if (!checkpoint_is_whole) return;
  trunk.check_shards(options.model, true);
  if (trunk.header().config_fingerprint != config->fingerprint()) {
    throw Error(ErrorKind::kCheckpoint,
                fmt::format("{} was made with another config.json than that of {}; make it again "
                            "with `k3 pack --force`",
                            findings.trunk, options.model.string()));
  }
  engine::require_fitting_trunk(trunk, *config);
  const std::string damage =
      weights::embedding_damage(trunk, options.model, progress_of("embedding", options));
  if (!damage.empty()) findings.problems.push_back(damage);
}

void check_hashes(const VerifyOptions& options, Findings& findings) {
  const std::vector<weights::KnownFile> files = weights::known_files(options.model);
  const auto damaged = weights::damaged_files(options.model, files, progress_of("hashes", options));
  findings.hashed = files.size();
  findings.problems.insert(findings.problems.end(), damaged.begin(), damaged.end());
  for (const std::string& shard : findings.shards) {
    const auto is_shard = [&](const weights::KnownFile& file) { return file.name == shard; };
    if (std::any_of(files.begin(), files.end(), is_shard)) continue;
    findings.problems.push_back(fmt::format(
        "{}: the list of hashes does not name it, so its bytes are unchecked; add its line",
        (options.model / shard).string()));
  }
}

fs::path trunk_to_check(const VerifyOptions& options) {
  if (!options.trunk.empty()) return options.trunk;
  const fs::path usual = options.model / "trunk.k3";
  return io::is_there(usual) ? usual : fs::path();
}

Findings verify(const VerifyOptions& options) {
  const fs::path& directory = options.model;
  weights::require_model_directory(directory);
  Findings findings;
  const std::optional<model::Config> config = check_config(directory, findings);
  note(findings, [&] { check_shards(directory, config, findings); });
  // A checkpoint without tokenizer files is whole: it runs on ids.
  note(findings, [&] { text::Tokenizer::load(directory); });
  if (options.hashes) note(findings, [&] { check_hashes(options, findings); });
  findings.trunk = trunk_to_check(options).string();
  if (!findings.trunk.empty()) note(findings, [&] { check_trunk(options, config, findings); });
  return findings;
}

std::string as_json(const Findings& findings) {
  const OrderedJson object = {
      {"ok", findings.problems.empty()},
      {"problems", findings.problems},
      {"shards", findings.shards.size()},
      {"tensors", findings.tensors},
      {"bytes", findings.bytes.value},
      {"trunk", findings.trunk.empty() ? OrderedJson() : OrderedJson(findings.trunk)},
      {"chunks", findings.chunks},
      {"hashed", findings.hashed}};
  return dump_json(object) + "\n";
}

std::string as_text(const fs::path& directory, const Findings& findings) {
  if (findings.problems.empty()) {
    const std::string trunk =
        findings.trunk.empty()
            ? ""
            : fmt::format("; {}: {} chunks fit", one_line(findings.trunk), findings.chunks);
    const std::string hashes =
        findings.hashed == 0 ? "" : fmt::format("; SHA-256 of {} files fit", findings.hashed);
    return fmt::format("{}: ok, {} shards, {} tensors, {}: structure and sizes are right{}{}\n",
                       one_line(directory.string()), findings.shards.size(), findings.tensors,
                       format_bytes(findings.bytes), hashes, trunk);
  }
  std::string lines;
  for (const std::string& problem : findings.problems) lines += one_line(problem) + "\n";
  return lines;
}

void run_verify(const VerifyOptions& options) {
  apply_verbosity(options.output);
  end_on_interrupt("interrupted; nothing was changed");
  const Findings findings = verify(options);
  print(options.output.json ? as_json(findings) : as_text(options.model, findings));
  if (findings.problems.empty()) return;
  throw Error(ErrorKind::kCheckpoint,
              fmt::format("{}: {} problem(s), the first: {}", options.model.string(),
                          findings.problems.size(), findings.problems.front()));
}

}  // namespace

void add_verify(CLI::App& app) {
  auto options = std::make_shared<VerifyOptions>();
  CLI::App* command = app.add_subcommand("verify", "Check the files of a checkpoint");
  add_model(*command, options->model);
  command
      ->add_option("--trunk", options->trunk,
                   "Trunk file to check as well [MODEL/trunk.k3, if it is there]")
      ->check(a_name())
      ->type_name("FILE");
  command->add_flag("--hashes", options->hashes,
                    "Also SHA-256 of whole files: those of MODEL/SHA256SUMS, or the shards as "
                    "published [off]");
  add_json(*command, options->output);
  add_verbosity(*command, options->output);
  command->footer(
      "Checks structure and size of every file and that they fit each other and config.json. Of a\n"
      "trunk file every chunk is read and compared with its checksum, and so is every row of the\n"
      "embedding in its shard; other weights are read from the shards with --hashes only. Each\n"
      "problem is one line on stdout, and the exit code is 3.\n"
      "\n"
      "Examples:\n"
      "  k3 verify MODEL\n"
      "  k3 verify MODEL --hashes\n"
      "  k3 verify MODEL --trunk /mnt/nvme/k3.trunk --json");
  command->callback([options] { run_verify(*options); });
}

}  // namespace k3::commands
