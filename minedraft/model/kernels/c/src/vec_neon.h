/* vec.h by NEON of aarch64: four quarters of four. */
#ifndef MD_VEC_NEON_H
#define MD_VEC_NEON_H

#include <arm_neon.h>

typedef struct {
  float32x4_t q[4];
} v16;
typedef struct {
  uint32x4_t q[4];
} m16;

#define MD_QUARTERS(name, ...)                           \
  MD_INLINE v16 name(v16 x, v16 y) {                     \
    v16 z;                                               \
    MD_UNROLL for (int i = 0; i < 4; i++) {              \
      float32x4_t a = x.q[i], b = y.q[i];                \
      z.q[i] = __VA_ARGS__;                              \
    }                                                    \
    return z;                                            \
  }
MD_QUARTERS(v16_add, vaddq_f32(a, b))
MD_QUARTERS(v16_sub, vsubq_f32(a, b))
MD_QUARTERS(v16_mul, vmulq_f32(a, b))
MD_QUARTERS(v16_div, vdivq_f32(a, b))
/* Not vminq and vmaxq, which give NaN where x86 gives the second argument. */
MD_QUARTERS(v16_min, vbslq_f32(vcltq_f32(a, b), a, b))
MD_QUARTERS(v16_max, vbslq_f32(vcgtq_f32(a, b), a, b))
#undef MD_QUARTERS

MD_INLINE v16 v16_set(float x) {
  float32x4_t q = vdupq_n_f32(x);
  return (v16){{q, q, q, q}};
}
MD_INLINE v16 v16_zero(void) { return v16_set(0.0f); }
MD_INLINE v16 v16_load(const float *p) {
  return (v16){{vld1q_f32(p), vld1q_f32(p + 4), vld1q_f32(p + 8), vld1q_f32(p + 12)}};
}
MD_INLINE void v16_store(float *p, v16 x) {
  MD_UNROLL for (int i = 0; i < 4; i++) vst1q_f32(p + 4 * i, x.q[i]);
}
/* a * b + c, rounded once. */
MD_INLINE v16 v16_fma(v16 a, v16 b, v16 c) {
  v16 z;
  MD_UNROLL for (int i = 0; i < 4; i++) z.q[i] = vfmaq_f32(c.q[i], a.q[i], b.q[i]);
  return z;
}

MD_INLINE m16 v16_lt(v16 x, v16 y) {
  m16 z;
  MD_UNROLL for (int i = 0; i < 4; i++) z.q[i] = vcltq_f32(x.q[i], y.q[i]);
  return z;
}
/* The lanes first <= lane < last. */
MD_INLINE m16 m16_range(int64_t first, int64_t last) {
  static const int32_t lanes[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  int32x4_t from = vdupq_n_s32((int32_t)first), to = vdupq_n_s32((int32_t)last);
  m16 z;
  MD_UNROLL for (int i = 0; i < 4; i++) {
    int32x4_t lane = vld1q_s32(lanes + 4 * i);
    z.q[i] = vandq_u32(vcgeq_s32(lane, from), vcltq_s32(lane, to));
  }
  return z;
}
/* x where the mask is set, else y. */
MD_INLINE v16 v16_select(m16 mask, v16 x, v16 y) {
  v16 z;
  MD_UNROLL for (int i = 0; i < 4; i++) z.q[i] = vbslq_f32(mask.q[i], x.q[i], y.q[i]);
  return z;
}

MD_INLINE v16 v16_abs(v16 x) {
  MD_UNROLL for (int i = 0; i < 4; i++) x.q[i] = vabsq_f32(x.q[i]);
  return x;
}
/* x * 2^n for n that came out of v16_round_to_int; x and the product normal. */
MD_INLINE v16 v16_scale2(v16 x, v16 magic) {
  MD_UNROLL for (int i = 0; i < 4; i++) {
    uint32x4_t n = vshlq_n_u32(vreinterpretq_u32_f32(magic.q[i]), 23);
    x.q[i] = vreinterpretq_f32_u32(vaddq_u32(vreinterpretq_u32_f32(x.q[i]), n));
  }
  return x;
}

MD_INLINE v16 v16_load_bf16(const uint16_t *p) {
  v16 z;
  MD_UNROLL for (int i = 0; i < 4; i++)
    z.q[i] = vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(p + 4 * i), 16));
  return z;
}

/* Sixteen pairs of bf16: the first and the second of each. */
MD_INLINE v16 v16_even_bf16(const uint16_t *p) {
  v16 z;
  MD_UNROLL for (int i = 0; i < 4; i++) {
    uint32x4_t pairs = vreinterpretq_u32_u16(vld1q_u16(p + 8 * i));
    z.q[i] = vreinterpretq_f32_u32(vshlq_n_u32(pairs, 16));
  }
  return z;
}
MD_INLINE v16 v16_odd_bf16(const uint16_t *p) {
  v16 z;
  MD_UNROLL for (int i = 0; i < 4; i++) {
    uint32x4_t pairs = vreinterpretq_u32_u16(vld1q_u16(p + 8 * i));
    z.q[i] = vreinterpretq_f32_u32(vandq_u32(pairs, vdupq_n_u32(0xffff0000u)));
  }
  return z;
}

/* Rounded to bf16, ties to even. */
MD_INLINE v16 v16_round_bf16(v16 x) {
  MD_UNROLL for (int i = 0; i < 4; i++) {
    uint32x4_t bits = vreinterpretq_u32_f32(x.q[i]);
    uint32x4_t odd = vandq_u32(vshrq_n_u32(bits, 16), vdupq_n_u32(1));
    uint32x4_t up = vaddq_u32(bits, vaddq_u32(odd, vdupq_n_u32(0x7fff)));
    uint32x4_t nan = vorrq_u32(bits, vdupq_n_u32(0x400000));
    uint32x4_t either = vbslq_u32(vceqq_f32(x.q[i], x.q[i]), up, nan);
    x.q[i] = vreinterpretq_f32_u32(vandq_u32(either, vdupq_n_u32(0xffff0000u)));
  }
  return x;
}
MD_INLINE void v16_store_bf16(uint16_t *p, v16 x) {
  x = v16_round_bf16(x);
  MD_UNROLL for (int i = 0; i < 4; i++)
    vst1_u16(p + 4 * i, vshrn_n_u32(vreinterpretq_u32_f32(x.q[i]), 16));
}

MD_INLINE float md_sqrt(float x) { return vget_lane_f32(vsqrt_f32(vdup_n_f32(x)), 0); }

/* ((0+8)+(4+12)) + ((2+10)+(6+14)), likewise the odd lanes, then their sum. */
MD_INLINE float v16_sum(v16 x) {
  float32x4_t b = vaddq_f32(vaddq_f32(x.q[0], x.q[2]), vaddq_f32(x.q[1], x.q[3]));
  float32x2_t c = vadd_f32(vget_low_f32(b), vget_high_f32(b));
  return vget_lane_f32(c, 0) + vget_lane_f32(c, 1);
}
MD_INLINE float v16_largest(v16 x) {
  float lanes[16], most;
  v16_store(lanes, x);
  most = lanes[15];
  for (int i = 14; i >= 0; i--) most = lanes[i] > most ? lanes[i] : most;
  return most;
}

#endif
