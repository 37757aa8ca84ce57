/* activation(gate) * up of gated MLPs, rounded where transformers rounds: behind the activation too. */
#include "pool.h"
#include "vec.h"

enum { SILU = 0, GELU_TANH = 1, COLUMNS = 512 };

typedef struct {
  const void *gate_up;
  void *out;
  int64_t row, width, pieces;  /* pieces of COLUMNS to a row */
  int32_t dtype, kind;
} act_args;

MD_INLINE v16 activate(v16 x, int32_t kind) {
  const v16 one = v16_set(1.0f);
  if (kind == SILU) {
    v16 e = v16_exp(v16_sub(v16_zero(), x));
    return v16_div(x, v16_add(one, e));
  }
  /* 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) */
  v16 cube = v16_mul(v16_mul(x, x), x);
  v16 inner = v16_mul(v16_set(0.797884561f), v16_fma(v16_set(0.044715f), cube, x));
  return v16_mul(v16_mul(v16_set(0.5f), x), v16_add(one, v16_tanh(inner)));
}

MD_INLINE void act_piece(const act_args *a, int64_t row, int64_t first, int64_t last, int32_t dtype,
                         int32_t kind) {
  int64_t gate = row * a->row, up = gate + a->width, out = row * a->width;
  for (int64_t j = first; j < last; j += 16) {
    int64_t n = last - j < 16 ? last - j : 16;
    v16 g = v16_load_n(a->gate_up, gate + j, n, dtype), u = v16_load_n(a->gate_up, up + j, n, dtype);
    v16_store_n(a->out, out + j, v16_mul(v16_rounded(activate(g, kind), dtype), u), n, dtype);
  }
}

static void act_range(void *ctx, int64_t begin, int64_t end, int32_t thread) {
  const act_args *a = ctx;
  (void)thread;
  for (int64_t i = begin; i < end; i++) {
    int64_t row = i / a->pieces, first = i % a->pieces * COLUMNS;
    int64_t last = first + COLUMNS < a->width ? first + COLUMNS : a->width;
    if (a->dtype == MD_BFLOAT16 && a->kind == SILU)
      act_piece(a, row, first, last, MD_BFLOAT16, SILU);
    else if (a->dtype == MD_BFLOAT16)
      act_piece(a, row, first, last, MD_BFLOAT16, GELU_TANH);
    else if (a->kind == SILU)
      act_piece(a, row, first, last, MD_FLOAT32, SILU);
    else
      act_piece(a, row, first, last, MD_FLOAT32, GELU_TANH);
  }
}

/* gate_up [tokens, 2 * width], rows `row` elements apart; out [tokens, width]; kind 0 SiLU, 1 GELU by
 * tanh. */
MD_EXPORT int32_t md_act_mul(md_pool *pool, int32_t dtype, int32_t kind, const void *gate_up,
                             int64_t row, void *out, int64_t tokens, int64_t width) {
  if (width < 1 || tokens < 0 || (kind != SILU && kind != GELU_TANH)) return MD_BAD_ARGUMENT;
  act_args a = {gate_up, out, row, width, (width + COLUMNS - 1) / COLUMNS, dtype, kind};
  md_parallel(pool, act_range, &a, tokens * a.pieces, 8);
  return MD_OK;
}
