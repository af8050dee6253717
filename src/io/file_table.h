// The files of a run, by number. At most kOpenMax descriptors are open at once (96 shards must work
// under `ulimit -n 64`); the least recently used one without reads in flight is closed first.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "io/direct_file.h"

namespace k3::io {

enum class FileId : uint32_t {};

class FileTable {
 public:
  static constexpr size_t kOpenMax = 24;

  FileId add(std::filesystem::path path);
  const std::filesystem::path& path(FileId id) const;

  /// The open file, direct where possible; opened when needed. Its descriptor stays open until
  /// release(), the pointer is good until the next add(). Null where it cannot be opened, with the
  /// errno in *error (EMFILE also when kOpenMax files are held).
  const DirectFile* acquire(FileId id, int* error);
  void release(FileId id);
  /// From now on this file is read through the page cache (a direct read was refused with EINVAL).
  /// The descriptor stays the same.
  void use_buffered(FileId id);
  bool buffered(FileId id) const;

 private:
  struct Entry {
    std::filesystem::path path;
    DirectFile file;
    bool open = false;
    bool buffered = false;
    uint32_t in_flight = 0;
    uint64_t last_use = 0;
  };
  Entry& entry(FileId id);
  const Entry& entry(FileId id) const;
  /// False when every open file has reads in flight.
  bool close_one_idle();

  std::vector<Entry> entries_;
  uint64_t clock_ = 0;
  size_t open_count_ = 0;
};

}  // namespace k3::io
