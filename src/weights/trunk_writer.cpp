#include "weights/trunk_writer.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <numeric>
#include <set>
#include <unordered_map>

#include "base/all_zero.h"
#include "base/hash.h"
#include "base/log.h"
#include "io/block_buffer.h"
#include "io/partial_file.h"
#include "k3/error.h"
#include "weights/embedding_hashes.h"
#include "weights/ordered_work.h"
#include "weights/trunk_contents.h"
#include "weights/trunk_journal.h"
#include "weights/trunk_source.h"

namespace k3::weights {
namespace {

// Runs of zeros shorter than this are written: a hole is only worth a block of the file system.
constexpr uint64_t kBlock = kTrunkAlignment;
constexpr uint64_t kWindow = 64u << 20;

/// Checksums of chunks that are zero throughout, by size: there are few sizes, and hashing zeros
/// would be most of the work on a sparse checkpoint.
class ZeroChecksums {
 public:
  uint64_t of(std::span<const std::byte> zeros) {
    const auto [entry, fresh] = known_.try_emplace(zeros.size(), 0);
    if (fresh) entry->second = checksum(zeros);
    return entry->second;
  }

 private:
  std::unordered_map<uint64_t, uint64_t> known_;
};

/// Bytes of the trunk in the shards that are not holes, about: what the trunk file will occupy.
uint64_t occupied_bytes(const PackInput& input, TrunkSource& source) {
  std::set<std::pair<uint32_t, uint64_t>> seen;  // W_UK and W_UV are one tensor
  uint64_t sum = 0;
  for (size_t i = 0; i < input.tensors->size(); ++i) {
    const TensorLocation& location = input.index->tensor(i);
    if (!seen.insert({location.shard, location.offset}).second) continue;
    sum += data_bytes(source.shard(location.shard), location.offset, location.bytes);
  }
  return sum;
}

uint64_t allocated_bytes(int fd) {
  struct stat status {};
  return ::fstat(fd, &status) == 0 ? static_cast<uint64_t>(status.st_blocks) * 512 : 0;
}

/// A partial file that somebody else made is never continued, nor emptied.
io::PartialFile open_partial(const std::filesystem::path& target) {
  const std::filesystem::path partial = io::PartialFile::partial_of(target);
  if (io::holds_other(partial, TrunkJournal::kMagic) && io::holds_other(partial, kTrunkMagic)) {
    throw Error(ErrorKind::kUsage,
                fmt::format("{} exists and was not left by `k3 pack`: not replaced; move it away, "
                            "or name another place with -o",
                            partial.string()));
  }
  return {target, io::PartialFile::Mode::kContinue};
}

/// One run of write_trunk.
class TrunkWriter {
 public:
  TrunkWriter(const PackInput& input, const std::filesystem::path& target,
              const PackOptions& options)
      : input_(input),
        options_(options),
        target_(target),
        manifest_(describe_trunk(input, options)),
        file_(open_partial(target)),
        sources_{TrunkSource(input.directory, *input.index, *input.tensors),
                 TrunkSource(input.directory, *input.index, *input.tensors)} {
    uint64_t largest = 0;
    for (const ChunkRecord& chunk : manifest_.chunks) {
      largest = std::max(largest, chunk.stored_bytes);
      end_bound_ = align_up(end_bound_ + chunk.stored_bytes, kTrunkAlignment);
      progress_.raw_total += Bytes{chunk.raw_bytes};
    }
    progress_.hashed_total =
        Bytes{manifest_.header.embedding_rows * embedding_row_bytes(manifest_.header) +
              manifest_.expert_checksums.size() * expert_bytes()};
    for (auto& buffer : buffers_) buffer.resize(align_up(largest, kTrunkAlignment));
    if (options.codec != CodecChoice::kRaw) {
      for (auto& buffer : raw_buffers_) buffer.resize(largest);
    }
  }

  PackResult run() {
    check_space();
    try {
      return pack();
    } catch (...) {
      if (!worth_keeping_) file_.truncate(0);  // and an empty one does not stay
      throw;
    }
  }

