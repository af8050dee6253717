// How fast the kernels are, beside what the machine can do at best, measured by turns in one run:
// figures from different moments of a shared machine cannot be compared.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "k3/units.h"
#include "kernels/table.h"

namespace k3::engine {

struct KernelBenchOptions {
  Bytes weights{2'000'000'000};    // of the matrices that are read from memory
  std::vector<kernels::Isa> isas;  // kAvx2, kAvx512; none: the bandwidths alone
  std::vector<size_t> threads;     // ascending
  size_t repetitions = 5;          // the best counts
  std::function<void(std::string_view what)> on_progress;
};

struct KernelResult {
  std::string op;  // matvec_* for one column, matmul_* for many; *_packed: lossless trunk chunks
  kernels::Isa isa;
  size_t threads;
  double gbps;             // weights (states, cache rows) read and written
  double gflops;           // two an fma
  double gweights;         // weights a second, 1e9; 0 for what has none
  double bandwidth_ratio;  // of the read bandwidth (kda_head: of an update) with the same threads
  double fma_ratio;        // of the FMA peak with the same threads
  double raw_time_ratio;   // packed products: of the time that as many bf16 weights take; else 0
};

struct KernelBench {
  std::map<size_t, double> read_bandwidth_gbps;    // by threads: the better of 1 and 8 streams each
  std::map<size_t, double> update_bandwidth_gbps;  // read and write, counted twice
  std::map<kernels::Isa, std::map<size_t, double>> fma_peak_gflops;
  std::vector<KernelResult> results;
};

/// Runs every operation on every instruction set and thread count. Allocates about three times
/// options.weights. The instruction sets must be ones that this CPU has.
KernelBench bench_kernels(const KernelBenchOptions& options);

}  // namespace k3::engine
