#include "engine/isa.h"

#include <fmt/format.h>

#include <cstdlib>

#include "k3/error.h"
#include "kernels/dispatch.h"

namespace k3::engine {

kernels::Isa choose_isa() {
  return choose_isa(kernels::best_isa(), std::getenv("K3_ISA"));
}

kernels::Isa choose_isa(std::optional<kernels::Isa> best, const char* forced) {
  if (!best) {
    throw Error(
        ErrorKind::kUsage,
        "this CPU lacks AVX2 and FMA, which k3 needs; use a processor of 2013 or later that "
        "has both (in a virtual machine: pass the host's CPU through)");
  }
  if (forced == nullptr || *forced == '\0') return *best;
  const std::optional<kernels::Isa> isa = kernels::isa_from_name(forced);
  if (!isa) {
    throw Error(ErrorKind::kUsage,
                fmt::format("K3_ISA is \"{}\"; expected scalar, avx2 or avx512", forced));
  }
  if (*isa > *best) {
    throw Error(ErrorKind::kUsage, fmt::format("K3_ISA asks for {}, but this CPU has {} at most",
                                               forced, kernels::isa_name(*best)));
  }
  return *isa;
}

}  // namespace k3::engine
