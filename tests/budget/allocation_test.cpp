// Nothing on a step's path allocates: counted where everything ends up, in malloc itself.
#include <gtest/gtest.h>

#include <atomic>
#include <cstddef>

#include "k3/engine.h"
#include "support/engine_runs.h"
#include "support/sanitizers.h"

namespace {
std::atomic<bool> counting{false};
std::atomic<uint64_t> allocations{0};

[[maybe_unused]] void note() {
  if (counting.load(std::memory_order_relaxed)) ++allocations;
}
}  // namespace

#if !K3_SANITIZED
extern "C" {
void* __libc_malloc(size_t size);
void* __libc_calloc(size_t count, size_t size);
void* __libc_realloc(void* old, size_t size);

void* malloc(size_t size) {
  note();
  return __libc_malloc(size);
}
void* calloc(size_t count, size_t size) {
  note();
  return __libc_calloc(count, size);
}
void* realloc(void* old, size_t size) {
  note();
  return __libc_realloc(old, size);
}
}
#endif

namespace k3::test {
namespace {

/// Allocations of all threads in the decode steps after the first, at a budget so many times the
/// least: between two calls of on_token lies one step and nothing else.
uint64_t allocations_of_steps(const PackedModel& model, const char* io, uint64_t budget_times) {
  ::setenv("K3_IO", io, 1);
  EngineOptions options;
  options.model = model.path();
  options.prompt_tokens = 5;
  options.new_tokens = 12;
  options.budget = model.least_budget(17) * budget_times;
  const auto engine = Engine::open(options);
  const std::vector<uint32_t> prompt = some_ids(5, engine->vocab_size());
  uint64_t taken = 0;
  const GenerateHooks hooks{.on_prompt = nullptr,
                            .on_token = [&](uint32_t, std::span<const float>) {
                              ++taken;
                              counting = taken >= 2 && taken < 12;
                            }};
  allocations = 0;
  engine->generate(prompt, {.max_tokens = 12, .eos_ids = {}, .stop_ids = {}}, hooks);
  counting = false;
  EXPECT_EQ(taken, 12u);
  ::unsetenv("K3_IO");
  return allocations;
}

TEST(Allocations, AreCounted) {
  if (kSanitized) GTEST_SKIP() << "a sanitizer owns malloc";
  allocations = 0;
  counting = true;
  delete new std::string(100, 'x');
  counting = false;
  EXPECT_GE(allocations, 1u);
}

TEST(Allocations, ThereAreNoneOnTheStepsPath) {
  if (kSanitized) GTEST_SKIP() << "a sanitizer owns malloc";
  const PackedModel model("tiny-k3");
  for (const uint64_t budget_times : {1, 4}) {
    EXPECT_EQ(allocations_of_steps(model, "pread", budget_times), 0u) << budget_times;
    if (host_has_uring()) {
      EXPECT_EQ(allocations_of_steps(model, "uring", budget_times), 0u) << budget_times;
    }
  }
}

}  // namespace
}  // namespace k3::test