 private:
  PackResult pack() {
    TrunkJournal journal(file_, journal_shape());
    worth_keeping_ = !journal.chunks().empty();
    resume(journal);
    write_chunks(journal);
    record_embedding();
    if (options_.expert_checksums) record_experts(journal);
    return finish();
  }

  TrunkJournal::Shape journal_shape() const {
    const uint64_t end = end_bound_ + manifest_offsets(manifest_.header).end;
    return {align_up(end, kTrunkAlignment), plan_checksum(manifest_, options_.codec),
            manifest_.chunks.size(), manifest_.expert_checksums.size()};
  }

  /// Before the first byte.
  void check_space() {
    const TrunkJournal::Shape shape = journal_shape();
    const Bytes raw{occupied_bytes(input_, sources_[0])};
    const Bytes records{manifest_offsets(manifest_.header).end +
                        TrunkJournal::bytes_needed(shape.chunk_count, shape.expert_count)};
    const Bytes least = least_space(raw, options_.codec) + records;
    // What a partial file holds is either continued or given back.
    const Bytes free = io::free_space(target_) + Bytes{allocated_bytes(file_.fd())};
    if (raw + records <= free) return;
    if (least <= free) {
      log::warn(fmt::format(
          "writing {}: the trunk needs about {}, {} at most; {} are free there. "
          "If the disk gets full, make room and run the same command: it "
          "continues",
          target_.string(), format_bytes(least), format_bytes(raw + records), format_bytes(free)));
      return;
    }
    throw Error(ErrorKind::kUsage,
                fmt::format("writing {}: the trunk needs {}, {} are free there; make room or name "
                            "another place with -o",
                            target_.string(), format_bytes(least), format_bytes(free)));
  }

  /// Checks the chunks that the journal names, with the zeros behind them, and goes on after the
  /// last one that is right. Whatever else lies in the file becomes zeros, but for its magic.
  void resume(TrunkJournal& journal) {
    const std::vector<ChunkRecord>& found = journal.chunks();
    const io::DirectFile partial = io::DirectFile::open_buffered(file_.partial_path());
    std::array<bool, kWorkSlots> right{};
    bool ended = false;
    auto make = [&](const WorkItem& item) {
      const ChunkRecord& chunk = found[item.index];
      const auto block =
          std::span(buffers_[item.slot]).first(align_up(chunk.stored_bytes, kTrunkAlignment));
      const bool data = read_keeping_holes(partial, file_.partial_path(), chunk.offset, block,
                                           first_tensor(manifest_.chunks[item.index]).name);
      const auto bytes = block.first(chunk.stored_bytes), rest = block.subspan(bytes.size());
      right[item.slot] = chunk.checksum == hash(item, data, bytes) && (!data || all_zero(rest));
    };
    auto take = [&](const WorkItem& item) {
      ended = ended || !right[item.slot];
      if (!ended) note_done(item.index, found[item.index], true);
    };
    run_in_order(0, found.size(), make, take);
    experts_done_ = journal.expert_checksums().size();
    std::copy(journal.expert_checksums().begin(), journal.expert_checksums().end(),
              manifest_.expert_checksums.begin());
    journal.keep(progress_.chunks_done, end_);
    std::array<std::byte, kTrunkAlignment> head{};
    std::ranges::copy(std::as_bytes(std::span(TrunkJournal::kMagic)), head.begin());
    file_.write(0, head);
  }

  void write_chunks(TrunkJournal& journal) {
    auto make = [&](const WorkItem& item) {
      ChunkRecord& chunk = manifest_.chunks[item.index];
      const bool data = fill(item, chunk);
      const auto bytes = std::span(buffers_[item.slot]).first(chunk.stored_bytes);
      chunk.checksum = hash(item, data, bytes);
      has_data_[item.slot] = data;
    };
    auto take = [&](const WorkItem& item) {
      ChunkRecord& chunk = manifest_.chunks[item.index];
      chunk.offset = end_;
      write_chunk(chunk, item.slot);
      journal.add_chunk(item.index, chunk);
      note_done(item.index, chunk, false);
      settle();
    };
    run_in_order(progress_.chunks_done, manifest_.chunks.size(), make, take);
  }

