// Which instruction set this process uses: asked of the CPU once, at start.
#pragma once

#include <optional>
#include <string_view>

#include "kernels/table.h"

namespace k3::kernels {

/// The best instruction set that this CPU and operating system offer; nullopt without AVX2 and FMA.
std::optional<Isa> best_isa();

/// The table of an instruction set. The caller has made sure that the CPU has it.
const Kernels& table(Isa isa);

/// "scalar", "avx2", "avx512".
std::string_view isa_name(Isa isa);
std::optional<Isa> isa_from_name(std::string_view name);

}  // namespace k3::kernels
