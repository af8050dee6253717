#include "engine/snapshot.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/check.h"
#include "base/hash.h"
#include "io/direct_file.h"
#include "io/partial_file.h"
#include "k3/error.h"

namespace k3::engine {
namespace {

constexpr size_t kPieceBytes = size_t{4} << 20;

template <typename T>
std::span<const std::byte> bytes_of(const T& value) {
  return std::as_bytes(std::span(&value, 1));
}

uint64_t header_checksum(const SnapshotHeader& header) {
  return checksum(bytes_of(header).first(offsetof(SnapshotHeader, header_checksum)));
}

/// The floats of a sequence in the order of the file.
std::vector<std::span<float>> sections(const model::Config& config, const Sequence& sequence,
                                       uint64_t position, bool with_logits) {
  const model::SequenceState& state = sequence.state;
  std::vector<std::span<float>> out = {state.memory().kda, state.memory().conv};
  for (uint32_t layer = 0; layer < config.mla_layers(); ++layer) {
    out.emplace_back(state.cache_row(layer, 0), position * config.cache_width());
  }
  if (with_logits) out.push_back(sequence.logits);
  return out;
}

uint64_t state_bytes(const model::Config& c, uint64_t position) {
  using State = model::SequenceState;
  return 4 * (State::kda_floats(c) + State::conv_floats(c) + State::cache_floats(c, position));
}

uint64_t file_bytes(const SnapshotHeader& header) {
  const Bytes sum = Bytes{sizeof header} + Bytes{sizeof(uint32_t)} * header.id_count +
                    Bytes{header.state_bytes} + Bytes{header.logits_bytes} +
                    Bytes{sizeof(uint64_t)};
  return sum.value;
}

SnapshotHeader make_header(const ModelIdentity& model, const model::Config& config,
                           const Sequence& sequence, std::span<const uint32_t> ids) {
  SnapshotHeader header{};
  std::copy_n(kSnapshotMagic, sizeof kSnapshotMagic, header.magic);
  header.version = kSnapshotVersion;
  header.header_bytes = sizeof header;
  header.model = model;
  header.position = sequence.state.position();
  header.id_count = ids.size();
  header.state_bytes = state_bytes(config, header.position);
  header.logits_bytes = sequence.has_logits ? sequence.logits.size_bytes() : 0;
  header.ids_checksum = checksum(std::as_bytes(ids));
  header.header_checksum = header_checksum(header);
  return header;
}

/// Appends and sums up.
class Writer {
 public:
  explicit Writer(io::PartialFile& file) : file_(file) {}
  void put(std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
      const auto piece = bytes.first(std::min(kPieceBytes, bytes.size()));
      sum_.update(piece);
      file_.write(at_, piece);
      at_ += piece.size();
      bytes = bytes.subspan(piece.size());
    }
  }
  uint64_t digest() const { return sum_.digest(); }

 private:
  io::PartialFile& file_;
  Checksum sum_;
  uint64_t at_ = 0;
};

void check_space(const std::filesystem::path& file, uint64_t needed) {
  const Bytes free = io::free_space(file);
  if (free.value >= needed) return;
  throw Error(ErrorKind::kInternal, fmt::format("{} are needed and {} are free there; make room",
                                                format_bytes(Bytes{needed}), format_bytes(free)));
}

/// A file that is no snapshot is never replaced.
void refuse_foreign(const std::filesystem::path& path) {
  if (!io::holds_other(path, kSnapshotMagic)) return;
  throw Error(ErrorKind::kUsage,
              fmt::format("{} exists and is no saved sequence: not replaced; name another place "
                          "with --save",
                          path.string()));
}

io::PartialFile open_partial(const std::filesystem::path& file) {
  refuse_foreign(file);
  refuse_foreign(io::PartialFile::partial_of(file));
  return {file, io::PartialFile::Mode::kFresh, "--save"};
}

[[noreturn]] void not_saved(const std::filesystem::path& file, const Error& error) {
  throw Error(error.kind(), fmt::format("saving the sequence to {} failed: {} (what was there "
                                        "before is untouched)",
                                        file.string(), error.what()));
}

}  // namespace

ModelIdentity model_identity(const weights::TrunkFile& trunk) {
  Checksum sum;
  for (const weights::ShardRecord& shard : trunk.shards()) {
    const std::string_view name = trunk.name(shard);
    const uint64_t numbers[] = {name.size(), shard.bytes, shard.header_hash, shard.sample_hash};
    sum.update(std::as_bytes(std::span(numbers)));
    sum.update(std::as_bytes(std::span(name)));
  }
  return {trunk.header().config_fingerprint, sum.digest()};
}