  /// The chunk as it will be stored, in the slot's buffer. Returns false when it is one hole.
  bool fill(const WorkItem& item, ChunkRecord& chunk) {
    const auto segments = segments_of(chunk);
    const bool pack = options_.codec != CodecChoice::kRaw && is_one_matrix(segments);
    const auto bytes =
        (pack ? std::span(raw_buffers_[item.thread]) : std::span(buffers_[item.slot]))
            .first(chunk.stored_bytes);
    const bool data = sources_[item.thread].read_chunk(segments, bytes);
    if (data) sources_[item.thread].check_finite(segments, bytes);
    if (!pack) return data;
    const Packed packed =
        data ? pack_weights(bytes, buffers_[item.slot]) : Packed{Codec::kRaw, chunk.stored_bytes};
    chunk.codec = static_cast<uint8_t>(packed.codec);
    chunk.stored_bytes = packed.bytes;
    if (packed.codec == Codec::kRaw)
      std::copy(bytes.begin(), bytes.end(), buffers_[item.slot].begin());
    return data;
  }

  bool is_one_matrix(std::span<const SegmentRecord> segments) const {
    const TensorRecord& tensor = manifest_.tensors[segments.front().tensor];
    return segments.size() == 1 && (*input_.tensors)[segments.front().tensor].group == 0 &&
           can_be_packed(tensor.dtype, tensor.cols);
  }

  /// Zero blocks stay holes: nothing was written there.
  void write_chunk(const ChunkRecord& chunk, size_t slot) {
    if (!has_data_[slot]) return;
    const auto bytes = std::span(buffers_[slot]).first(align_up(chunk.stored_bytes, kBlock));
    std::ranges::fill(bytes.subspan(chunk.stored_bytes), std::byte{0});
    uint64_t run = 0;  // start of the blocks that are still to be written
    for (uint64_t at = 0; at < bytes.size(); at += kBlock) {
      if (!all_zero(bytes.subspan(at, kBlock))) continue;
      if (run < at) file_.write_blocks(chunk.offset + run, bytes.subspan(run, at - run));
      run = at + kBlock;
    }
    if (run < bytes.size()) file_.write_blocks(chunk.offset + run, bytes.subspan(run));
  }

  /// Where writes go through the page cache: keeps the drive writing and the cache free. One window
  /// is on its way to the drive while the next is filled, and the one before is dropped.
  void settle() {
    if (end_ < settled_ + kWindow) return;
    file_.start_write_back(settled_, end_ - settled_);
    file_.finish_write_back(window_, settled_ - window_);
    window_ = settled_;
    settled_ = end_;
  }

  void note_done(uint64_t number, const ChunkRecord& chunk, bool resumed) {
    worth_keeping_ = true;
    manifest_.chunks[number] = chunk;
    end_ = align_up(chunk.offset + chunk.stored_bytes, kTrunkAlignment);
    ++progress_.chunks_done;
    progress_.raw_done += Bytes{chunk.raw_bytes};
    progress_.stored_done += Bytes{chunk.stored_bytes};
    if (resumed) progress_.resumed += Bytes{chunk.raw_bytes};
    report();
  }

  /// Not in the journal: the table is a fiftieth of the trunk.
  void record_embedding() {
    const ManifestHeader& header = manifest_.header;
    const auto read = [&](const WorkItem& item, uint64_t offset, std::span<std::byte> out) {
      sources_[item.thread].read(header.embedding_shard, offset, out, "rows of the embedding");
    };
    const auto take = [&](uint64_t row, std::span<const uint64_t> sums) {
      std::copy(sums.begin(), sums.end(),
                manifest_.embedding_checksums.begin() + static_cast<std::ptrdiff_t>(row));
      progress_.hashed_done = Bytes{(row + sums.size()) * embedding_row_bytes(header)};
      report();
    };
    hash_embedding(header, read, take);
  }

