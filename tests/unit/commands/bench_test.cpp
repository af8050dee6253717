#include <gtest/gtest.h>
#include <sched.h>

#include <fstream>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "base/host.h"
#include "base/json.h"
#include "kernels/dispatch.h"
#include "support/checkpoint_maker.h"
#include "support/run_k3.h"
#include "support/sanitizers.h"
#include "support/test_data.h"

namespace {

using namespace k3;        // NOLINT
using namespace k3::test;  // NOLINT

Json bench_json(std::vector<std::string> args) {
  args.insert(args.begin(), "bench");
  args.push_back("--json");
  const K3Result result = run_k3({.args = std::move(args)});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  return parse_json(result.out, "stdout");
}

std::vector<std::string> usable_isas() {
  std::vector<std::string> names{"avx2"};
  if (kernels::best_isa() == kernels::Isa::kAvx512) names.emplace_back("avx512");
  return names;
}

/// Each op, instruction set and thread count of the results, once.
std::set<std::tuple<std::string, std::string, size_t>> measured(const Json& bench) {
  std::set<std::tuple<std::string, std::string, size_t>> found;
  for (const Json& r : bench["results"]) {
    const bool fresh = found
                           .emplace(r["op"].get<std::string>(), r["isa"].get<std::string>(),
                                    r["threads"].get<size_t>())
                           .second;
    EXPECT_TRUE(fresh) << r.dump();
  }
  return found;
}

TEST(BenchKernels, MeasuresEveryOperationOnEveryInstructionSetAndThreadCount) {
  const Json bench = bench_json({"kernels", "--size", "32M", "--repetitions", "1", "-t", "2"});
  std::set<std::tuple<std::string, std::string, size_t>> expected;
  for (const char* op :
       {"matvec_bf16", "matvec_packed", "matvec_f32", "matvec_mxfp4", "matmul_bf16",
        "matmul_packed", "matmul_f32", "matmul_mxfp4", "kda_head", "attend_tile"}) {
    for (const std::string& isa : usable_isas()) {
      for (size_t threads : {1, 2}) expected.insert({op, isa, threads});
    }
  }
  EXPECT_EQ(measured(bench), expected);
}

TEST(BenchKernels, GivesEachFigureBesideTheLimitOfTheSameRun) {
  const Json bench = bench_json({"kernels", "--size", "32M", "--repetitions", "1", "-t", "1"});
  EXPECT_GT(bench["read_bandwidth_gbps"]["1"].get<double>(), 0);
  for (const std::string& isa : usable_isas()) {
    EXPECT_GT(bench["fma_peak_gflops"][isa].get<double>(), 0) << isa;
  }
  for (const Json& r : bench["results"]) {
    EXPECT_GT(r["gbps"].get<double>(), 0) << r.dump();
    EXPECT_GT(r["gflops"].get<double>(), 0) << r.dump();
    EXPECT_GT(r["ratio"].get<double>(), 0) << r.dump();
    EXPECT_TRUE(r["limit"] == "bandwidth" || r["limit"] == "fma") << r.dump();
    const std::string op = r["op"];
    EXPECT_EQ(r.contains("gweights"), op.starts_with("mat")) << r.dump();
    EXPECT_EQ(r.contains("raw_time_ratio"), op.ends_with("_packed")) << r.dump();
  }
}

TEST(BenchKernels, RefusesASizeThatHoldsNoWork) {
  const K3Result result = run_k3({.args = {"bench", "kernels", "--size", "31M"}});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_NE(result.err.find("at least"), std::string::npos) << result.err;
}

class BenchStep : public testing::Test {
 protected:
  BenchStep() : shape((dir.path() / "config.json").string()) {
    std::ofstream(shape) << tiny_config().dump();
  }
  Json step(std::vector<std::string> more = {}) const {
    more.insert(more.begin(),
                {"step", "--shape", shape, "--budget", budget_text(400'000'000), "-t", "2"});
    return bench_json(std::move(more));
  }
  TempDir dir;
  std::string shape;
};

TEST_F(BenchStep, NeedsNoWeightsAndTimesEveryKindOfWork) {
  const Json bench = step({"--steps", "2"});
  EXPECT_EQ(bench["layers"], tiny_config()["text_config"]["num_hidden_layers"]);
  EXPECT_EQ(bench["threads"], 2);
  EXPECT_GT(bench["read_bandwidth_gbps"].get<double>(), 0);
  for (const char* kind :
       {"trunk", "experts", "head", "kda", "attention", "router", "waiting", "rest"}) {
    EXPECT_GT(bench["step"]["time_by_kind"][kind].get<double>(), 0) << kind;
  }
  for (const char* kind : {"trunk", "experts", "head", "kda", "router"}) {
    EXPECT_GT(bench["step"]["gbps"][kind].get<double>(), 0) << kind;
    EXPECT_GT(bench["step"]["ratio"][kind].get<double>(), 0) << kind;
  }
}

TEST_F(BenchStep, KindsOfWorkAddUpToTheStep) {
  const Json bench = step({"--rows", "20", "--steps", "20"});
  for (const char* phase : {"prefill", "step"}) {
    double sum = 0;
    for (const auto& [kind, seconds] : bench[phase]["time_by_kind"].items()) {
      sum += seconds.get<double>();
    }
    EXPECT_GT(sum, 0) << phase;
    EXPECT_LE(sum, bench[phase]["seconds"].get<double>()) << phase;
  }
  EXPECT_EQ(bench["rows"], 20);
}

TEST_F(BenchStep, TakesTheFirstLayersAlone) {
  EXPECT_EQ(step({"--layers", "3"})["layers"], 3);
  const K3Result more = run_k3({.args = {"bench", "step", "--shape", shape, "--layers", "8"}});
  EXPECT_EQ(more.exit_code, 2);
  EXPECT_NE(more.err.find("--layers 8: the shape has 7"), std::string::npos) << more.err;
}

/// Confines this process, and what it starts, to one CPU.
class OneCpu {
 public:
  OneCpu() {
    EXPECT_EQ(sched_getaffinity(0, sizeof before_, &before_), 0);
    cpu_set_t one;
    CPU_ZERO(&one);
    for (int cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&one) == 0; ++cpu) {
      if (CPU_ISSET(cpu, &before_)) CPU_SET(cpu, &one);
    }
    EXPECT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
  }
  ~OneCpu() { sched_setaffinity(0, sizeof before_, &before_); }

