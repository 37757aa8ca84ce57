/* Puts the keys and values of a step's tokens into the pool: rotated on the way, or as they are. */
#include "paged.h"
#include "pool.h"
#include "vec.h"

typedef struct {
  const md_layer *layer;
  const md_step *step;
  void *q;  /* NULL: nothing is rotated */
  const void *k, *v;
  int64_t q_heads;
  md_strides q_at, k_at, v_at;
  int64_t k_feature, v_feature;  /* strides of features */
  const float *cos, *sin;        /* [tokens, half] */
  int64_t half;
} write_args;

/* Features j and half + j turn together. Each product is rounded, as in transformers. */
MD_INLINE void rotate(void *x, const float *cos, const float *sin, int64_t half, int32_t dtype) {
  for (int64_t j = 0; j < half; j += 16) {
    int64_t n = half - j < 16 ? half - j : 16;
    v16 a = v16_load_n(x, j, n, dtype), b = v16_load_n(x, half + j, n, dtype);
    v16 c = v16_rounded(v16_load_n(cos, j, n, MD_FLOAT32), dtype);
    v16 s = v16_rounded(v16_load_n(sin, j, n, MD_FLOAT32), dtype);
    v16 low = v16_sub(v16_rounded(v16_mul(a, c), dtype), v16_rounded(v16_mul(b, s), dtype));
    v16 high = v16_add(v16_rounded(v16_mul(b, c), dtype), v16_rounded(v16_mul(a, s), dtype));
    v16_store_n(x, j, low, n, dtype);
    v16_store_n(x, half + j, high, n, dtype);
  }
}

#define COPY(T)                                                                            \
  do {                                                                                     \
    const T *k = (const T *)w->k + t * w->k_at.token + h * w->k_at.head;                   \
    const T *v = (const T *)w->v + t * w->v_at.token + h * w->v_at.head;                   \
    T *key = (T *)l->keys + (block * l->kv_heads + h) * l->key_dim * l->lanes + offset;    \
    T *value = (T *)l->values + ((block * l->kv_heads + h) * l->block_size + offset) * l->value_row; \
    for (int64_t d = 0; d < l->key_dim; d++) key[d * l->lanes] = k[d * w->k_feature];      \
    if (w->v_feature == 1)                                                                 \
      memcpy(value, v, (size_t)l->value_dim * sizeof(T));                                  \
    else                                                                                   \
      for (int64_t d = 0; d < l->value_dim; d++) value[d] = v[d * w->v_feature];           \
  } while (0)

/* A key goes to as many cache lines as it has features: have them come while others are written. */
MD_INLINE void expect_token(const write_args *w, int64_t t, int64_t size) {
  const md_layer *l = w->layer;
  const int64_t block = w->step->slots[t] / l->block_size, offset = w->step->slots[t] % l->block_size;
  const char *key = (const char *)l->keys;
  key += (block * l->kv_heads * l->key_dim * l->lanes + offset) * size;
  for (int64_t d = 0; d < l->kv_heads * l->key_dim; d++)
    __builtin_prefetch(key + d * l->lanes * size, 1);
}

MD_INLINE void write_token(const write_args *w, int64_t t, int64_t end, int32_t dtype) {
  const md_layer *l = w->layer;
  const int64_t size = dtype == MD_BFLOAT16 ? 2 : 4;
  const int64_t block = w->step->slots[t] / l->block_size, offset = w->step->slots[t] % l->block_size;
  if (t + 1 < end) expect_token(w, t + 1, size);
  if (w->q) {
    const float *cos = w->cos + t * w->half, *sin = w->sin + t * w->half;
    for (int64_t h = 0; h < w->q_heads; h++)
      rotate((char *)w->q + (t * w->q_at.token + h * w->q_at.head) * size, cos, sin, w->half, dtype);
    for (int64_t h = 0; h < l->kv_heads; h++)
      rotate((char *)w->k + (t * w->k_at.token + h * w->k_at.head) * size, cos, sin, w->half, dtype);
  }
  for (int64_t h = 0; h < l->kv_heads; h++) {
    if (dtype == MD_BFLOAT16)
      COPY(uint16_t);
    else
      COPY(float);
  }
}

static void write_range(void *ctx, int64_t begin, int64_t end, int32_t thread) {
  const write_args *w = ctx;
  (void)thread;
  expect_token(w, begin, w->layer->dtype == MD_BFLOAT16 ? 2 : 4);
  if (w->layer->dtype == MD_BFLOAT16)
    for (int64_t t = begin; t < end; t++) write_token(w, t, end, MD_BFLOAT16);
  else
    for (int64_t t = begin; t < end; t++) write_token(w, t, end, MD_FLOAT32);
}

/* qkv [tokens, (q_heads + 2 * kv_heads) * D], rows `row` elements apart: queries and keys are rotated
 * in place, then keys and values are copied into the pool. cos, sin [tokens, half]. */
MD_EXPORT int32_t md_rope_write(md_pool *pool, const md_layer *layer, const md_step *step, void *qkv,
                                int64_t row, int64_t q_heads, const float *cos, const float *sin,
                                int64_t half) {
  const int64_t dim = layer->key_dim, size = layer->dtype == MD_BFLOAT16 ? 2 : 4;
  if (layer->value_dim != dim || 2 * half > dim || half < 0) return MD_BAD_ARGUMENT;
  void *k = (char *)qkv + q_heads * dim * size;
  void *v = (char *)k + layer->kv_heads * dim * size;
  const md_strides at = {row, dim};
  write_args w = {layer, step, qkv, k, v, q_heads, at, at, at, 1, 1, cos, sin, half};
  md_parallel(pool, write_range, &w, step->tokens, 1 + 8192 / (dim * (q_heads + 2 * layer->kv_heads)));
  return MD_OK;
}

/* Keys and values as they are: any strides, in elements. */
MD_EXPORT int32_t md_write(md_pool *pool, const md_layer *layer, const md_step *step, const void *k,
                           int64_t k_token, int64_t k_head, int64_t k_feature, const void *v,
                           int64_t v_token, int64_t v_head, int64_t v_feature) {
  write_args w = {layer, step, NULL, k, v, 0, {0, 0}, {k_token, k_head}, {v_token, v_head},
                  k_feature, v_feature, NULL, NULL, 0};
  md_parallel(pool, write_range, &w, step->tokens, 1 + 8192 / (2 * layer->kv_heads * layer->key_dim));
  return MD_OK;
}
