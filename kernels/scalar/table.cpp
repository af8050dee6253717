// The scalar table: every operation, as defined.
#include "kernels/scalar/functions.h"

namespace k3::kernels::scalar {

Kernels make_table() {
  Kernels t{};
  t.isa = Isa::kScalar;
  t.matmul_bf16 = matmul_bf16;
  t.matmul_f32 = matmul_f32;
  t.matmul_mxfp4 = matmul_mxfp4;
  t.matmul_packed = matmul_packed;
  t.unpack = unpack;
  t.pack_pairs = pack_pairs;
  t.pack_octets = pack_octets;
  t.dot = dot;
  t.widen_bf16 = widen_bf16;
  t.accumulate_rows = accumulate_rows;
  t.rms_norm = rms_norm;
  t.l2_norm = l2_norm;
  t.attn_res_score = attn_res_score;
  t.softmax = softmax;
  t.weighted_sum = weighted_sum;
  t.add = add;
  t.multiply = multiply;
  t.add_scaled = add_scaled;
  t.divide = divide;
  t.exp = exp;
  t.sigmoid = sigmoid;
  t.gate = gate;
  t.situ = situ;
  t.kda_decay = kda_decay;
  t.short_conv = short_conv;
  t.all_finite = all_finite;
  t.argmax = argmax;
  t.kda_head = kda_head;
  t.attend_tile = attend_tile;
  return t;
}

}  // namespace k3::kernels::scalar
