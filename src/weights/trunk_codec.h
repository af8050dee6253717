// Lossless chunks: bf16 matrices with their exponents as codes of 3 or 4 bits (kernels/packed.h).
#pragma once

#include <cstdint>
#include <span>

#include "kernels/table.h"
#include "weights/trunk_format.h"

namespace k3::weights {

/// What `k3 pack` may do with a chunk: leave it raw, or pack it where that makes it smaller.
enum class CodecChoice : uint8_t { kRaw, kLossless };

struct Packed {
  Codec codec;  // kRaw: the chunk is not worth packing, nothing was written
  uint64_t bytes;
};

/// Whether the codec knows a matrix of this type and width at all.
bool can_be_packed(uint8_t dtype, uint64_t cols);

/// Packs bf16 weights into `out` (as long as they are) with the code that makes them smallest.
/// Weights that are all zero stay raw: raw zeros can be a hole of the file.
Packed pack_weights(std::span<const std::byte> bf16, std::span<std::byte> out);

/// What so many weights take at least in a packed chunk.
uint64_t packed_bytes_min(Codec codec, uint64_t weights);

/// True when the stored bytes of a chunk are what its codec writes for so many weights. Reading
/// weights from a chunk for which it is not would leave the chunk. Always true for kRaw.
bool is_sound(Codec codec, std::span<const std::byte> stored, uint64_t weights);

/// How the kernels call a matrix of this codec and type.
kernels::Encoding encoding_of(uint8_t codec, uint8_t dtype);

/// The weights of a sound packed chunk as bf16. `out` holds them all.
void unpack_weights(Codec codec, std::span<const std::byte> stored, std::span<std::byte> out);

}  // namespace k3::weights
