#include "engine/isa.h"

#include <gtest/gtest.h>

#include <string>

#include "k3/error.h"

namespace {

using namespace k3;  // NOLINT
using engine::choose_isa;
using kernels::Isa;

void expect_refused(std::optional<Isa> best, const char* forced, const std::string& why) {
  try {
    choose_isa(best, forced);
    ADD_FAILURE() << "accepted, expected: " << why;
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kUsage);
    const std::string message = error.what();
    EXPECT_NE(message.find(why), std::string::npos) << message;
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
  }
}

TEST(ChooseIsa, TakesTheBestUnlessALowerOneIsForced) {
  EXPECT_EQ(choose_isa(Isa::kAvx512, nullptr), Isa::kAvx512);
  EXPECT_EQ(choose_isa(Isa::kAvx512, ""), Isa::kAvx512);
  EXPECT_EQ(choose_isa(Isa::kAvx512, "avx2"), Isa::kAvx2);
  EXPECT_EQ(choose_isa(Isa::kAvx2, "scalar"), Isa::kScalar);
}

TEST(ChooseIsa, RefusesACpuWithoutAvx2AndFmaWhateverIsForced) {
  expect_refused(std::nullopt, nullptr, "lacks AVX2 and FMA");
  expect_refused(std::nullopt, "scalar", "lacks AVX2 and FMA");
}

TEST(ChooseIsa, RefusesAnInstructionSetThatIsUnknownOrThatTheCpuLacks) {
  expect_refused(Isa::kAvx2, "avx512", "this CPU has avx2 at most");
  expect_refused(Isa::kAvx2, "sse2", "expected scalar, avx2 or avx512");
}

}  // namespace
