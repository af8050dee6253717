#include "kernels/avx512/functions.h"
#include "kernels/avx512/lanewise.h"
#include "kernels/vector_loop.h"

namespace k3::kernels::avx512 {

#include "kernels/searches.inc"

}  // namespace k3::kernels::avx512
