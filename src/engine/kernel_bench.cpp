#include "engine/kernel_bench.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <limits>
#include <memory>

#include "base/check.h"
#include "base/thread_pool.h"
#include "engine/packed_chunks.h"
#include "io/arena.h"
#include "kernels/dispatch.h"
#include "kernels/limits.h"

namespace k3::engine {
namespace {

// K3's own widths: hidden size, expert width, cache rows, heads.
constexpr size_t kHidden = 7168, kLatent = 3584, kHeads = 96, kHeadDim = 128, kCacheWidth = 576;
constexpr size_t kManyColumns = 64;
constexpr size_t kManyColumnsShare = 16;  // many columns: a part of the weights is enough

double seconds_of(const std::function<void()>& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// Work whose best time over the repetitions is wanted.
struct Job {
  std::function<void()> work;
  std::function<void(double seconds)> done;
  std::string name;
  double best = std::numeric_limits<double>::infinity();
};

class Bench {
 public:
  explicit Bench(const KernelBenchOptions& options)
      : options_(options),
        memory_(Bytes{options.weights.value / kRound * kRound * 7 / 4 + kInputs}),
        weights_(memory_.carve<std::byte>(options.weights.value / kRound * kRound)),
        packed_(memory_.carve<std::byte>(weights_.size() * 3 / 4)),
        floats_(memory_.carve<float>(kInputs / sizeof(float) / 2)),
        outputs_(weights_.size() / kLatent * 2 * kManyColumns / kManyColumnsShare +
                 weights_.size() / kLatent * 2) {
    fill();
    chunks_ = PackedChunks(packed_, weights_.size());
  }

  KernelBench run() {
    for (size_t threads : options_.threads) {
      pool_ = std::make_unique<ThreadPool>(threads);
      add_bandwidth(threads);
      for (kernels::Isa isa : options_.isas) add_isa(isa, threads);
      measure();
      finish(threads);
    }
    return std::move(result_);
  }

 private:
  static constexpr uint64_t kRound = 1u << 20;
  static constexpr uint64_t kInputs = 64u << 20;

  /// Finite bf16 numbers of either sign near 1, and scale bytes near 1 where MXFP4 scales lie.
  void fill() {
    uint64_t state = 0x9E3779B97F4A7C15;
    auto* words = reinterpret_cast<uint16_t*>(weights_.data());
    for (size_t i = 0; i < weights_.size() / 2; ++i) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      words[i] = static_cast<uint16_t>(((state >> 33) & 0x83FF) | 0x3C00);
    }
    for (size_t i = 0; i < floats_.size(); ++i) floats_[i] = static_cast<float>(i % 17) / 16 - 0.5f;
  }

  void add(std::string name, std::function<void()> work, std::function<void(double)> done) {
    jobs_.push_back({std::move(work), std::move(done), std::move(name)});
  }

  void measure() {
    for (size_t r = 0; r < options_.repetitions; ++r) {
      for (Job& job : jobs_) {
        if (options_.on_progress) options_.on_progress(job.name);
        job.best = std::min(job.best, seconds_of(job.work));
      }
    }
    for (Job& job : jobs_) job.done(job.best);
    jobs_.clear();
  }

  /// Ratios, once the limits of this thread count are known.
  void finish(size_t threads) {
    for (KernelResult& result : result_.results) {
      if (result.threads != threads) continue;
      const auto& bandwidth =
          result.op == "kda_head" ? result_.update_bandwidth_gbps : result_.read_bandwidth_gbps;
      result.bandwidth_ratio = result.gbps / bandwidth.at(threads);
      result.fma_ratio = result.gflops / result_.fma_peak_gflops.at(result.isa).at(threads);
      if (result.op.ends_with("_packed"))
        result.raw_time_ratio = raw_gweights(result) / result.gweights;
    }
  }

  /// The speed of the product of bf16 weights beside a packed one.
  double raw_gweights(const KernelResult& packed) const {
    const std::string op = packed.op.starts_with("matvec") ? "matvec_bf16" : "matmul_bf16";
    for (const KernelResult& result : result_.results) {
      if (result.op == op && result.isa == packed.isa && result.threads == packed.threads) {
        return result.gweights;
      }
    }
    K3_CHECK(false);
  }

  void add_bandwidth(size_t threads) {
    const kernels::LimitProbes& probes =
        kernels::limit_probes(options_.isas.empty() ? kernels::Isa::kAvx2 : options_.isas.back());
    for (size_t streams : {1, 8}) {
      add(
          "read bandwidth",
          [this, &probes, streams] {
            pool_->parallel_for(weights_.size(), kRound / 64, [&](size_t begin, size_t end) {
              sink_ ^= probes.read(weights_.data() + begin, end - begin, streams);
            });
          },
          [this, threads](double seconds) {
            double& best = result_.read_bandwidth_gbps[threads];
            best = std::max(best, static_cast<double>(weights_.size()) / seconds / 1e9);
          });
    }
    add(
        "update bandwidth",
        [this, &probes] {
          pool_->parallel_for(state_floats(), 1024, [&](size_t begin, size_t end) {
            probes.update(states() + begin, end - begin);
          });
        },
        [this, threads](double seconds) {
          result_.update_bandwidth_gbps[threads] =
              8.0 * static_cast<double>(state_floats()) / seconds / 1e9;
        });
  }

  void add_isa(kernels::Isa isa, size_t threads) {
    add_fma(isa, threads);
    add_products(isa, threads);
    add_kda(isa, threads);
    add_attention(isa, threads);
  }

  void add_fma(kernels::Isa isa, size_t threads) {
    constexpr size_t kRounds = 4'000'000;
    const kernels::LimitProbes& probes = kernels::limit_probes(isa);
    auto flops = std::make_shared<double>(0);
    add(
        "FMA peak",
        [this, &probes, threads, flops] {
          pool_->parallel_for(threads, 1, [&](size_t, size_t, size_t range) {
            float sink[16] = {1.0f};
            const double done = probes.fma(kRounds, sink);
            if (range == 0) *flops = done * static_cast<double>(threads);
          });
        },
        [this, isa, threads, flops](double seconds) {
          result_.fma_peak_gflops[isa][threads] = *flops / seconds / 1e9;
        });
  }

  /// Work on `weights` weights, 0 for what is no product.
  struct Amount {
    double bytes;
    double flops;
    double weights;
  };

  void add_result(std::string op, kernels::Isa isa, size_t threads, Amount amount,
                  std::function<void()> work) {
    add(op, std::move(work), [this, op, isa, threads, amount](double seconds) {
      const double per = seconds * 1e9;
      result_.results.push_back({op, isa, threads, amount.bytes / per, amount.flops / per,
                                 amount.weights / per, 0, 0, 0});
    });
  }

  /// One product of a matrix that takes `share` of the weights' bytes.
  void add_product(std::string op, kernels::Isa isa, size_t threads, kernels::Encoding encoding,
                   size_t columns) {
    const kernels::WeightView w = view(encoding, columns > 1 ? kManyColumnsShare : 1);
    const kernels::Kernels& table = kernels::table(isa);
    const auto product = encoding == kernels::Encoding::kBf16  ? table.matmul_bf16
                         : encoding == kernels::Encoding::kF32 ? table.matmul_f32
                                                               : table.matmul_mxfp4;
    const double bytes = row_bytes(encoding, w.cols) * static_cast<double>(w.rows);
    const double weights = static_cast<double>(w.rows * w.cols);
    const Amount amount{bytes, 2.0 * weights * static_cast<double>(columns), weights};
    add_result(std::move(op), isa, threads, amount, [this, w, product, columns] {
      const kernels::PackedColumns x{floats_.data(), columns,
                                     kernels::packed_octets_length(w.cols)};
      pool_->parallel_for(w.rows, 8, [&](size_t begin, size_t end) {
        product(w, {begin, end}, x, {outputs_.data(), w.rows});
      });
    });
  }

  /// The same of chunks as a lossless trunk has them.
  void add_packed_product(std::string op, kernels::Isa isa, size_t threads, size_t columns) {
    const size_t count =
        std::max<size_t>(1, chunks_.count() / (columns > 1 ? kManyColumnsShare : 1));
    const double weights = static_cast<double>(count * PackedChunks::kWeights);
    const Amount amount{static_cast<double>(count * chunks_.chunk_bytes()),
                        2.0 * weights * static_cast<double>(columns), weights};
    const auto product = kernels::table(isa).matmul_packed;
    add_result(std::move(op), isa, threads, amount, [this, count, product, columns] {
      pool_->parallel_for(count, 1, [&](size_t begin, size_t end) {
        for (size_t c = begin; c < end; ++c) {
          const kernels::WeightView w = chunks_.view(c);
          product(w, {0, w.rows}, {floats_.data(), columns, kernels::packed_pairs_length(w.cols)},
                  {outputs_.data() + c * w.rows * columns, w.rows});
        }
      });
    });
  }

  void add_products(kernels::Isa isa, size_t threads) {
    using kernels::Encoding;
    add_product("matvec_bf16", isa, threads, Encoding::kBf16, 1);
    add_packed_product("matvec_packed", isa, threads, 1);
    add_product("matvec_f32", isa, threads, Encoding::kF32, 1);
    add_product("matvec_mxfp4", isa, threads, Encoding::kMxfp4, 1);
    add_product("matmul_bf16", isa, threads, Encoding::kBf16, kManyColumns);
    add_packed_product("matmul_packed", isa, threads, kManyColumns);
    add_product("matmul_f32", isa, threads, Encoding::kF32, kManyColumns);
    add_product("matmul_mxfp4", isa, threads, Encoding::kMxfp4, kManyColumns);
  }

  static double row_bytes(kernels::Encoding encoding, size_t cols) {
    const double n = static_cast<double>(cols);
    if (encoding == kernels::Encoding::kMxfp4) return n / 2 + n / 32;
    return encoding == kernels::Encoding::kF32 ? 4 * n : 2 * n;
  }

  kernels::WeightView view(kernels::Encoding encoding, size_t share) const {
    const bool mxfp4 = encoding == kernels::Encoding::kMxfp4;
    const size_t cols = mxfp4 ? kLatent : kHidden;
    const double bytes = static_cast<double>(weights_.size() / share);
    const size_t rows = static_cast<size_t>(bytes / row_bytes(encoding, cols)) / 64 * 64;
    // The scales follow the nibbles; their values do not matter for the time.
    return {encoding, weights_.data(), mxfp4 ? weights_.data() + rows * cols / 2 : nullptr, rows,
            cols};
  }

  float* states() { return reinterpret_cast<float*>(weights_.data()); }
  /// As many whole layers of KDA states as fit, 69 at most as in K3.
  size_t state_floats() const {
    const size_t layer = kHeads * kHeadDim * kHeadDim;
    return std::clamp<size_t>(weights_.size() / 4 / layer, 1, 69) * layer;
  }

  void add_kda(kernels::Isa isa, size_t threads) {
    const kernels::Kernels& table = kernels::table(isa);
    const double floats = static_cast<double>(state_floats());
    add_result("kda_head", isa, threads, {8 * floats, 7 * floats, 0}, [this, &table] {
      const size_t per_head = kHeadDim * kHeadDim, heads = state_floats() / per_head;
      pool_->parallel_for(heads, 1, [&](size_t begin, size_t end, size_t range) {
        const float* in = floats_.data();
        float* out = outputs_.data() + range * kHeadDim;
        for (size_t h = begin; h < end; ++h) {
          table.kda_head(
              {kHeadDim, 1, kHeadDim, in, in, in, in, in, 1, states() + h * per_head, out});
        }
      });
    });
  }

  void add_attention(kernels::Isa isa, size_t threads) {
    constexpr size_t kPositions = 256, kTiles = 64, kLatentWidth = 512;
    const kernels::Kernels& table = kernels::table(isa);
    const double tiles = kTiles * static_cast<double>(threads);
    const double bytes = tiles * kPositions * kCacheWidth * 4;
    const double flops = tiles * 2.0 * kPositions * kHeads * kLatentWidth;
    scratch_.resize(threads * kHeads * (kLatentWidth + 2));
    add_result("attend_tile", isa, threads, {bytes, flops, 0}, [this, &table] {
      pool_->parallel_for(
          kTiles * pool_->threads(), kTiles, [&](size_t begin, size_t end, size_t range) {
            float* sums = scratch_.data() + range * kHeads * (kLatentWidth + 2);
            for (size_t t = begin; t < end; ++t) {
              table.attend_tile({kPositions, kLatentWidth, kCacheWidth, floats_.data(), kHeads,
                                 0.07f, floats_.data(), kPositions, sums + kHeads * kLatentWidth,
                                 sums + kHeads * (kLatentWidth + 1), sums});
            }
          });
    });
  }

  const KernelBenchOptions& options_;
  io::Arena memory_;
  std::span<std::byte> weights_;
  std::span<std::byte> packed_;
  PackedChunks chunks_;
  std::span<float> floats_;  // inputs of every kind
  std::vector<float> outputs_;
  std::vector<float> scratch_;
  std::unique_ptr<ThreadPool> pool_;
  std::vector<Job> jobs_;
  std::atomic<uint64_t> sink_ = 0;
  KernelBench result_;
};

}  // namespace

KernelBench bench_kernels(const KernelBenchOptions& options) {
  return Bench(options).run();
}

}  // namespace k3::engine
