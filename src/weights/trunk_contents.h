// What the manifest of a checkpoint's trunk says before anything is written: the layout, where all
// experts lie, and the identity of every shard.
#pragma once

#include <cstdint>
#include <string>

#include "weights/trunk_file.h"
#include "weights/trunk_manifest.h"
#include "weights/trunk_writer.h"

namespace k3::weights {

/// Complete but for the chunks' offsets, checksums and what a codec changes, and the values of
/// the checksums of experts and embedding, which are 0. Reads the sampled blocks of every shard.
/// Error(kCheckpoint) when a tensor's size contradicts the list of tensors.
Manifest describe_trunk(const PackInput& input, const PackOptions& options);

/// Checksum of everything in it, of the version of the format and of the choice of codec: equal
/// only for trunk files that would be equal.
uint64_t plan_checksum(const Manifest& described, CodecChoice codec);

/// Why an existing trunk file does not serve for the one that `described` would become; empty if it
/// does. Expert checksums that nobody asked for do not matter, nor that it is raw where it could be
/// packed.
std::string trunk_difference(const TrunkFile& trunk, const Manifest& described,
                             const PackOptions& options);

}  // namespace k3::weights
