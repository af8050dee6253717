// The table of AVX2 and FMA: that of scalar with the pointers overwritten that have a faster
// version here.
#include "kernels/avx2/functions.h"
#include "kernels/scalar/functions.h"

namespace k3::kernels::avx2 {

Kernels make_table() {
  Kernels t = scalar::make_table();
  t.isa = Isa::kAvx2;
  return t;
}

}  // namespace k3::kernels::avx2
