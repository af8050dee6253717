#include "weights/expert_cache.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "base/hash.h"
#include "k3/error.h"

namespace k3::weights {
namespace {

struct Piece {
  uint64_t offset;
  uint64_t length;
  size_t first_part;
  size_t part_count;
};

/// Parts that follow each other in the shard are read as one piece. An expert of the released
/// layout is one piece; other orders give up to six.
size_t cut_pieces(const ExpertRecord& expert, const uint64_t (&bytes)[kExpertParts],
                  std::array<Piece, kExpertParts>& pieces) {
  size_t count = 0;
  for (size_t p = 0; p < kExpertParts; ++p) {
    Piece* last = count > 0 ? &pieces[count - 1] : nullptr;
    if (last != nullptr && expert.offset[p] == last->offset + last->length) {
      last->length += bytes[p];
      ++last->part_count;
    } else {
      pieces[count++] = {expert.offset[p], bytes[p], p, 1};
    }
  }
  return count;
}

uint64_t expert_buffer_bytes(const ExpertRecord& expert, const uint64_t (&bytes)[kExpertParts]) {
  std::array<Piece, kExpertParts> pieces;
  const size_t count = cut_pieces(expert, bytes, pieces);
  uint64_t total = 0;
  for (size_t i = 0; i < count; ++i) {
    total += io::ReadJob::buffer_bytes(pieces[i].offset, pieces[i].length);
  }
  return total;
}

}  // namespace

Bytes ExpertCache::slot_bytes(const TrunkFile& file) {
  const ManifestHeader& header = file.header();
  uint64_t largest = 0;
  for (size_t layer = 0; layer < header.expert_layer_count; ++layer) {
    for (uint32_t e = 0; e < header.experts_per_layer; ++e) {
      const auto& expert = file.expert(layer, e);
      largest = std::max(largest, expert_buffer_bytes(expert, header.expert_part_bytes));
    }
  }
  return Bytes{largest};
}

ExpertCache::ExpertCache(const TrunkFile& file, io::IoThread& io, std::span<std::byte> memory,
                         Options options)
    : file_(file),
      io_(io),
      options_(std::move(options)),
      per_layer_(file.header().experts_per_layer),
      slot_of_(static_cast<size_t>(file.header().expert_layer_count) * per_layer_, kNoSlot) {
  const uint64_t size = slot_bytes(file).value;
  if (size == 0) return;  // a model without experts
  slots_ = std::vector<Slot>(memory.size() / size);
  K3_CHECK(slots_.size() >= kSlotsMinimum);
  for (size_t i = 0; i < slots_.size(); ++i) slots_[i].memory = memory.data() + i * size;
  request_.reserve(per_layer_);
}

ExpertCache::~ExpertCache() {
  abandon();
}

void ExpertCache::abandon() {
  for (Slot& slot : slots_) {
    slot.wanted = false;
    if (slot.state != SlotState::kLoading) continue;
    for (size_t i = 0; i < slot.job_count; ++i) io_.settle(slot.jobs[i]);
    slot.state = SlotState::kEmpty;
    slot_of_[slot.key] = kNoSlot;
  }
}

void ExpertCache::request(uint32_t layer_rank, std::span<const uint16_t> experts) {
  if (taken_ < request_.size()) abandon();
  if (in_use_ != kNoSlot) slots_[in_use_].last_use = ++clock_;
  in_use_ = kNoSlot;
  request_.clear();
  for (uint16_t expert : experts) request_.push_back(layer_rank * per_layer_ + expert);
  taken_ = started_ = 0;
  for (uint32_t key : request_) {
    if (slot_of_[key] != kNoSlot) slots_[slot_of_[key]].wanted = true;
  }
  fill();
}

ExpertView ExpertCache::next() {
  K3_CHECK(taken_ < request_.size());
  if (in_use_ != kNoSlot) slots_[in_use_].last_use = ++clock_;
  in_use_ = kNoSlot;
  fill();
  const uint32_t key = request_[taken_];
  const int32_t index = slot_of_[key];
  K3_CHECK(index != kNoSlot);
  Slot& slot = slots_[index];
  if (slot.state == SlotState::kLoading) {
    finish(slot);
  } else {
    ++stats_.hits;
  }
  ++stats_.uses;
  ++taken_;
  slot.wanted = false;
  in_use_ = index;
  return {key % per_layer_, slot.part};
}

void ExpertCache::fill() {
  for (; started_ < request_.size(); ++started_) {
    const uint32_t key = request_[started_];
    if (slot_of_[key] != kNoSlot) continue;
    const int32_t slot = free_slot(key);
    if (slot == kNoSlot) return;
    start(slot, key);
  }
}

int32_t ExpertCache::free_slot(uint32_t for_key) const {
  // Empty or least recently used first; else, so that the next expert always finds a place, the
  // wanted one that is needed last, if that is after this one.
  int32_t oldest = kNoSlot, last_wanted = kNoSlot;
  for (int32_t i = 0; i < static_cast<int32_t>(slots_.size()); ++i) {
    const Slot& slot = slots_[i];
    if (slot.state == SlotState::kEmpty) return i;
    if (slot.state == SlotState::kLoading || i == in_use_) continue;
    if (!slot.wanted && (oldest == kNoSlot || slot.last_use < slots_[oldest].last_use)) oldest = i;
    if (slot.wanted && slot.key > for_key &&
        (last_wanted == kNoSlot || slot.key > slots_[last_wanted].key)) {
      last_wanted = i;
    }
  }
  return oldest != kNoSlot ? oldest : last_wanted;
}

void ExpertCache::start(int32_t index, uint32_t key) {
  Slot& slot = slots_[index];
  if (slot.state != SlotState::kEmpty) slot_of_[slot.key] = kNoSlot;
  slot.key = key;
  slot.wanted = true;
  slot_of_[key] = index;
  load(slot);
}

void ExpertCache::load(Slot& slot) {
  const auto& bytes = file_.header().expert_part_bytes;
  const ExpertRecord& expert = file_.expert(slot.key / per_layer_, slot.key % per_layer_);
  std::array<Piece, kExpertParts> pieces;
  slot.job_count = cut_pieces(expert, bytes, pieces);
  slot.state = SlotState::kLoading;
  std::byte* buffer = slot.memory;
  for (size_t i = 0; i < slot.job_count; ++i) {
    io::ReadJob& job = slot.jobs[i];
    job.file = options_.shards[expert.shard];
    job.offset = pieces[i].offset;
    job.length = pieces[i].length;
    job.buffer = buffer;
    job.what = describe_job;
    job.context = this;
    job.context_id = slot.key;
    const std::byte* part = job.payload();
    for (size_t p = 0; p < pieces[i].part_count; ++p) {
      slot.part[pieces[i].first_part + p] = part;
      part += bytes[pieces[i].first_part + p];
    }
    buffer += io::ReadJob::buffer_bytes(job.offset, job.length);
    io_.request(job, io::Lane::kUrgent);
  }
}

void ExpertCache::finish(Slot& slot) {
  for (int attempt = 0;; ++attempt) {
    for (size_t i = 0; i < slot.job_count; ++i) io_.wait(slot.jobs[i]);
    if (checksum_matches(slot)) break;
    if (attempt > 0) {
      throw Error(ErrorKind::kRead,
                  fmt::format("{} do not match the checksum that was recorded when packing, read "
                              "twice; check the drive and download the shard again",
                              locate(slot)));
    }
    ++stats_.checksum_retries;
    load(slot);
  }
  check_scales(slot);
  slot.state = SlotState::kReady;
  for (uint64_t bytes : file_.header().expert_part_bytes) stats_.read_bytes += bytes;
}

bool ExpertCache::checksum_matches(const Slot& slot) const {
  const uint64_t* recorded = file_.expert_checksum(slot.key / per_layer_, slot.key % per_layer_);
  if (recorded == nullptr) return true;
  Checksum sum;
  for (size_t p = 0; p < kExpertParts; ++p) {
    sum.update({slot.part[p], file_.header().expert_part_bytes[p]});
  }
  return sum.digest() == *recorded;
}

void ExpertCache::check_scales(const Slot& slot) const {
  for (size_t matrix = 0; matrix < 3; ++matrix) {
    const size_t part = 2 * matrix + 1;
    const uint64_t bytes = file_.header().expert_part_bytes[part];
    const void* bad = std::memchr(slot.part[part], 255, bytes);
    if (bad == nullptr) continue;
    const uint64_t at = static_cast<uint64_t>(static_cast<const std::byte*>(bad) - slot.part[part]);
    const uint64_t row = at / (bytes / options_.scale_rows[matrix]);
    const ExpertRecord& expert = file_.expert(slot.key / per_layer_, slot.key % per_layer_);
    throw Error(
        ErrorKind::kRead,
        fmt::format("{} hold the scale byte 255 (not a number) in w{} row {}, at {}; the shard is "
                    "damaged, download it again",
                    locate(slot), matrix + 1, row, expert.offset[part] + at));
  }
}

std::string ExpertCache::describe(uint32_t key) const {
  return fmt::format("layer {}, expert {}", options_.first_layer + key / per_layer_,
                     key % per_layer_);
}

std::string ExpertCache::locate(const Slot& slot) const {
  const io::ReadJob& first = slot.jobs[0];
  std::string text = fmt::format("{}: the bytes at {} ({} bytes, {})", io_.path(first).string(),
                                 first.offset, first.length, describe(slot.key));
  for (size_t i = 1; i < slot.job_count; ++i) {
    text += fmt::format(" and at {} ({} bytes)", slot.jobs[i].offset, slot.jobs[i].length);
  }
  return text;
}

std::string ExpertCache::describe_job(const io::ReadJob& job) {
  return static_cast<const ExpertCache*>(job.context)
      ->describe(static_cast<uint32_t>(job.context_id));
}

}  // namespace k3::weights
