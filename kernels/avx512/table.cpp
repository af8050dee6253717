// The table of AVX-512: that of avx2 with the pointers overwritten that have a faster version here.
#include "kernels/avx2/functions.h"
#include "kernels/avx512/functions.h"

namespace k3::kernels::avx512 {

Kernels make_table() {
  Kernels t = avx2::make_table();
  t.isa = Isa::kAvx512;
  return t;
}

}  // namespace k3::kernels::avx512
