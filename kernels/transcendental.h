// exp, sigmoid and tanh, defined once for every instruction set: the same operations in the same
// order on each lane of V, one of the types Vec of {scalar,avx2,avx512}/lanewise.h. libm is not
// used because its bits differ between machines. Origin of the coefficients and the measured
// errors: docs/numeric-contract.md.
#pragma once

#include <cstddef>
#include <cstdint>

namespace k3::kernels {

/// p * 2^n for n in [-252, 254]; `shifted` is n + 0x1.8p23, whose low bits hold n. Two factors, for
/// one alone cannot reach subnormal results; the first product is exact, the second rounds once.
template <class V>
inline V times_power_of_two(V p, V shifted) {
  const auto n = as_int(shifted) - as_int(V::broadcast(0x1.8p23F));
  const auto half = shift_right(n);
  const V first = as_float(shift_left_23(half + 127));
  const V second = as_float(shift_left_23((n - half) + 127));
  return (p * first) * second;
}

/// e^x. Subnormal results are rounded once; above the largest float +inf; -inf gives +0.
template <class V>
inline V exp(V x) {
  // The bounds keep n in range; beyond them the result is +0 or +inf as well. The argument order
  // lets a NaN through.
  x = max(V::broadcast(-110.0F), min(V::broadcast(90.0F), x));
  // x = n ln2 + r with |r| <= ln2/2; adding 1.5 * 2^23 rounds to the nearest integer.
  const V shifted = fma(x, V::broadcast(0x1.715476p+0F), V::broadcast(0x1.8p23F));
  const V n = shifted - V::broadcast(0x1.8p23F);
  const V first = fma(n, V::broadcast(-0x1.62e400p-1F), x);  // exact: 15 bits of ln2
  const V rest = V::broadcast(-0x1.7f7d1cp-20F);             // the rest of ln2
  const V r = fma(n, rest, first);
  const V r_error = fma(n, rest, first - r);
  V q = V::broadcast(0x1.6a5234p-10F);
  q = fma(q, r, V::broadcast(0x1.12396cp-7F));
  q = fma(q, r, V::broadcast(0x1.5558aap-5F));
  q = fma(q, r, V::broadcast(0x1.555492p-3F));
  q = fma(q, r, V::broadcast(0x1.fffffcp-2F));
  // 1 + r + (r^2 q + error), where the rounding of 1 + r is carried into the small summand.
  const V one = V::broadcast(1.0F);
  const V sum = one + r;
  const V small = fma(r * r, q, r_error) + (r - (sum - one));
  return times_power_of_two(sum + small, shifted);
}

/// 1 / (1 + e^-x), computed from e = e^-|x| so that nothing overflows and small results keep their
/// digits down to the subnormals. Below zero e / (1 + e) alone would be off by up to 2.4 ulp: the
/// form e - e * (e / (1 + e)) shrinks the errors of the quotient by e.
template <class V>
inline V sigmoid(V x) {
  const V zero = V::broadcast(0.0F);
  const V one = V::broadcast(1.0F);
  const V e = exp(zero - abs(x));
  const auto negative = less(x, zero);
  const V quotient = select(negative, e, one) / (one + e);
  return select(negative, fma(zero - e, quotient, e), quotient);
}

/// An odd polynomial below 0.625, 1 - 2/(e^2|x| + 1) above.
template <class V>
inline V tanh(V x) {
  const V size = abs(x);
  const V square = x * x;
  V p = V::broadcast(-0x1.750ce2p-8F);
  p = fma(p, square, V::broadcast(0x1.51f8cep-6F));
  p = fma(p, square, V::broadcast(-0x1.b835a4p-5F));
  p = fma(p, square, V::broadcast(0x1.1106f6p-3F));
  p = fma(p, square, V::broadcast(-0x1.555532p-2F));
  const V near_zero = fma(p * square, size, size);
  const V one = V::broadcast(1.0F);
  const V above = one - V::broadcast(2.0F) / (exp(size + size) + one);
  return copysign(select(less(size, V::broadcast(0.625F)), near_zero, above), x);
}

}  // namespace k3::kernels
