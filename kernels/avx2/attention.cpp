#include "kernels/avx2/functions.h"
#include "kernels/avx2/lanewise.h"
#include "kernels/transcendental.h"
#include "kernels/vector_loop.h"

namespace k3::kernels::avx2 {

constexpr size_t kTileVectors = 2;  // 6 x 2 sums, 2 latents and a weight: 15 of 16 registers

#include "kernels/attention.inc"

}  // namespace k3::kernels::avx2
