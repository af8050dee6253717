// The table of AVX-512: that of avx2 with the pointers overwritten that have a faster version here.
#include "kernels/avx2/functions.h"
#include "kernels/avx512/functions.h"

namespace k3::kernels::avx512 {

Kernels make_table() {
  Kernels t = avx2::make_table();
  t.isa = Isa::kAvx512;
  t.matmul_bf16 = matmul_bf16;
  t.matmul_f32 = matmul_f32;
  t.matmul_mxfp4 = matmul_mxfp4;
  t.matmul_packed = matmul_packed;
  t.unpack = unpack;
  t.dot = dot;
  t.rms_norm = rms_norm;
  t.l2_norm = l2_norm;
  t.attn_res_score = attn_res_score;
  t.weighted_sum = weighted_sum;
  t.softmax = softmax;
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
  t.accumulate_rows = accumulate_rows;
  t.attend_tile = attend_tile;
  return t;
}

}  // namespace k3::kernels::avx512
