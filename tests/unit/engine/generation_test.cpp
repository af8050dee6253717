// Engine::generate as a library's user calls it.
#include <gtest/gtest.h>

#include <limits>

#include "model/config.h"
#include "support/faulty_run.h"
#include "support/messages.h"
#include "support/sanitizers.h"

namespace k3::engine {
namespace {

TEST(Generate, HooksMayBeLeftOut) {
  const auto engine =
      Engine::open(test::fault_options(test::fault_model(), test::fault_trunk(false)));
  const std::vector<uint32_t> prompt = {84, 104, 101};
  EXPECT_EQ(engine->generate(prompt, {.max_tokens = 2, .eos_ids = {}, .stop_ids = {}}, {}),
            FinishReason::kLength);
  EXPECT_EQ(engine->stats().generated_tokens, 2u);
}

// Without an end in the layer, the next one would be reported.
TEST(Generate, AnInterruptEndsAPassThatWaitsForNoRead) {
  EngineOptions options = test::fault_options(test::fault_model(), test::fault_trunk(false));
  options.budget = Bytes{test::budget_of(1'000'000'000)};
  const auto engine = Engine::open(options);
  const std::vector<uint32_t> prompt = {84, 104, 101};
  std::vector<uint32_t> layers;  // begun since the interrupt, the one that it came in first
  engine->set_progress([&](const RunProgress& run) {
    if (run.passes_done == 1 && run.layer == 1) engine->interrupt();
    if (run.passes_done == 1 && run.layer >= 1) layers.push_back(run.layer);
  });
  test::error_of(ErrorKind::kInterrupted, [&] {
    engine->generate(prompt, {.max_tokens = 3, .eos_ids = {}, .stop_ids = {}}, {});
  });
  EXPECT_EQ(layers, std::vector<uint32_t>{1});
}

TEST(Generate, AnyNumberOfNewTokensIsCountedBesideThePrompt) {
  EngineOptions options = test::fault_options(test::fault_model(), test::fault_trunk(false));
  options.plan_only = true;
  options.budget = Bytes{test::budget_of(1'000'000'000)};
  options.prompt_tokens = 10;
  const uint64_t most = model::load_config(test::fault_model()).max_position_embeddings;
  for (const uint64_t new_tokens : {UINT64_MAX, UINT64_MAX - 9, most + 1}) {
    options.new_tokens = new_tokens;
    options.context.reset();
    EXPECT_EQ(Engine::open(options)->plan().context, most);
    options.context = 50;
    test::error_of(ErrorKind::kUsage, [&] { Engine::open(options); });
  }
}

TEST(Score, NoIdsAreRefusedEvenWhenLogitsAreKnown) {
  const auto engine =
      Engine::open(test::fault_options(test::fault_model(), test::fault_trunk(false)));
  engine->generate(std::vector<uint32_t>{84}, {.max_tokens = 0, .eos_ids = {}, .stop_ids = {}}, {});
  test::error_of(ErrorKind::kUsage, [&] { engine->score({}); });
}

}  // namespace
}  // namespace k3::engine
