#include "weights/trunk_journal.h"

#include <cstddef>
#include <cstring>
#include <span>

#include "base/hash.h"
#include "io/direct_file.h"

namespace k3::weights {
namespace {

struct JournalHeader {
  char magic[8];
  uint64_t plan;
  uint64_t chunk_count;
  uint64_t expert_count;
  uint64_t checksum;  // XXH3-64 of the fields above
};
static_assert(sizeof(JournalHeader) == 40);

template <typename Record>
struct Entry {
  Record record;
  uint64_t checksum;  // XXH3-64 of the record
};
static_assert(sizeof(Entry<ChunkRecord>) == 56 && sizeof(Entry<uint64_t>) == 16);

template <typename T>
std::span<const std::byte> bytes_of(const T& value) {
  return std::as_bytes(std::span(&value, 1));
}

JournalHeader make_header(const TrunkJournal::Shape& shape) {
  JournalHeader header{};
  std::memcpy(header.magic, TrunkJournal::kMagic, sizeof(TrunkJournal::kMagic));
  header.plan = shape.plan;
  header.chunk_count = shape.chunk_count;
  header.expert_count = shape.expert_count;
  header.checksum = checksum(bytes_of(header).first(offsetof(JournalHeader, checksum)));
  return header;
}

template <typename Record>
Entry<Record> make_entry(const Record& record) {
  return {record, checksum(bytes_of(record))};
}

constexpr std::string_view kWhat = "the journal of packing";  // for messages

template <typename Record>
void write_entry(io::PartialFile& file, uint64_t array, uint64_t number, const Record& record) {
  const Entry<Record> entry = make_entry(record);
  file.write(array + number * sizeof(entry), bytes_of(entry));
}

template <typename Record>
void write_entries(io::PartialFile& file, uint64_t array, const std::vector<Record>& records) {
  std::vector<Entry<Record>> entries;
  for (const Record& record : records) entries.push_back(make_entry(record));
  file.write(array, std::as_bytes(std::span(entries)));
}

/// The entries up to the first that is not whole.
template <typename Record>
std::vector<Record> read_entries(const io::PartialFile& file, uint64_t array, uint64_t count) {
  std::vector<Entry<Record>> entries(count);
  io::read_exactly(file.fd(), array, std::as_writable_bytes(std::span(entries)),
                   file.partial_path(), kWhat);
  std::vector<Record> records;
  for (const Entry<Record>& entry : entries) {
    if (entry.checksum != checksum(bytes_of(entry.record))) break;
    records.push_back(entry.record);
  }
  return records;
}

uint64_t chunk_array(const TrunkJournal::Shape& shape) {
  return shape.offset + sizeof(JournalHeader);
}

uint64_t expert_array(const TrunkJournal::Shape& shape) {
  return chunk_array(shape) + shape.chunk_count * sizeof(Entry<ChunkRecord>);
}

uint64_t journal_end(const TrunkJournal::Shape& shape) {
  return shape.offset + TrunkJournal::bytes_needed(shape.chunk_count, shape.expert_count);
}

}  // namespace

TrunkJournal::TrunkJournal(io::PartialFile& file, const Shape& shape) : file_(file), shape_(shape) {
  if (!take_up()) start();
}

bool TrunkJournal::take_up() {
  if (file_.size() != journal_end(shape_)) return false;
  const JournalHeader expected = make_header(shape_);
  JournalHeader found{};
  io::read_exactly(file_.fd(), shape_.offset, std::as_writable_bytes(std::span(&found, 1)),
                   file_.partial_path(), kWhat);
  if (std::memcmp(&found, &expected, sizeof(found)) != 0) return false;
  chunks_ = read_entries<ChunkRecord>(file_, chunk_array(shape_), shape_.chunk_count);
  experts_ = read_entries<uint64_t>(file_, expert_array(shape_), shape_.expert_count);
  return true;
}

/// Never without its magic, unless empty: a file of zeros might be anybody's.
void TrunkJournal::start() {
  file_.truncate(0);
  file_.write(0, std::as_bytes(std::span(kMagic)));
  file_.truncate(journal_end(shape_));
  file_.write(shape_.offset, bytes_of(make_header(shape_)));
}

/// Cutting the file and growing it again makes zeros of all that lies between, on any file system.
/// Killed in the middle, the file has another size and is begun anew.
void TrunkJournal::keep(uint64_t count, uint64_t end) {
  chunks_.resize(count);
  file_.truncate(end);
  file_.truncate(journal_end(shape_));
  write_entries(file_, expert_array(shape_), experts_);
  write_entries(file_, chunk_array(shape_), chunks_);
  file_.write(shape_.offset, bytes_of(make_header(shape_)));
}

void TrunkJournal::add_chunk(uint64_t number, const ChunkRecord& chunk) {
  write_entry(file_, chunk_array(shape_), number, chunk);
}

void TrunkJournal::add_expert_checksum(uint64_t number, uint64_t checksum_of_expert) {
  write_entry(file_, expert_array(shape_), number, checksum_of_expert);
}

uint64_t TrunkJournal::bytes_needed(uint64_t chunk_count, uint64_t expert_count) {
  return sizeof(JournalHeader) + chunk_count * sizeof(Entry<ChunkRecord>) +
         expert_count * sizeof(Entry<uint64_t>);
}

}  // namespace k3::weights
