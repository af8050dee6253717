// Engine::generate as a library's user calls it.
#include <gtest/gtest.h>

#include "support/faulty_run.h"

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

}  // namespace
}  // namespace k3::engine
