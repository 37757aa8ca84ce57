/* Products of bfloat16 by bfloat16 with vdpbf16ps: two k per instruction, nothing is widened.
 *
 * Its sums are those of linear.c: the second of a pair, then the first, each rounded. Only numbers
 * too small for a normal float32 differ: it takes them for zero.
 */
#include "linear.h"

#if defined(__AVX512BF16__) && !defined(__AMX_BF16__)

#include <immintrin.h>
#include <string.h>

enum { MAX_ROWS = 12, MAX_PANELS = 4, AHEAD_BYTES = 1024 };

typedef struct {
  const uint16_t *x;
  int64_t x_stride, k;
  const char *w;
  int64_t w_stride;
  float *sums; /* [R][P * 16] */
} dot_in;

static inline __attribute__((always_inline)) __m512bh pair(const uint16_t *x, int64_t valid) {
  uint32_t two = 0;
  memcpy(&two, x, valid > 1 ? 4 : 2);
  return (__m512bh)_mm512_set1_epi32((int32_t)two);
}

static inline __attribute__((always_inline)) void dot(const int R, const int P, const dot_in *in) {
  const int64_t xs = in->x_stride, ws = in->w_stride;
  const uint16_t *x = in->x;
  const char *w = in->w;
  __m512 acc[MAX_ROWS][MAX_PANELS];
#pragma GCC unroll 12
  for (int r = 0; r < R; r++) {
#pragma GCC unroll 4
    for (int p = 0; p < P; p++) acc[r][p] = _mm512_setzero_ps();
  }
  for (int64_t left = in->k; left > 0; left -= 2, x += 2, w += MD_LINE_BYTES) {
    __m512bh b[MAX_PANELS];
#pragma GCC unroll 4
    for (int p = 0; p < P; p++) {
      b[p] = (__m512bh)_mm512_loadu_si512(w + p * ws);
      __builtin_prefetch(w + p * ws + AHEAD_BYTES, 0, 3);
    }
    if (left == 1) {
#pragma GCC unroll 12
      for (int r = 0; r < R; r++) {
        __m512bh a = pair(x + r * xs, 1);
#pragma GCC unroll 4
        for (int p = 0; p < P; p++) acc[r][p] = _mm512_dpbf16_ps(acc[r][p], a, b[p]);
      }
      break;
    }
#pragma GCC unroll 12
    for (int r = 0; r < R; r++) {
      __m512bh a = pair(x + r * xs, 2);
#pragma GCC unroll 4
      for (int p = 0; p < P; p++) acc[r][p] = _mm512_dpbf16_ps(acc[r][p], a, b[p]);
    }
  }
#pragma GCC unroll 12
  for (int r = 0; r < R; r++) {
#pragma GCC unroll 4
    for (int p = 0; p < P; p++) _mm512_storeu_ps(in->sums + (r * P + p) * 16, acc[r][p]);
  }
}

#define DOTS(T)                                                                                 \
  T(1, 1) T(1, 2) T(1, 4) T(2, 1) T(2, 2) T(2, 4) T(3, 1) T(3, 2) T(3, 4) T(4, 1) T(4, 2)       \
  T(4, 4) T(5, 1) T(5, 2) T(5, 4) T(6, 1) T(6, 2) T(6, 4) T(7, 1) T(7, 2) T(8, 1) T(8, 2)       \
  T(9, 1) T(9, 2) T(10, 1) T(10, 2) T(11, 1) T(11, 2) T(12, 1) T(12, 2)
#define DOT(R, P) \
  static void dot_##R##_##P(const dot_in *in) { dot(R, P, in); }
#define ENTRY(R, P) [R][P] = dot_##R##_##P,
DOTS(DOT)
static void (*const dots[MAX_ROWS + 1][MAX_PANELS + 1])(const dot_in *) = {DOTS(ENTRY)};

int md_dots_ready(void) { return 1; }

void md_dots(const md_product *job, int64_t row, int64_t rows, int64_t panel, int64_t panels) {
  _Alignas(64) float sums[MAX_ROWS * MAX_PANELS * MD_PANEL];
  const int64_t bytes = md_panel_bytes(job->stored), count = (rows + MAX_ROWS - 1) / MAX_ROWS;
  for (int64_t p = 0; p < panels;) {
    int64_t width = panels - p < MAX_PANELS ? panels - p : MAX_PANELS;
    while (!dots[(rows + count - 1) / count][width]) width--;
    dot_in in = {.x_stride = job->x_stride, .k = job->stored->k, .w_stride = bytes, .sums = sums};
    in.w = (const char *)job->stored->weights + (panel + p) * bytes;
    for (int64_t i = 0; i < count; i++) {
      const int64_t first = row + rows * i / count, now = row + rows * (i + 1) / count - first;
      in.x = (const uint16_t *)job->x + first * job->x_stride;
      dots[now][width](&in);
      md_finish(job, sums, width * MD_PANEL, first, now, panel + p, width);
    }
    p += width;
  }
}

#else

int md_dots_ready(void) { return 0; }

void md_dots(const md_product *job, int64_t row, int64_t rows, int64_t panel, int64_t panels) {
  (void)job, (void)row, (void)rows, (void)panel, (void)panels;
}

#endif
