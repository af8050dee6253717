// One thread, one operation, one instruction set at a time, on operands that stay in the cache or
// (products, with --benchmark_filter=memory) do not: for work on a kernel. Figures to be published
// come from `k3 bench kernels`, which measures the limits in the same run.
#include <benchmark/benchmark.h>

#include <cstring>
#include <string>
#include <vector>

#include "kernels/dispatch.h"
#include "kernels/table.h"

namespace {

using namespace k3::kernels;  // NOLINT

constexpr size_t kHidden = 7168, kLatent = 3584, kHeads = 96, kHeadDim = 128, kCacheWidth = 576;
constexpr size_t kLatentWidth = 512, kPositions = 256;

/// bf16 numbers of either sign near 2^-7; as bytes of MXFP4 they are numbers and usual scales too.
std::vector<std::byte> weights(size_t bytes) {
  std::vector<std::byte> data(bytes);
  uint64_t state = 1;
  for (size_t i = 0; i + 1 < bytes; i += 2) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    const auto number = static_cast<uint16_t>(0x3C00 | ((state >> 33) & 0x807F));
    std::memcpy(data.data() + i, &number, 2);
  }
  return data;
}

std::vector<float> floats(size_t count) {
  std::vector<float> data(count);
  for (size_t i = 0; i < count; ++i) data[i] = static_cast<float>(i % 17) / 16 - 0.5f;
  return data;
}

struct Shape {
  Encoding encoding;
  size_t rows;
  size_t columns;
};

size_t row_bytes(Encoding encoding, size_t cols) {
  if (encoding == Encoding::kMxfp4) return cols / 2 + cols / 32;
  return encoding == Encoding::kF32 ? 4 * cols : 2 * cols;
}

void product(benchmark::State& state, Isa isa, Shape shape) {
  const size_t cols = shape.encoding == Encoding::kMxfp4 ? kLatent : kHidden;
  const auto data = weights(shape.rows * row_bytes(shape.encoding, cols));
  const size_t stride = packed_octets_length(cols);
  const auto x = floats(shape.columns * stride);
  std::vector<float> y(shape.columns * shape.rows);
  const bool mxfp4 = shape.encoding == Encoding::kMxfp4;
  const WeightView w{shape.encoding, data.data(),
                     mxfp4 ? data.data() + shape.rows * cols / 2 : nullptr, shape.rows, cols};
  const Kernels& k = table(isa);
  const auto multiply = mxfp4                              ? k.matmul_mxfp4
                        : shape.encoding == Encoding::kF32 ? k.matmul_f32
                                                           : k.matmul_bf16;
  for (auto _ : state) {
    multiply(w, {0, shape.rows}, {x.data(), shape.columns, stride}, {y.data(), shape.rows});
    benchmark::DoNotOptimize(y.data());
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations() * data.size()));
  state.counters["flops"] =
      benchmark::Counter(2.0 * static_cast<double>(shape.rows * cols * shape.columns),
                         benchmark::Counter::kIsIterationInvariantRate);
}

void kda_head(benchmark::State& state, Isa isa) {
  const auto in = floats(kHeadDim);
  std::vector<float> head(kHeadDim * kHeadDim), out(kHeadDim);
  for (auto _ : state) {
    table(isa).kda_head({kHeadDim, 1, kHeadDim, in.data(), in.data(), in.data(), in.data(),
                         in.data(), 1, head.data(), out.data()});
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations() * 8 * head.size()));
}

void attend_tile(benchmark::State& state, Isa isa) {
  const auto cache = floats(kPositions * kCacheWidth), scores = floats(kHeads * kPositions);
  std::vector<float> sums(kHeads * (kLatentWidth + 2));
  for (auto _ : state) {
    table(isa).attend_tile({kPositions, kLatentWidth, kCacheWidth, cache.data(), kHeads, 0.07f,
                            scores.data(), kPositions, sums.data() + kHeads * kLatentWidth,
                            sums.data() + kHeads * (kLatentWidth + 1), sums.data()});
    benchmark::ClobberMemory();
  }
}

template <typename Body>
void vector_op(benchmark::State& state, size_t n, Body&& body) {
  const auto a = floats(n), b = floats(n);
  std::vector<float> y(n);
  for (auto _ : state) {
    body(a.data(), b.data(), n, y.data());
    benchmark::ClobberMemory();
  }
  state.SetItemsProcessed(static_cast<int64_t>(state.iterations() * n));
}

void add_vectors(const std::string& isa_name, const Kernels& k) {
  const auto add = [&](const std::string& name, auto body) {
    benchmark::RegisterBenchmark((name + "/" + isa_name).c_str(), [body](benchmark::State& state) {
      vector_op(state, kHidden, body);
    });
  };
  add("rms_norm",
      [&k](const float* a, const float* b, size_t n, float* y) { k.rms_norm(a, b, n, 1e-5f, y); });
  add("situ", [&k](const float* a, const float* b, size_t n, float* y) {
    k.situ(a, b, n, 4.0f, 25.0f, y);
  });
  add("exp", [&k](const float* a, const float*, size_t n, float* y) { k.exp(a, n, y); });
  add("sigmoid", [&k](const float* a, const float*, size_t n, float* y) { k.sigmoid(a, n, y); });
  add("add", [&k](const float* a, const float* b, size_t n, float* y) { k.add(a, b, n, y); });
  add("gate", [&k](const float* a, const float* b, size_t n, float* y) { k.gate(a, b, n, y); });
  add("pack_pairs",
      [&k](const float* a, const float*, size_t n, float* y) { k.pack_pairs(a, n, y); });
}

void add_products(const std::string& isa_name, Isa isa) {
  const struct {
    const char* name;
    Encoding encoding;
  } kinds[] = {{"bf16", Encoding::kBf16}, {"f32", Encoding::kF32}, {"mxfp4", Encoding::kMxfp4}};
  const struct {
    const char* place;
    size_t rows;
    size_t columns;
  } sizes[] = {{"matvec_cache", 64, 1}, {"matvec_memory", 16384, 1}, {"matmul_cache", 64, 64}};
  for (const auto& size : sizes) {
    for (const auto& kind : kinds) {
      const std::string name = std::string(size.place) + "/" + kind.name + "/" + isa_name;
      const Shape shape{kind.encoding, size.rows, size.columns};
      benchmark::RegisterBenchmark(
          name.c_str(), [isa, shape](benchmark::State& state) { product(state, isa, shape); });
    }
  }
}

void add_isa(Isa isa) {
  const std::string name(isa_name(isa));
  add_products(name, isa);
  benchmark::RegisterBenchmark(("kda_head/" + name).c_str(),
                               [isa](benchmark::State& state) { kda_head(state, isa); });
  benchmark::RegisterBenchmark(("attend_tile/" + name).c_str(),
                               [isa](benchmark::State& state) { attend_tile(state, isa); });
  add_vectors(name, table(isa));
}

}  // namespace

int main(int argc, char** argv) {
  const auto best = best_isa();
  for (const Isa isa : {Isa::kScalar, Isa::kAvx2, Isa::kAvx512}) {
    if (best && isa <= *best) add_isa(isa);
  }
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
}
