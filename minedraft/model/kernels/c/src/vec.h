/* Sixteen floats, whatever the instruction set, so that every sum has one order on every CPU: lane =
 * index mod 16, then one fixed tree. Every operation rounds as IEEE says; nothing here contracts.
 * A comparison with NaN is false, so min and max give their second argument then. */
#ifndef MD_VEC_H
#define MD_VEC_H

#include <string.h>

#include "api.h"

#define MD_INLINE static inline __attribute__((always_inline))
/* Unrolls the loops over a tile of registers: without it they spill to memory. */
#define MD_UNROLL _Pragma("GCC unroll 16")

/* Each of these defines v16, m16 (a mask of 16 lanes), and the operations that differ. */
#if defined(__AVX512F__)
#include "vec_avx512.h"
#elif defined(__AVX2__)
#include "vec_avx2.h"
#elif defined(__ARM_NEON)
#include "vec_neon.h"
#else
#error "no vectors for this instruction set"
#endif

MD_INLINE float md_widen(uint16_t x) {
  uint32_t bits = (uint32_t)x << 16;
  float f;
  memcpy(&f, &bits, 4);
  return f;
}

/* Round to nearest, ties to even; NaN stays NaN. */
MD_INLINE uint16_t md_round(float x) {
  uint32_t bits;
  memcpy(&bits, &x, 4);
  if (x != x) return (uint16_t)((bits >> 16) | 0x40);
  return (uint16_t)((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

MD_INLINE float md_load(const void *at, int64_t i, int32_t dtype) {
  return dtype == MD_BFLOAT16 ? md_widen(((const uint16_t *)at)[i]) : ((const float *)at)[i];
}

MD_INLINE void md_store(void *at, int64_t i, float x, int32_t dtype) {
  if (dtype == MD_BFLOAT16)
    ((uint16_t *)at)[i] = md_round(x);
  else
    ((float *)at)[i] = x;
}

MD_INLINE v16 v16_load_as(const void *at, int64_t i, int32_t dtype) {
  return dtype == MD_BFLOAT16 ? v16_load_bf16((const uint16_t *)at + i)
                              : v16_load((const float *)at + i);
}

MD_INLINE void v16_store_as(void *at, int64_t i, v16 x, int32_t dtype) {
  if (dtype == MD_BFLOAT16)
    v16_store_bf16((uint16_t *)at + i, x);
  else
    v16_store((float *)at + i, x);
}

/* The first n of 16 elements, the rest 0; reads nothing behind them. */
MD_INLINE v16 v16_load_first(const void *at, int64_t i, int64_t n, int32_t dtype) {
  float lanes[16] = {0};
  if (dtype == MD_BFLOAT16) {
    uint16_t half[16] = {0};
    memcpy(half, (const uint16_t *)at + i, (size_t)n * 2);
    return v16_load_bf16(half);
  }
  memcpy(lanes, (const float *)at + i, (size_t)n * 4);
  return v16_load(lanes);
}

MD_INLINE void v16_store_first(void *at, int64_t i, v16 x, int64_t n, int32_t dtype) {
  float lanes[16];
  if (dtype == MD_BFLOAT16) {
    uint16_t half[16];
    v16_store_bf16(half, x);
    memcpy((uint16_t *)at + i, half, (size_t)n * 2);
    return;
  }
  v16_store(lanes, x);
  memcpy((float *)at + i, lanes, (size_t)n * 4);
}

/* n elements, all 16 of them without a detour. */
MD_INLINE v16 v16_load_n(const void *at, int64_t i, int64_t n, int32_t dtype) {
  return n == 16 ? v16_load_as(at, i, dtype) : v16_load_first(at, i, n, dtype);
}
MD_INLINE void v16_store_n(void *at, int64_t i, v16 x, int64_t n, int32_t dtype) {
  if (n == 16)
    v16_store_as(at, i, x, dtype);
  else
    v16_store_first(at, i, x, n, dtype);
}

/* What x is once it was stored as dtype. */
MD_INLINE v16 v16_rounded(v16 x, int32_t dtype) {
  return dtype == MD_BFLOAT16 ? v16_round_bf16(x) : x;
}

#include "vec_math.h"

#endif
