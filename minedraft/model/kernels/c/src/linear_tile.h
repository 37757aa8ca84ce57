/* Register tiles: R rows times P panels of 16 outputs, over float32 activations.
 *
 * One source for all instruction sets: R and P are constants where it is inlined, so the sums stay
 * in registers. Not here: rounding, bias, tails of N (panels are padded).
 */
#ifndef MD_LINEAR_TILE_H
#define MD_LINEAR_TILE_H

#include "linear.h"
#include "vec.h"

#if defined(__AVX512F__)
enum { MAX_ROWS = 12, MAX_PANELS = 8 };
#else
enum { MAX_ROWS = 6, MAX_PANELS = 4 };
#endif

typedef struct {
  const float *x;
  int64_t x_stride; /* floats between rows */
  const char *w;    /* MD_FLOATS or MD_PAIRS */
  int64_t w_stride; /* bytes between panels */
  int64_t k;
  float *sums;
  int64_t sums_stride; /* floats between rows */
  int32_t first;       /* start from zero, else from the sums */
  /* What is fetched meanwhile: `near` bytes ahead while that is within the panel, then `far`. */
  int64_t near, far;
} tile_in;

MD_INLINE void fetch(const char *at) { __builtin_prefetch(at, 0, 3); }

/* The address of row r with few registers: every third row has one, the others are added to it. */
#define ROW(r) (third[(r) / 3] + (r) % 3 * xs)

MD_INLINE void tile(const int R, const int P, const int kind, const tile_in *in) {
  const int64_t xs = in->x_stride, ws = in->w_stride;
  const int64_t per_pair = kind == MD_PAIRS ? MD_LINE_BYTES : 2 * MD_LINE_BYTES;
  const float *third[(MAX_ROWS + 2) / 3];
  const char *w = in->w;
#pragma GCC unroll 4
  for (int i = 0; i < (R + 2) / 3; i++) third[i] = in->x + 3 * i * xs;
  v16 acc[MAX_ROWS][MAX_PANELS];
#pragma GCC unroll 12
  for (int r = 0; r < R; r++) {
#pragma GCC unroll 8
    for (int p = 0; p < P; p++)
      acc[r][p] = in->first ? v16_zero() : v16_load(in->sums + r * in->sums_stride + p * 16);
  }
  const int64_t pairs = in->k / 2, bytes = pairs * per_pair;
  int64_t i = 0, until = bytes > in->near ? (bytes - in->near) / per_pair : 0, ahead = in->near;
  for (int part = 0; part < 2; part++) {
    for (; i < until; i++, w += per_pair) {
#pragma GCC unroll 2
      for (int odd = 1; odd >= 0; odd--) {
        v16 b[MAX_PANELS];
#pragma GCC unroll 8
        for (int p = 0; p < P; p++) {
          const char *at = w + p * ws;
          if (kind == MD_PAIRS) {
            b[p] = odd ? v16_odd_bf16((const uint16_t *)at) : v16_even_bf16((const uint16_t *)at);
            if (odd) fetch(at + ahead);
          } else {
            b[p] = v16_load((const float *)at + odd * MD_PANEL);
            fetch(at + odd * MD_LINE_BYTES + ahead);
          }
        }
#pragma GCC unroll 12
        for (int r = 0; r < R; r++) {
          v16 a = v16_set(ROW(r)[odd]);
#pragma GCC unroll 8
          for (int p = 0; p < P; p++) acc[r][p] = v16_fma(a, b[p], acc[r][p]);
        }
      }
#pragma GCC unroll 4
      for (int j = 0; j < (R + 2) / 3; j++) {
        third[j] += 2;
        __asm__("" : "+r"(third[j])); /* else the compiler keeps twelve pointers, on the stack */
      }
    }
    until = pairs;
    ahead = in->far;
  }
  if (in->k & 1) {
#pragma GCC unroll 8
    for (int p = 0; p < P; p++) {
      const char *at = w + p * ws;
      v16 b = kind == MD_PAIRS ? v16_even_bf16((const uint16_t *)at) : v16_load((const float *)at);
#pragma GCC unroll 12
      for (int r = 0; r < R; r++) acc[r][p] = v16_fma(v16_set(ROW(r)[0]), b, acc[r][p]);
    }
  }
#pragma GCC unroll 12
  for (int r = 0; r < R; r++) {
#pragma GCC unroll 8
    for (int p = 0; p < P; p++) v16_store(in->sums + r * in->sums_stride + p * 16, acc[r][p]);
  }
}

#endif
