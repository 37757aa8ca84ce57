/* Where keys and values lie, and which tokens a step feeds: what c/paged.py hands to the kernels.
 * A block's keys are transposed, so that a query meets 16 positions with one load. */
#ifndef MD_PAGED_H
#define MD_PAGED_H

#include "api.h"

/* One layer of the pool. A block has `lanes` columns of keys, block_size rounded up to 16; a row of
 * values has `value_row` elements, value_dim rounded up to 16. What fills up is never added. */
typedef struct {
  void *keys;    /* [blocks, kv_heads, key_dim, lanes] */
  void *values;  /* [blocks, kv_heads, block_size, value_row] */
  int64_t kv_heads, key_dim, value_dim, value_row, block_size, lanes;
  int64_t dtype;
} md_layer;

/* `rows` rows packed to `tokens` tokens. */
typedef struct {
  const int32_t *cu;      /* [rows + 1] first token of each row */
  const int32_t *starts;  /* [rows] position of that token */
  const int32_t *table;   /* [rows, width] blocks of each row */
  const int32_t *slots;   /* [tokens] block * block_size + offset */
  int64_t rows, width, tokens;
} md_step;

/* Address of a vector [heads, D] per token: strides in elements. */
typedef struct {
  int64_t token, head;
} md_strides;

#endif
