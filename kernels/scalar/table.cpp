// The scalar table: every operation, as defined.
#include "kernels/scalar/functions.h"

namespace k3::kernels::scalar {

Kernels make_table() {
  Kernels t{};
  t.isa = Isa::kScalar;
  return t;
}

}  // namespace k3::kernels::scalar
