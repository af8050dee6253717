// The instruction set of this process.
#pragma once

#include <optional>

#include "kernels/table.h"

namespace k3::engine {

/// The best one that the CPU has, or the lower one that K3_ISA names. Error(kUsage) without AVX2
/// and FMA, or when K3_ISA names none or one that the CPU lacks.
kernels::Isa choose_isa();
/// The same for a CPU whose best instruction set is `best`, with K3_ISA as given (may be null).
kernels::Isa choose_isa(std::optional<kernels::Isa> best, const char* forced);

}  // namespace k3::engine
