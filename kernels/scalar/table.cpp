// The scalar table: every operation, as defined.
#include "kernels/scalar/functions.h"

namespace k3::kernels::scalar {

Kernels make_table() {
  Kernels t{};
  t.isa = Isa::kScalar;
  t.matmul_bf16 = matmul_bf16;
  t.matmul_f32 = matmul_f32;
  t.matmul_mxfp4 = matmul_mxfp4;
  t.pack_pairs = pack_pairs;
  t.pack_octets = pack_octets;
  t.dot = dot;
  t.widen_bf16 = widen_bf16;
  t.accumulate_rows = accumulate_rows;
  return t;
}

}  // namespace k3::kernels::scalar
