#include "kernels/scalar/functions.h"
#include "kernels/scalar/lanewise.h"
#include "kernels/vector_loop.h"

namespace k3::kernels::scalar {

#include "kernels/searches.inc"

}  // namespace k3::kernels::scalar
