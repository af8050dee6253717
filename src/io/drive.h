// The drive behind a path: what it is, what it has free, and how fast it reads when asked the way a
// run asks. Facts for `k3 doctor` and `k3 plan`.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "k3/units.h"

namespace k3::io {

struct DriveFacts {
  std::string file_system;  // "ext4", "tmpfs"; "unknown" without /proc, in a plain chroot
  std::string device;       // "/dev/vda1"
  uint64_t device_id = 0;   // equal for paths on one file system
  Bytes free;               // for an ordinary user
};

/// Facts of the file system that holds `path`, or would hold it: the nearest parent that exists is
/// looked at. Error(kCheckpoint) when there is none.
DriveFacts drive_facts(const std::filesystem::path& path);

struct ReadSpeed {
  Bytes bytes;  // read, with widening
  double seconds = 0;
  bool direct = true;  // nothing went through the page cache
  bool holes = false;  // a file has holes: reading them needs no drive, the figure means little
  std::string reader;  // "uring"
  double gbps() const;
};

struct ReadSpeedOptions {
  double seconds_max = 1.0;
  Bytes request{4u << 20};  // length of a read
  size_t in_flight = 12;    // requests at once
  bool spread = false;      // requests far apart, as experts are; else one after the other
};

/// Reads from `files` (not empty) through an IoThread, until the time is up or as many bytes have
/// been read as the files have. Error(kCheckpoint) or Error(kRead) when a file cannot be read.
ReadSpeed measure_reading(const std::vector<std::filesystem::path>& files,
                          const ReadSpeedOptions& options);

}  // namespace k3::io
