#include "kernels/avx2/functions.h"
#include "kernels/avx2/lanewise.h"
#include "kernels/vector_loop.h"

namespace k3::kernels::avx2 {

#include "kernels/searches.inc"

}  // namespace k3::kernels::avx2
