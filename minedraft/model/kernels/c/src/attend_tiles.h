/* The two products of attention over one chunk of keys, as tiles of registers. A tile only says how
 * many sums run beside each other: every sum is one chain, over features or over positions, rising. */
#ifndef MD_ATTEND_TILES_H
#define MD_ATTEND_TILES_H

#include "vec.h"

enum {
  TILE = 6,             /* most queries of a tile */
  SPAN = 4,             /* most vectors beside each other for a query */
  GROUPS = 16,          /* groups of 16 positions in a chunk */
  AHEAD = 3,            /* groups whose values are fetched before they are needed */
  CHUNK = 16 * GROUPS,  /* positions; scores of a chunk stay in cache */
  SCORES = CHUNK + 16   /* floats from one query's scores to the next: not a power of two */
};

/* Sixteen positions of one KV head in one block. An array of them goes on for SPAN groups: what is
 * needed next, which the tiles fetch from memory in advance, because blocks lie anywhere. */
typedef struct {
  const void *keys;    /* features `lanes` elements apart */
  const void *values;  /* positions `value_row` elements apart */
  int64_t first;       /* position */
  int64_t count;       /* positions that exist, at most 16 */
} key_group;

/* Queries first <= key < last see a key. */
typedef struct {
  int64_t first, last;
} seen;

/* scores[r][16 * b + lane] = q[r] . key of groups[b], for R queries and B groups. */
MD_INLINE void score_tile(int R, int B, int32_t dtype, const float *q, int64_t dim,
                          const key_group *groups, int64_t lanes, float *scores) {
  const int64_t size = dtype == MD_BFLOAT16 ? 2 : 4;
  v16 sums[TILE][SPAN];
  MD_UNROLL for (int r = 0; r < R; r++) MD_UNROLL for (int b = 0; b < B; b++) sums[r][b] = v16_zero();
  for (int64_t d = 0; d < dim; d++) {
    v16 keys[SPAN];
    MD_UNROLL for (int b = 0; b < B; b++) {
      keys[b] = v16_load_as(groups[b].keys, d * lanes, dtype);
      __builtin_prefetch((const char *)groups[b + SPAN].keys + d * lanes * size);
    }
    MD_UNROLL for (int r = 0; r < R; r++) {
      v16 x = v16_set(q[r * dim + d]);
      MD_UNROLL for (int b = 0; b < B; b++) sums[r][b] = v16_fma(x, keys[b], sums[r][b]);
    }
  }
  MD_UNROLL for (int r = 0; r < R; r++)
    MD_UNROLL for (int b = 0; b < B; b++) v16_store(scores + r * SCORES + 16 * b, sums[r][b]);
}

/* One position's values into the sums of the queries that see it; `all` do, or each is asked. */
MD_INLINE void weigh_position(int R, int C, int32_t dtype, const float *weights, const seen *sees,
                              const key_group *group, int64_t n, int64_t at, int all,
                              v16 sums[TILE][SPAN]) {
  const int64_t size = dtype == MD_BFLOAT16 ? 2 : 4;
  v16 values[SPAN];
  MD_UNROLL for (int c = 0; c < C; c++) {
    values[c] = v16_load_as(group->values, at + 16 * c, dtype);
    __builtin_prefetch((const char *)group[AHEAD].values + (at + 16 * c) * size);
  }
  MD_UNROLL for (int r = 0; r < R; r++) {
    if (!all && (group->first + n < sees[r].first || group->first + n >= sees[r].last)) continue;
    v16 x = v16_set(weights[r * SCORES + n]);
    MD_UNROLL for (int c = 0; c < C; c++) sums[r][c] = v16_fma(x, values[c], sums[r][c]);
  }
}

/* out[r][0 .. 16 C) = out[r] * scale[r] + sum of weights[r][key] * value, over the keys that r sees.
 * A key that only some of the R queries see is not multiplied by 0 for the rest: 0 * NaN is NaN. */
MD_INLINE void weigh_tile(int R, int C, int32_t dtype, const float *weights, const float *scale,
                          const seen *sees, const key_group *groups, int64_t num_groups,
                          int64_t column, int64_t value_row, float *out) {
  v16 sums[TILE][SPAN];
  seen any = sees[0], all = sees[0];
  MD_UNROLL for (int r = 0; r < R; r++) {
    if (sees[r].first < any.first) any.first = sees[r].first;
    if (sees[r].last > any.last) any.last = sees[r].last;
    if (sees[r].first > all.first) all.first = sees[r].first;
    if (sees[r].last < all.last) all.last = sees[r].last;
    v16 x = v16_set(scale[r]);
    MD_UNROLL for (int c = 0; c < C; c++)
      sums[r][c] = v16_mul(v16_load(out + r * value_row + 16 * c), x);
  }
  for (int64_t g = 0; g < num_groups; g++, weights += 16) {
    const key_group *at = groups + g;
    int64_t n = any.first - at->first, last = any.last - at->first;
    int64_t from = all.first - at->first, to = all.last - at->first;
    if (n < 0) n = 0;
    if (last > at->count) last = at->count;
    if (from > last) from = last;
    if (to > last) to = last;
#define WEIGH(all) \
  weigh_position(R, C, dtype, weights, sees, at, n, n * value_row + column, all, sums)
    while (n < last) {
      if (n < from || n >= to) {
        WEIGH(0);
        n++;
      } else {
        for (; n < to; n++) WEIGH(1);
      }
    }
#undef WEIGH
  }
  MD_UNROLL for (int r = 0; r < R; r++)
    MD_UNROLL for (int c = 0; c < C; c++) v16_store(out + r * value_row + 16 * c, sums[r][c]);
}

/* Vectors beside each other for R queries: as many as the registers hold. */
#if defined(__AVX512F__)
#define MD_SPAN(R) ((R) <= 3 ? 4 : 2)
#else
#define MD_SPAN(R) ((R) == 1 ? 4 : (R) <= 3 ? 2 : 1)
#endif

/* Calls F(R, S, ...) for constants R = queries and S = MD_SPAN(R), or 1 where fewer are left; `step`
 * gets S. */
#define MD_TILE(R, F, vectors, ...)  \
  case R:                            \
    if ((vectors) >= MD_SPAN(R)) {   \
      step = MD_SPAN(R);             \
      F(R, MD_SPAN(R), __VA_ARGS__); \
    } else {                         \
      step = 1;                      \
      F(R, 1, __VA_ARGS__);          \
    }                                \
    break;
#define MD_TILES(queries, F, vectors, ...) \
  switch (queries) {                       \
    MD_TILE(1, F, vectors, __VA_ARGS__)    \
    MD_TILE(2, F, vectors, __VA_ARGS__)    \
    MD_TILE(3, F, vectors, __VA_ARGS__)    \
    MD_TILE(4, F, vectors, __VA_ARGS__)    \
    MD_TILE(5, F, vectors, __VA_ARGS__)    \
    default:                               \
      MD_TILE(6, F, vectors, __VA_ARGS__)  \
  }

#endif
