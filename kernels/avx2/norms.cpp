#include "kernels/avx2/functions.h"
#include "kernels/avx2/lanewise.h"
#include "kernels/transcendental.h"
#include "kernels/vector_loop.h"

namespace k3::kernels::avx2 {

#include "kernels/norms.inc"

}  // namespace k3::kernels::avx2
