// Limits of descriptors and of locked memory, reached for certain.
#include <gtest/gtest.h>
#include <unistd.h>

#include "fault/command_run.h"
#include "support/checkpoint_maker.h"
#include "support/messages.h"

namespace k3::test {
namespace {

namespace fs = std::filesystem;

constexpr size_t kLayers = 119;
constexpr size_t kDescriptors = 64;

/// tiny_config() with many layers, an MLA layer after every three of KDA.
Json deep_config() {
  Json config = tiny_config();
  Json& text = config["text_config"];
  text["num_hidden_layers"] = kLayers;
  text["attn_res_block_size"] = 12;
  Json kda = Json::array(), full = Json::array();
  for (size_t layer = 1; layer <= kLayers; ++layer) (layer % 4 == 0 ? full : kda).push_back(layer);
  text["linear_attn_config"]["kda_layers"] = kda;
  text["linear_attn_config"]["full_attn_layers"] = full;
  return config;
}

/// A model of 120 shards, each with experts that a run reads.
class ManyShards : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    dir = new TempDir;
    make_checkpoint(model(), {.config = deep_config()});
  }
  static void TearDownTestSuite() { delete dir; }
  static fs::path model() { return dir->path() / "model"; }
  static K3Result with_limit(std::vector<std::string> args, const char* io) {
    return run_k3({.args = std::move(args),
                   .env = {{"K3_IO", io}},
                   .limits = {{RLIMIT_NOFILE, kDescriptors}}});
  }
  static inline TempDir* dir = nullptr;
};

TEST_F(ManyShards, ArePackedVerifiedAndRunWithFewerDescriptors) {
  size_t shards = 0;
  for (const auto& entry : fs::directory_iterator(model())) {
    shards += entry.path().extension() == ".safetensors" ? 1 : 0;
  }
  ASSERT_GT(shards, kDescriptors);
  const std::string m = model().string();
  const std::string plain = (dir->path() / "plain.k3").string();
  const std::string limited = (dir->path() / "limited.k3").string();
  ASSERT_EQ(run_k3({.args = {"pack", m, "-o", plain, "-q"}}).exit_code, 0);
  const auto generate = [&](const std::string& trunk) -> std::vector<std::string> {
    return {"generate", m, "--trunk", trunk, "--ids", "1,2,3", "-n", "2", "--json", "-q"};
  };
  const std::string receipt = receipt_of(run_k3({.args = generate(plain)}));
  for (const char* io : {"uring", "pread"}) {
    SCOPED_TRACE(io);
    K3Result result = with_limit({"pack", m, "-o", limited, "-q", "--verify", "--force"}, io);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_TRUE(bytes_of(limited) == bytes_of(plain));
    std::vector<std::string> writing = generate(limited);
    writing.insert(writing.end(), {"--save", (dir->path() / "talk").string(), "--dump-logits",
                                   (dir->path() / "logits").string()});
    EXPECT_EQ(receipt_of(with_limit(generate(limited), io)), receipt);
    EXPECT_EQ(receipt_of(with_limit(writing, io)), receipt);
    for (const std::vector<std::string>& args :
         std::vector<std::vector<std::string>>{{"verify", m, "--trunk", limited, "-q"},
                                               {"doctor", m, "--trunk", limited, "-q"},
                                               {"plan", m, "--trunk", limited, "-q"}}) {
      result = with_limit(args, io);
      EXPECT_EQ(result.exit_code, 0) << args[0] << ": " << result.err;
    }
  }
}

/// k3 without the right of root to lock as much as it likes.
K3Command with_locked_memory(K3Command command, rlim_t limit, const char* io) {
  command.env = {{"K3_IO", io}};
  command.limits = {{RLIMIT_MEMLOCK, limit}};
  return with_setpriv(std::move(command), {"--bounding-set=-ipc_lock", "--inh-caps=-ipc_lock"});
}

TEST(Limits, OfLockedMemoryChangeNothing) {
  if (::geteuid() != 0) GTEST_SKIP() << "an ordinary user has the limit in all other tests";
  const K3Command command = generate_command(fault_model());
  for (const rlim_t limit : {65536, 0}) {
    for (const char* io : {"", "pread"}) {
      const K3Result result = run_k3(with_locked_memory(command, limit, io));
      EXPECT_EQ(receipt_of(result), undisturbed_receipt()) << io << " " << limit;
    }
  }
  // The limit was one: io_uring alone does not do without any.
  const K3Result forced = run_k3(with_locked_memory(command, 0, "uring"));
  if (forced.exit_code == 0) GTEST_SKIP() << "io_uring needs no locked memory on this kernel";
  expect_one_line(forced, 2);
  EXPECT_TRUE(mentions(forced.err, "ulimit -l")) << forced.err;
}

}  // namespace
}  // namespace k3::test
