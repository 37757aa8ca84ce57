/* RMS norm of vectors: hidden states (with the residual added on the way) and heads, in place or not. */
#include "pool.h"
#include "vec.h"

typedef struct {
  const void *x;
  void *residual, *out;
  const float *weight;
  int64_t heads, width, x_token, x_head, out_token, out_head;
  float eps;
  int32_t dtype, plus_one;
} norm_args;

MD_INLINE void norm_vector(const norm_args *a, const void *x, void *residual, void *out,
                           int32_t dtype) {
  const int64_t width = a->width;
  v16 squares[4] = {v16_zero(), v16_zero(), v16_zero(), v16_zero()};
  for (int64_t j = 0, turn = 0; j < width; j += 16, turn = (turn + 1) & 3) {
    int64_t n = width - j < 16 ? width - j : 16;
    v16 v = v16_load_n(x, j, n, dtype);
    if (residual) {
      v = v16_rounded(v16_add(v16_load_n(residual, j, n, dtype), v), dtype);
      v16_store_n(residual, j, v, n, dtype);
    }
    squares[turn] = v16_fma(v, v, squares[turn]);
  }
  v16 sums = v16_add(v16_add(squares[0], squares[2]), v16_add(squares[1], squares[3]));
  float root = md_sqrt(v16_sum(sums) / (float)width + a->eps);
  const v16 scale = v16_set(1.0f / root), one = v16_set(1.0f);
  const void *from = residual ? residual : x;
  for (int64_t j = 0; j < width; j += 16) {
    int64_t n = width - j < 16 ? width - j : 16;
    v16 v = v16_mul(v16_load_n(from, j, n, dtype), scale);
    v16 w = v16_load_n(a->weight, j, n, MD_FLOAT32);
    /* As the models do: gemma rounds once, the others before they multiply too. */
    if (a->plus_one)
      w = v16_add(w, one);
    else
      v = v16_rounded(v, dtype);
    v16_store_n(out, j, v16_mul(v, w), n, dtype);
  }
}

static void norm_range(void *ctx, int64_t begin, int64_t end, int32_t thread) {
  const norm_args *a = ctx;
  (void)thread;
  for (int64_t i = begin; i < end; i++) {
    int64_t token = i / a->heads, head = i % a->heads;
    int64_t from = token * a->x_token + head * a->x_head;
    int64_t to = token * a->out_token + head * a->out_head;
    if (a->dtype == MD_BFLOAT16) {
      uint16_t *residual = a->residual ? (uint16_t *)a->residual + i * a->width : NULL;
      norm_vector(a, (const uint16_t *)a->x + from, residual, (uint16_t *)a->out + to, MD_BFLOAT16);
    } else {
      float *residual = a->residual ? (float *)a->residual + i * a->width : NULL;
      norm_vector(a, (const float *)a->x + from, residual, (float *)a->out + to, MD_FLOAT32);
    }
  }
}

/* out = norm(x) * weight, of `tokens` x `heads` vectors; with a residual (contiguous), which x is
 * added into first, of that. Strides in elements; out may be x. */
MD_EXPORT int32_t md_norm(md_pool *pool, int32_t dtype, const void *x, int64_t x_token,
                          int64_t x_head, void *residual, const float *weight, void *out,
                          int64_t out_token, int64_t out_head, int64_t tokens, int64_t heads,
                          int64_t width, float eps, int32_t plus_one) {
  if (heads < 1 || width < 1 || tokens < 0) return MD_BAD_ARGUMENT;
  norm_args a = {x,         residual, out,   weight, heads,    width, x_token, x_head,
                 out_token, out_head, eps,   dtype,  plus_one};
  md_parallel(pool, norm_range, &a, tokens * heads, 1 + 16384 / width);
  return MD_OK;
}
