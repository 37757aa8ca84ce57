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

/* Where a tile finds its weights. */
enum {
  FROM_FLOATS = MD_FLOATS,
  FROM_PAIRS = MD_PAIRS,
  FROM_BUFFER = 2, /* widened before: float32 [k][P][16] */
  SOURCES = 3
};

typedef struct {
  const float *x;
  int64_t x_stride; /* floats between rows */
  const char *w;
  int64_t w_stride; /* bytes between panels */
  int64_t k;
  float *sums;
  int64_t sums_stride; /* floats between rows */
  int32_t first;       /* start from zero, else from the sums */
  int64_t jump;        /* bytes from a panel to that of the next group: fetched ahead */
} tile_in;

/* Bytes to fetch ahead: the latency of memory at the rate at which one core can read. */
enum { AHEAD_BYTES = 1024 };

MD_INLINE void fetch(const char *at) { __builtin_prefetch(at, 0, 3); }

MD_INLINE void tile(const int R, const int P, const int from, const tile_in *in) {
  const int64_t xs = in->x_stride, ws = from == FROM_BUFFER ? MD_LINE_BYTES : in->w_stride;
  const int64_t per_k = from == FROM_BUFFER ? P * MD_LINE_BYTES : MD_LINE_BYTES;
  const int64_t per_pair = from == FROM_PAIRS ? MD_LINE_BYTES : 2 * per_k;
  const float *x = in->x;
  const char *w = in->w;
  v16 acc[MAX_ROWS][MAX_PANELS];
#pragma GCC unroll 12
  for (int r = 0; r < R; r++) {
#pragma GCC unroll 8
    for (int p = 0; p < P; p++)
      acc[r][p] = in->first ? v16_zero() : v16_load(in->sums + r * in->sums_stride + p * 16);
  }
  const int64_t pairs = in->k / 2, bytes = pairs * per_pair;
  int64_t i = 0, ahead = AHEAD_BYTES;
  int64_t until = bytes > AHEAD_BYTES ? (bytes - AHEAD_BYTES) / per_pair : 0;
  if (from == FROM_BUFFER) until = 0;
  for (int part = 0; part < 2; part++) {
    for (; i < until; i++, x += 2, w += per_pair) {
#pragma GCC unroll 2
      for (int odd = 1; odd >= 0; odd--) {
        v16 b[MAX_PANELS];
#pragma GCC unroll 8
        for (int p = 0; p < P; p++) {
          const char *at = w + p * ws;
          if (from == FROM_PAIRS) {
            b[p] = odd ? v16_odd_bf16((const uint16_t *)at) : v16_even_bf16((const uint16_t *)at);
            if (odd) fetch(at + ahead);
          } else {
            b[p] = v16_load((const float *)(at + odd * per_k));
            if (from == FROM_FLOATS) fetch(at + odd * per_k + ahead);
          }
        }
#pragma GCC unroll 12
        for (int r = 0; r < R; r++) {
          v16 a = v16_set(x[r * xs + odd]);
#pragma GCC unroll 8
          for (int p = 0; p < P; p++) acc[r][p] = v16_fma(a, b[p], acc[r][p]);
        }
      }
    }
    until = pairs;
    ahead = AHEAD_BYTES - bytes + in->jump;
  }
  if (in->k & 1) {
#pragma GCC unroll 8
    for (int p = 0; p < P; p++) {
      const char *at = w + p * ws;
      v16 b = from == FROM_PAIRS ? v16_even_bf16((const uint16_t *)at) : v16_load((const float *)at);
#pragma GCC unroll 12
      for (int r = 0; r < R; r++) acc[r][p] = v16_fma(v16_set(x[r * xs]), b, acc[r][p]);
    }
  }
#pragma GCC unroll 12
  for (int r = 0; r < R; r++) {
#pragma GCC unroll 8
    for (int p = 0; p < P; p++) v16_store(in->sums + r * in->sums_stride + p * 16, acc[r][p]);
  }
}

#endif
