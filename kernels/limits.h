// What the machine can do at best, measured with the instructions of one instruction set: the
// limits that benchmarks hold the kernels against.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/table.h"

namespace k3::kernels {

struct LimitProbes {
  /// Reads [data, data + bytes) once, as `streams` (1 or 8) runs side by side; bytes is a multiple
  /// of 8 * 1024. The result depends on every byte, so that nothing is left out.
  uint64_t (*read)(const std::byte* data, size_t bytes, size_t streams);
  /// Reads and writes back [data, data + n), n a multiple of 64.
  void (*update)(float* data, size_t n);
  /// `rounds` of fused multiply-adds that do not wait for each other; returns how many
  /// floating-point operations that was (two an fma and lane). sink: 16 floats, the first of them
  /// about 1.
  double (*fma)(size_t rounds, float* sink);
};

/// `isa` is kAvx2 or kAvx512; the caller has made sure that the CPU has it.
const LimitProbes& limit_probes(Isa isa);

}  // namespace k3::kernels
