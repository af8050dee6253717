#include "kernels/avx512/functions.h"
#include "kernels/avx512/lanewise.h"
#include "kernels/transcendental.h"
#include "kernels/vector_loop.h"

namespace k3::kernels::avx512 {

#include "kernels/norms.inc"

}  // namespace k3::kernels::avx512
