/* exp and tanh of sixteen floats: multiplications, additions and integer shifts only, so that every
 * instruction set gives the same bits. Part of vec.h. */
#ifndef MD_VEC_MATH_H
#define MD_VEC_MATH_H

/* x rounded to the nearest integer; *magic gets bits whose low byte is that integer, |x| < 2^21. */
MD_INLINE v16 v16_round_to_int(v16 x, v16 *magic) {
  const v16 shift = v16_set(12582912.0f);  /* 1.5 * 2^23: there a float's last place is 1 */
  *magic = v16_add(x, shift);
  return v16_sub(*magic, shift);
}

/* exp(x), within 1 ulp; 0 below -86.6 (so that no result is denormal), inf above 88.72; NaN stays. */
MD_INLINE v16 v16_exp(v16 x) {
  const v16 low = v16_set(-86.6f), high = v16_set(88.72283f);
  v16 magic;
  /* The order of the arguments lets NaN through. */
  v16 in = v16_min(high, v16_max(low, x));
  v16 n = v16_round_to_int(v16_mul(in, v16_set(1.44269504f)), &magic);
  v16 r = v16_fma(n, v16_set(-0.693147182f), in);
  r = v16_fma(n, v16_set(1.90465431e-9f), r);
  /* exp(r) = 1 + r + r^2 P(r) on |r| <= ln(2) / 2, to 3e-9. */
  v16 p = v16_fma(v16_set(1.38146012e-3f), r, v16_set(8.36872042e-3f));
  p = v16_fma(p, r, v16_set(4.16683883e-2f));
  p = v16_fma(p, r, v16_set(1.66665206e-1f));
  p = v16_fma(p, r, v16_set(4.99999935e-1f));
  p = v16_fma(v16_mul(r, r), p, r);
  p = v16_add(p, v16_set(1.0f));
  /* 2^128 is no float: half of it, twice. */
  const v16 inf = v16_set(__builtin_inff());
  v16 y = v16_scale2(v16_add(p, p), v16_sub(magic, v16_set(1.0f)));
  y = v16_select(v16_lt(x, low), v16_zero(), y);
  y = v16_select(v16_lt(high, x), inf, y);
  return v16_select(v16_lt(x, inf), y, x);  /* +inf and NaN give themselves */
}

/* tanh(x), within 2 ulp. */
MD_INLINE v16 v16_tanh(v16 x) {
  v16 square = v16_mul(x, x);
  /* x + x^3 P(x^2) on |x| <= 0.625, to 4e-9; beyond, 1 - 2 / (exp(2x) + 1) loses nothing. */
  v16 p = v16_fma(v16_set(-5.716968e-3f), square, v16_set(2.06505222e-2f));
  p = v16_fma(p, square, v16_set(-5.37434793e-2f));
  p = v16_fma(p, square, v16_set(1.33314911e-1f));
  p = v16_fma(p, square, v16_set(-3.33332839e-1f));
  v16 near = v16_fma(v16_mul(square, x), p, x);
  v16 size = v16_abs(x), one = v16_set(1.0f);
  v16 e = v16_exp(v16_add(size, size));
  v16 far = v16_sub(one, v16_div(v16_set(2.0f), v16_add(e, one)));
  far = v16_select(v16_lt(x, v16_zero()), v16_sub(v16_zero(), far), far);
  return v16_select(v16_lt(size, v16_set(0.625f)), near, far);
}

#endif
