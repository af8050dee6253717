#include "kernels/scalar/functions.h"
#include "kernels/scalar/lanewise.h"
#include "kernels/transcendental.h"
#include "kernels/vector_loop.h"

namespace k3::kernels::scalar {

#include "kernels/elementwise.inc"

}  // namespace k3::kernels::scalar