void write_snapshot(const std::filesystem::path& file, const ModelIdentity& model,
                    const model::Config& config, const Sequence& sequence,
                    std::span<const uint32_t> ids) {
  K3_CHECK(sequence.whole);
  K3_CHECK(ids.size() >= sequence.state.position());
  const SnapshotHeader header = make_header(model, config, sequence, ids);
  io::PartialFile partial = open_partial(file);
  try {
    check_space(file, file_bytes(header));
    Writer writer(partial);
    writer.put(bytes_of(header));
    writer.put(std::as_bytes(ids));
    for (std::span<const float> section :
         sections(config, sequence, header.position, sequence.has_logits)) {
      writer.put(std::as_bytes(section));
    }
    const uint64_t digest = writer.digest();
    writer.put(bytes_of(digest));
    partial.commit();
  } catch (const Error& error) {
    if (partial.renamed()) throw;  // complete under its name; only syncing the directory failed
    partial.discard();
    not_saved(file, error);
  }
}

void check_snapshot_place(const std::filesystem::path& file) {
  open_partial(file).discard();
}

SnapshotReader::SnapshotReader(const std::filesystem::path& file) : path_(file) {
  std::error_code error;
  const bool regular = std::filesystem::is_regular_file(file, error);
  if (error) refuse(error.message());
  if (!regular) refuse("it is no regular file");  // opening a pipe would wait for its writer
  fd_.reset(::open(file.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd_.valid()) refuse(std::strerror(errno));
  read_header();
  ids_.resize(header_.id_count);
  read(sizeof header_, std::as_writable_bytes(std::span(ids_)), "token ids");
  if (checksum(std::as_bytes(std::span(ids_))) != header_.ids_checksum) {
    refuse("its ids do not match their checksum: the file is damaged");
  }
}

void SnapshotReader::read_header() {
  struct stat status {};
  if (::fstat(fd_.get(), &status) != 0) refuse(std::strerror(errno));
  const auto size = static_cast<uint64_t>(status.st_size);
  if (!S_ISREG(status.st_mode) || size < sizeof header_) refuse("it is not a snapshot");
  read(0, std::as_writable_bytes(std::span(&header_, 1)), "its header");
  if (!std::equal(header_.magic, header_.magic + sizeof header_.magic, kSnapshotMagic)) {
    refuse("it is not a snapshot");
  }
  if (header_.version != kSnapshotVersion) {
    refuse(fmt::format("it has version {}, this program reads version {}", header_.version,
                       kSnapshotVersion));
  }
  if (header_checksum(header_) != header_.header_checksum ||
      header_.header_bytes != sizeof header_ || header_.position > header_.id_count) {
    refuse("its header does not match its checksum: the file is damaged");
  }
  // A sum of lengths that are sound each cannot overflow.
  const bool sound =
      std::max({header_.id_count, header_.state_bytes, header_.logits_bytes}) <= size;
  if (!sound || file_bytes(header_) != size) {
    refuse(
        fmt::format("it has {} bytes, not those that its header counts: the file is cut or "
                    "damaged",
                    size));
  }
}

void SnapshotReader::require_model(const ModelIdentity& model) const {
  if (header_.model == model) return;
  refuse(header_.model.config == model.config
             ? "it was saved under a model of the same shape with other weights"
             : "it was saved under another model");
}

bool SnapshotReader::begins(std::span<const uint32_t> prompt) const {
  const auto taken_in = std::span(ids_).first(position());
  return taken_in.size() <= prompt.size() &&
         std::ranges::equal(taken_in, prompt.first(taken_in.size()));
}

void SnapshotReader::restore(const model::Config& config, Sequence& sequence) const {
  const uint64_t logits_bytes = has_logits() ? sequence.logits.size_bytes() : 0;
  if (header_.state_bytes != state_bytes(config, position()) ||
      header_.logits_bytes != logits_bytes) {
    refuse("its sizes are not those of this model");
  }
  K3_CHECK(position() <= sequence.state.capacity());
  try {
    read_sections(sections(config, sequence, position(), has_logits()));
  } catch (...) {
    sequence.state.reset();
    throw;
  }
  sequence.state.set_position(position());
  sequence.has_logits = has_logits();
}

void SnapshotReader::read_sections(const std::vector<std::span<float>>& sections) const {
  Checksum sum;
  sum.update(bytes_of(header_));
  sum.update(std::as_bytes(std::span(ids_)));
  uint64_t at = sizeof header_ + ids_.size() * sizeof(uint32_t);
  for (std::span<float> section : sections) {
    std::span<std::byte> bytes = std::as_writable_bytes(section);
    while (!bytes.empty()) {
      const auto piece = bytes.first(std::min(kPieceBytes, bytes.size()));
      read(at, piece, "states of the sequence");
      sum.update(piece);
      at += piece.size();
      bytes = bytes.subspan(piece.size());
    }
  }
  uint64_t digest = 0;
  read(at, std::as_writable_bytes(std::span(&digest, 1)), "its checksum");
  if (digest != sum.digest()) {
    refuse("its contents do not match their checksum: the file is damaged");
  }
}

void SnapshotReader::read(uint64_t offset, std::span<std::byte> out, std::string_view what) const {
  io::read_exactly(fd_.get(), offset, out, path_, what);
}

void SnapshotReader::refuse(const std::string& found) const {
  throw Error(ErrorKind::kCheckpoint,
              fmt::format("loading the sequence {}: {}; take another snapshot, or start from the "
                          "prompt without it",
                          path_.string(), found));
}

}  // namespace k3::engine
