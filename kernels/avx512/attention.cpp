#include "kernels/avx512/functions.h"
#include "kernels/avx512/lanewise.h"
#include "kernels/transcendental.h"
#include "kernels/vector_loop.h"

namespace k3::kernels::avx512 {

constexpr size_t kTileVectors = 4;  // 6 x 4 sums, 4 latents and a weight: 29 of 32 registers

#include "kernels/attention.inc"

}  // namespace k3::kernels::avx512