  void record_experts(TrunkJournal& journal) {
    progress_.hashed_done += Bytes{experts_done_ * expert_bytes()};
    auto make = [&](const WorkItem& item) {
      manifest_.expert_checksums[item.index] = expert_checksum(item);
    };
    auto take = [&](const WorkItem& item) {
      journal.add_expert_checksum(item.index, manifest_.expert_checksums[item.index]);
      progress_.hashed_done += Bytes{expert_bytes()};
      report();
    };
    run_in_order(experts_done_, manifest_.experts.size(), make, take);
  }

  uint64_t expert_bytes() const {
    const auto& parts = manifest_.header.expert_part_bytes;
    return std::accumulate(std::begin(parts), std::end(parts), uint64_t{0});
  }

  std::string describe_expert(uint64_t number) const {
    return fmt::format("layer {}, expert {}",
                       input_.first_expert_layer + number / input_.experts_per_layer,
                       number % input_.experts_per_layer);
  }

  uint64_t expert_checksum(const WorkItem& item) {
    const ExpertRecord& expert = manifest_.experts[item.index];
    Checksum sum;
    for (size_t part = 0; part < kExpertParts; ++part) {
      const uint64_t size = manifest_.header.expert_part_bytes[part];
      for (uint64_t at = 0; at < size;) {
        const auto piece = std::span(buffers_[item.slot])
                               .first(std::min<uint64_t>(size - at, buffers_[item.slot].size()));
        sources_[item.thread].read(expert.shard, expert.offset[part] + at, piece,
                                   describe_expert(item.index));
        sum.update(piece);
        at += piece.size();
      }
    }
    return sum.digest();
  }

  /// The data is on the drive before the file header makes it a trunk file, and that before its
  /// name.
  PackResult finish() {
    const std::vector<std::byte> manifest = serialize(manifest_);
    file_.write(end_, manifest);
    file_.sync();
    ::posix_fadvise(file_.fd(), 0, 0, POSIX_FADV_DONTNEED);
    const FileHeader header = make_file_header(end_, manifest);
    file_.write(0, std::as_bytes(std::span(&header, 1)));
    file_.truncate(end_ + manifest.size());
    file_.commit();
    return {progress_.resumed};
  }

  uint64_t hash(const WorkItem& item, bool data, std::span<const std::byte> bytes) {
    return data ? checksum(bytes) : zero_checksums_[item.thread].of(bytes);
  }

  const TrunkTensor& first_tensor(const ChunkRecord& chunk) const {
    return (*input_.tensors)[segments_of(chunk).front().tensor];
  }

  std::span<const SegmentRecord> segments_of(const ChunkRecord& chunk) const {
    return std::span(manifest_.segments).subspan(chunk.segment_begin, chunk.segment_count);
  }

  void report() const {
    if (options_.progress) options_.progress(progress_);
  }

  const PackInput& input_;
  const PackOptions& options_;
  const std::filesystem::path& target_;
  Manifest manifest_;
  io::PartialFile file_;
  bool worth_keeping_ = file_.size() > 0;  // it holds a chunk, as far as is known
  std::array<TrunkSource, kWorkThreads> sources_;
  std::array<ZeroChecksums, kWorkThreads> zero_checksums_;
  std::array<io::BlockBuffer, kWorkSlots> buffers_;
  std::array<std::vector<std::byte>, kWorkThreads> raw_buffers_;  // what is packed into them
  std::array<bool, kWorkSlots> has_data_{};
  PackProgress progress_{};
  uint64_t experts_done_ = 0;
  uint64_t end_ = kTrunkAlignment;        // where the next chunk goes
  uint64_t end_bound_ = kTrunkAlignment;  // end of the last chunk if all are stored raw
  uint64_t settled_ = 0;                  // what lies before is on its way to the drive
  uint64_t window_ = 0;                   // what lies before has left the page cache
};

}  // namespace

Bytes least_space(Bytes raw, CodecChoice codec) {
  if (codec == CodecChoice::kRaw) return raw;
  return Bytes{static_cast<uint64_t>(static_cast<double>(raw.value) * kLosslessShare)};
}

PackResult write_trunk(const PackInput& input, const std::filesystem::path& target,
                       const PackOptions& options) {
  return TrunkWriter(input, target, options).run();
}

}  // namespace k3::weights
