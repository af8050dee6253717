// What the tests of the model's functions share: a configuration of odd widths, values, and the
// comparison with formulas in double precision.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "kernels/dispatch.h"
#include "model/config.h"
#include "support/checkpoint_maker.h"

namespace k3::model {

using Floats = std::vector<float>;
using Doubles = std::vector<double>;

inline Config odd_config() {
  return parse_config(test::tiny_config().dump(), "config.json");
}

inline const kernels::Kernels& scalar() {
  return kernels::table(kernels::Isa::kScalar);
}

inline Floats normal(size_t n, uint32_t seed, double deviation = 1, double mean = 0) {
  std::mt19937 engine(seed);
  std::normal_distribution<double> distribution(mean, deviation);
  Floats out(n);
  for (float& value : out) value = static_cast<float>(distribution(engine));
  return out;
}

inline double sigmoid(double x) {
  return 1 / (1 + std::exp(-x));
}

inline double mean_square(const float* x, size_t n) {
  double sum = 0;
  for (size_t i = 0; i < n; ++i) sum += double{x[i]} * x[i];
  return sum / static_cast<double>(n);
}

/// Every value within `tolerance` of the formula's, relative to the larger of it and 1.
inline void expect_close(const Floats& found, const Doubles& expected, double tolerance) {
  ASSERT_EQ(found.size(), expected.size());
  for (size_t i = 0; i < found.size(); ++i) {
    const double allowed = tolerance * std::max(1.0, std::abs(expected[i]));
    ASSERT_NEAR(found[i], expected[i], allowed) << "element " << i;
  }
}

}  // namespace k3::model
