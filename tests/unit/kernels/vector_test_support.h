// What the tests of the vector operations share: guarded arrays, adversarial values, comparison of
// bits, the tables of this machine.
#pragma once

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/dispatch.h"

namespace k3::kernels {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kSubnormal = std::numeric_limits<float>::denorm_min();
constexpr float kMax = std::numeric_limits<float>::max();
/// Half a unit in the last place of 1: the largest relative error of one rounding.
constexpr double kRounding = 0x1p-24;

inline const Kernels& scalar_table() {
  return table(Isa::kScalar);
}

/// The tables beside scalar that this CPU can run.
inline std::vector<const Kernels*> vector_tables() {
  std::vector<const Kernels*> tables;
  const std::optional<Isa> best = best_isa();
  for (const Isa isa : {Isa::kAvx2, Isa::kAvx512}) {
    if (best && isa <= *best) tables.push_back(&table(isa));
  }
  return tables;
}

/// The same and scalar, for what every table must hold by itself.
inline std::vector<const Kernels*> all_tables() {
  std::vector<const Kernels*> tables = vector_tables();
  tables.push_back(&scalar_table());
  return tables;
}

/// Equal bits; a NaN counts as a NaN.
inline bool same(float a, float b) {
  if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && std::isnan(b);
  return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b);
}

template <class A, class B>
void expect_same(const A& got, const B& want, const std::string& what) {
  for (size_t i = 0; i < want.size(); ++i) {
    ASSERT_TRUE(same(got.data()[i], want.data()[i]))
        << what << ": element " << i << " of " << want.size() << " is " << got.data()[i] << ", not "
        << want.data()[i];
  }
}

/// n floats that end where an inaccessible page begins, or begin where one ends. What is left of
/// the accessible pages holds a pattern; the destructor reports writes to it.
class GuardedFloats {
 public:
  enum class Side { kEnd, kBegin };

  GuardedFloats(size_t n, Side side) : size_(n) {
    const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    inner_bytes_ = (n * sizeof(float) / page + 1) * page;
    mapped_bytes_ = inner_bytes_ + 2 * page;
    void* mapped = mmap(nullptr, mapped_bytes_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapped == MAP_FAILED) std::abort();
    base_ = static_cast<char*>(mapped);
    inner_ = base_ + page;
    if (mprotect(inner_, inner_bytes_, PROT_READ | PROT_WRITE) != 0) std::abort();
    std::memset(inner_, kPattern, inner_bytes_);
    const size_t slack = inner_bytes_ - n * sizeof(float);
    data_ = reinterpret_cast<float*>(inner_ + (side == Side::kEnd ? slack : 0));
  }
  GuardedFloats(const std::vector<float>& values, Side side) : GuardedFloats(values.size(), side) {
    *this = values;
  }
  ~GuardedFloats() {
    const char* first = reinterpret_cast<const char*>(data_);
    const char* last = reinterpret_cast<const char*>(data_ + size_);
    for (const char* p = inner_; p < inner_ + inner_bytes_; ++p) {
      if ((p < first || p >= last) && *p != kPattern) {
        ADD_FAILURE() << "a byte outside of " << size_ << " floats was written";
        break;
      }
    }
    munmap(base_, mapped_bytes_);
  }
  GuardedFloats(const GuardedFloats&) = delete;
  GuardedFloats& operator=(const GuardedFloats&) = delete;
  GuardedFloats& operator=(const std::vector<float>& values) {
    std::copy(values.begin(), values.end(), data_);
    return *this;
  }

  float* data() { return data_; }
  const float* data() const { return data_; }
  size_t size() const { return size_; }

 private:
  static constexpr char kPattern = 0x5A;
  size_t size_;
  size_t inner_bytes_;
  size_t mapped_bytes_;
  char* base_;
  char* inner_;
  float* data_;
};

/// Deterministic test values.
class Values {
 public:
  explicit Values(uint32_t seed) : engine_(seed) {}

  /// Normally distributed, finite.
  std::vector<float> normal(size_t n, float deviation = 1.0F) {
    std::normal_distribution<float> distribution(0.0F, deviation);
    std::vector<float> values(n);
    for (float& value : values) value = distribution(engine_);
    return values;
  }

  std::vector<float> uniform(size_t n, float from, float to) {
    std::uniform_real_distribution<float> distribution(from, to);
    std::vector<float> values(n);
    for (float& value : values) value = distribution(engine_);
    return values;
  }

  /// Every other value special (zeros, subnormals, limits; infinities and NaN unless `finite`), the
  /// rest of any exponent.
  std::vector<float> adversarial(size_t n, bool finite = false) {
    static constexpr float kSpecial[] = {
        0.0F,     -0.0F,  kSubnormal, -kSubnormal,      0x1p-126F, kMax,
        -kMax,    1.0F,   -1.0F,      0x1.fffffep-127F, 88.72284F, -87.33655F,
        -103.97F, 0.625F, kInfinity,  -kInfinity,       kNaN,      -kNaN};
    const size_t count = std::size(kSpecial) - (finite ? 4 : 0);
    std::vector<float> values(n);
    for (float& value : values) {
      if (engine_() % 2 == 0) {
        value = kSpecial[engine_() % count];
      } else {
        const float size = std::ldexp(1.0F + static_cast<float>(engine_() % 8388608) * 0x1p-23F,
                                      static_cast<int>(engine_() % 24) - 12);
        value = engine_() % 2 == 0 ? size : -size;
      }
    }
    return values;
  }

 private:
  std::mt19937 engine_;
};

/// Lengths of 0 to 3 vectors of 16 and some longer odd ones.
inline std::vector<size_t> test_lengths() {
  std::vector<size_t> lengths;
  for (size_t n = 0; n <= 49; ++n) lengths.push_back(n);
  for (const size_t n : {54, 64, 72, 90, 127, 128, 129, 1000, 1025}) lengths.push_back(n);
  return lengths;
}

inline std::string label(const Kernels& kernels, std::string_view what, size_t n) {
  return std::string(isa_name(kernels.isa)) + " " + std::string(what) +
         ", n = " + std::to_string(n);
}

}  // namespace k3::kernels
