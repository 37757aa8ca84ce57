/* Prints a hash of what every kernel computes from fixed numbers: two machines must print the same.
 * A program of its own, so that an emulator can run it. Beside the kernels' exported functions it
 * needs nothing. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "linear.h"
#include "paged.h"

int32_t md_linear_pack(md_pool *, const md_stored *, const void *, int64_t);
int32_t md_linear_pack_groups(md_pool *, const md_stored *, const float *, const float *);
int32_t md_linear(md_pool *, const md_stored *, const void *, int64_t, void *, int64_t, int64_t,
                  int32_t, int32_t);
int32_t md_norm(md_pool *, int32_t, const void *, int64_t, int64_t, void *, const float *, void *,
                int64_t, int64_t, int64_t, int64_t, int64_t, float, int32_t);
int32_t md_act_mul(md_pool *, int32_t, int32_t, const void *, int64_t, void *, int64_t, int64_t);
int32_t md_rope_write(md_pool *, const md_layer *, const md_step *, void *, int64_t, int64_t,
                      const float *, const float *, int64_t);
int32_t md_attend(md_pool *, const md_layer *, const md_step *, const void *, int64_t, int64_t,
                  int64_t, void *, float, float, int64_t);
int64_t md_draw_scratch(int64_t);
int32_t md_draw(md_pool *, const void *, int32_t, int64_t, int64_t, int64_t, const int64_t *,
                const uint64_t *, const int64_t *, const float *, const int64_t *, const double *,
                const float *, int64_t, void *, int64_t *, int32_t, float *);

static uint32_t state = 1;

/* `count` numbers in [-1, 1) of a dtype, at a multiple of 64 bytes. */
static void *numbers(int64_t count, int32_t dtype) {
  float *all = aligned_alloc(64, (size_t)(count + 16) * 4 / 64 * 64 + 64);
  for (int64_t i = 0; i < count; i++) {
    state = state * 1664525u + 1013904223u;
    float value = (float)(int32_t)state / 2147483648.0f;
    uint32_t bits;
    memcpy(&bits, &value, 4);
    if (dtype == MD_BFLOAT16)
      ((uint16_t *)all)[i] = (uint16_t)(bits >> 16);
    else
      all[i] = value;
  }
  return all;
}

static void say(const char *name, int32_t code, const void *data, int64_t bytes) {
  uint64_t hash = 14695981039346656037u;
  for (int64_t i = 0; i < bytes; i++) hash = (hash ^ ((const uint8_t *)data)[i]) * 1099511628211u;
  printf("%s %d %016llx\n", name, code, (unsigned long long)hash);
}

enum { T = 9, N = 50, K = 80, GROUP = 16, D = 24, HEADS = 4, KV = 2, BLOCKS = 6, SIZE = 16, ROW = 32 };

static void linears(md_pool *pool, int32_t dtype) {
  for (int32_t kind = MD_FLOATS; kind <= MD_CODES4; kind++) {
    int codes = kind >= MD_CODES8;
    void *room[3] = {numbers(64 * K, 0), numbers(64 * K, 0), numbers(64 * K, 0)};
    md_stored w = {.weights = room[0], .bias = numbers(N, 0), .n = N, .k = K, .kind = kind,
                   .group = codes ? GROUP : 0, .scales = room[1], .offsets = room[2]};
    static const int64_t row_bytes[] = {K * 4, K * 2, K, K / 2};
    void *source = numbers(N * K, kind == MD_PAIRS);
    float *scales = numbers(N * K / GROUP, 0);
    float *offsets = numbers(N * K / GROUP, 0);
    int32_t code = md_linear_pack(pool, &w, source, row_bytes[kind]);
    if (codes) code |= md_linear_pack_groups(pool, &w, scales, offsets);
    void *x = numbers(T * K, dtype);
    void *y = numbers(T * N, dtype);
    code |= md_linear(pool, &w, x, K, y, N, T, dtype, 1);
    say("linear", code, y, T * N * (dtype ? 2 : 4));
  }
}

static void tokens(md_pool *pool, int32_t dtype) {
  int64_t bytes = dtype ? 2 : 4;
  void *x = numbers(T * 2 * K, dtype);
  void *out = numbers(T * K, dtype);
  void *residual = numbers(T * K, dtype);
  float *weight = numbers(K, 0);
  int32_t code = md_norm(pool, dtype, x, K, 0, residual, weight, out, K, 0, T, 1, K, 1e-5f, 0);
  say("norm", code, out, T * K * bytes);
  for (int32_t kind = 0; kind < 2; kind++) {
    code = md_act_mul(pool, dtype, kind, x, 2 * K, out, T, K);
    say("act_mul", code, out, T * K * bytes);
  }
}

static void attention(md_pool *pool, int32_t dtype) {
  static const int32_t cu[] = {0, 8, 9}, starts[] = {17, 0}, table[] = {4, 1, 2, 0};
  int32_t slots[T];
  for (int i = 0; i < 8; i++) slots[i] = 1 * SIZE + 1 + i;
  slots[8] = 2 * SIZE;
  void *keys = numbers(BLOCKS * KV * D * SIZE, dtype);
  void *values = numbers(BLOCKS * KV * SIZE * ROW, dtype);
  md_layer layer = {keys, values, KV, D, D, ROW, SIZE, SIZE, dtype};
  md_step step = {cu, starts, table, slots, 2, 2, T};
  int64_t width = (HEADS + 2 * KV) * D, bytes = dtype ? 2 : 4;
  void *qkv = numbers(T * width, dtype);
  void *out = numbers(T * HEADS * D, dtype);
  float *cosines = numbers(T * D / 2, 0);
  float *sines = numbers(T * D / 2, 0);
  int32_t code = md_rope_write(pool, &layer, &step, qkv, width, HEADS, cosines, sines, D / 2);
  say("rope_write", code, qkv, T * width * bytes);
  code = md_attend(pool, &layer, &step, qkv, width, D, HEADS, out, 0.2f, 5.0f, 20);
  say("attend", code, out, T * HEADS * D * bytes);
}

static void draws(void) {
  enum { V = 1000, ROWS = 4 };
  int64_t places[ROWS] = {0, 1, 2, 3}, positions[ROWS] = {5, 6, 7, 8}, found[ROWS] = {0};
  int64_t top_k[ROWS] = {0, 40, 0, 0};
  uint64_t seeds[ROWS] = {1, 2, 3, 4};
  float temperatures[ROWS] = {0.0f, 0.8f, 0.9f, 0.3f};
  float log_min_p[ROWS] = {-INFINITY, -INFINITY, -3.0f, -INFINITY};
  double top_p[ROWS] = {1.0, 1.0, 0.9, 0.95};
  void *scratch = numbers(md_draw_scratch(V) / 4 + 16, 0);
  float *logits = numbers(ROWS * V, 0);
  for (int32_t what = 0; what < 3; what++) {
    float scores[ROWS] = {0};
    int32_t code = md_draw(NULL, logits, 0, V, V, ROWS, places, seeds, positions, temperatures,
                           top_k, top_p, log_min_p, 64, scratch, found, what, scores);
    say("draw", code, found, sizeof found);
    say("scores", code, scores, sizeof scores);
  }
}

int main(void) {
  md_pool *pool = md_pool_create(3);
  if (!pool) return 1;
  for (int32_t dtype = MD_FLOAT32; dtype <= MD_BFLOAT16; dtype++) {
    linears(pool, dtype);
    tokens(pool, dtype);
    attention(pool, dtype);
  }
  draws();
  md_pool_destroy(pool);
  return 0;
}
