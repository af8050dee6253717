#include "io/file_table.h"

#include <cerrno>
#include <utility>

#include "base/check.h"

namespace k3::io {

FileTable::Entry& FileTable::entry(FileId id) {
  return const_cast<Entry&>(std::as_const(*this).entry(id));
}

const FileTable::Entry& FileTable::entry(FileId id) const {
  const auto index = static_cast<size_t>(id);
  K3_CHECK(index < entries_.size());
  return entries_[index];
}

FileId FileTable::add(std::filesystem::path path) {
  entries_.emplace_back().path = std::move(path);
  return static_cast<FileId>(entries_.size() - 1);
}

const std::filesystem::path& FileTable::path(FileId id) const {
  return entry(id).path;
}

const DirectFile* FileTable::acquire(FileId id, int* error) {
  Entry& wanted = entry(id);
  if (!wanted.open) {
    if (open_count_ == kOpenMax && !close_one_idle()) {
      *error = EMFILE;
      return nullptr;
    }
    *error = DirectFile::try_open(wanted.path, !wanted.buffered, &wanted.file);
    if (*error != 0) return nullptr;
    wanted.open = true;
    ++open_count_;
  }
  ++wanted.in_flight;
  wanted.last_use = ++clock_;
  return &wanted.file;
}

void FileTable::release(FileId id) {
  Entry& held = entry(id);
  K3_CHECK(held.in_flight > 0);
  --held.in_flight;
}

void FileTable::use_buffered(FileId id) {
  Entry& file = entry(id);
  file.buffered = true;
  if (file.open) file.file.use_buffered();
}

bool FileTable::buffered(FileId id) const {
  const Entry& file = entry(id);
  return file.buffered || (file.open && !file.file.direct());
}

bool FileTable::close_one_idle() {
  Entry* oldest = nullptr;
  for (Entry& candidate : entries_) {
    if (!candidate.open || candidate.in_flight > 0) continue;
    if (oldest == nullptr || candidate.last_use < oldest->last_use) oldest = &candidate;
  }
  if (oldest == nullptr) return false;
  oldest->file = DirectFile();
  oldest->open = false;
  --open_count_;
  return true;
}

}  // namespace k3::io