 private:
  cpu_set_t before_;
};

TEST_F(BenchStep, ComputesOnThePhysicalCoresThatItMayUse) {
  const std::vector<std::string> args{"step", "--shape", shape, "--budget",
                                      budget_text(400'000'000)};
  EXPECT_EQ(bench_json(args)["threads"], read_host_limits().usable_cores);
  const OneCpu one;
  EXPECT_EQ(bench_json(args)["threads"], 1);
}

TEST(BenchDisk, ReadsAFileInEveryPattern) {
  const TempDir dir;
  const std::string file = (dir.path() / "file").string();
  std::ofstream(file) << std::string(3'000'000, 'x');
  const Json bench = bench_json({"disk", file, "--seconds", "0.01"});
  EXPECT_EQ(bench["path"], file);
  EXPECT_EQ(bench["holes"], false);
  EXPECT_GT(bench["best_gbps"].get<double>(), 0);
  std::set<std::tuple<std::string, uint64_t, uint64_t>> found;
  for (const Json& r : bench["results"]) {
    found.emplace(r["reads"].get<std::string>(), r["request_bytes"].get<uint64_t>(),
                  r["in_flight"].get<uint64_t>());
    EXPECT_GT(r["bytes"].get<uint64_t>(), 0u) << r.dump();
    EXPECT_GT(r["ratio"].get<double>(), 0) << r.dump();
    EXPECT_LE(r["ratio"].get<double>(), 1) << r.dump();
  }
  EXPECT_EQ(found.size(), 2u * 4 * 3);
}

TEST(BenchDisk, SaysThatADirectoryHasNothingToRead) {
  const TempDir dir;
  const K3Result result = run_k3({.args = {"bench", "disk", dir.path().string()}});
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_NE(result.err.find("no model.safetensors.index.json"), std::string::npos) << result.err;
}

}  // namespace
