#include "kernels/dispatch.h"

#include <array>

#include "kernels/avx2/functions.h"
#include "kernels/avx2/limits.h"
#include "kernels/avx512/functions.h"
#include "kernels/avx512/limits.h"
#include "kernels/scalar/functions.h"

namespace k3::kernels {
namespace {

struct NamedIsa {
  Isa isa;
  std::string_view name;
};

constexpr std::array kIsas{NamedIsa{Isa::kScalar, "scalar"}, NamedIsa{Isa::kAvx2, "avx2"},
                           NamedIsa{Isa::kAvx512, "avx512"}};

// __builtin_cpu_supports also asks whether the operating system saves the registers.
bool has_avx2() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
         __builtin_cpu_supports("bmi");
}

bool has_avx512() {
  return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
}

}  // namespace

std::optional<Isa> best_isa() {
  if (has_avx512()) return Isa::kAvx512;
  if (has_avx2()) return Isa::kAvx2;
  return std::nullopt;
}

const Kernels& table(Isa isa) {
  switch (isa) {
    case Isa::kAvx512: {
      static const Kernels avx512_table = avx512::make_table();
      return avx512_table;
    }
    case Isa::kAvx2: {
      static const Kernels avx2_table = avx2::make_table();
      return avx2_table;
    }
    case Isa::kScalar:
      break;
  }
  static const Kernels scalar_table = scalar::make_table();
  return scalar_table;
}

const LimitProbes& limit_probes(Isa isa) {
  return isa == Isa::kAvx512 ? avx512::kLimitProbes : avx2::kLimitProbes;
}

std::string_view isa_name(Isa isa) {
  return kIsas[static_cast<size_t>(isa)].name;
}

std::optional<Isa> isa_from_name(std::string_view name) {
  for (const NamedIsa& known : kIsas) {
    if (known.name == name) return known.isa;
  }
  return std::nullopt;
}

}  // namespace k3::kernels
