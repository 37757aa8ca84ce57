/* Products of bfloat16 by bfloat16 with the tile unit: tdpbf16ps.
 *
 * A packed panel is what its second operand wants: 16 lines of 16 pairs are one tile. The unit sums
 * each row of a tile by itself, 32 k at a time, the first of all pairs and the second of all pairs
 * apart; so a row's bits do not depend on the rows beside it. The order is not that of linear.c.
 */
#include "linear.h"

#if defined(__AMX_BF16__)

#include <immintrin.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { ASK_FOR_STATE = 0x1023, TILE_DATA = 18, TILE_ROWS = 16, TILE_K = 32, TILE_BYTES = 1024 };

/* The kernel saves tiles only for processes that ask; an old one, or a sandbox, refuses. */
int md_tiles_ready(void) {
  static _Atomic int known; /* 1: refused, 2: granted */
  int state = atomic_load(&known);
  if (!state) {
    state = syscall(SYS_arch_prctl, ASK_FOR_STATE, TILE_DATA) ? 1 : 2;
    atomic_store(&known, state);
  }
  return state == 2;
}

typedef struct {
  uint8_t palette, start_row, reserved[14];
  uint16_t row_bytes[16];
  uint8_t rows[16];
} config;

/* Sums: 0 1 (first 16 rows), 2 3 (next); activations: 4, 5; weights: 6, 7. */
static void configure(int64_t low, int64_t high) {
  config c = {.palette = 1};
  const uint8_t rows[8] = {low, low, high, high, low, high, TILE_ROWS, TILE_ROWS};
  for (int i = 0; i < 8; i++) {
    c.rows[i] = rows[i] ? rows[i] : 1;
    c.row_bytes[i] = 64;
  }
  _tile_loadconfig(&c);
}

typedef struct {
  const uint16_t *x; /* rows of the block */
  int64_t x_stride, low, high, k;
  const char *panels[2];
  float *sums; /* [32][32] */
  int64_t ahead; /* bytes to the panels that come next, which are fetched meanwhile; 0: nothing */
} tiles_in;

/* The last k: both operands padded with zeros. */
typedef struct {
  _Alignas(64) uint16_t low[TILE_ROWS][TILE_K], high[TILE_ROWS][TILE_K];
  _Alignas(64) char panels[2][TILE_BYTES];
} tail;

static void fill_tail(const tiles_in *in, int64_t at, int width, tail *out) {
  const int64_t left = in->k - at;
  memset(out, 0, sizeof *out);
  for (int64_t r = 0; r < in->low; r++)
    memcpy(out->low[r], in->x + r * in->x_stride + at, (size_t)left * 2);
  for (int64_t r = 0; r < in->high; r++)
    memcpy(out->high[r], in->x + (in->low + r) * in->x_stride + at, (size_t)left * 2);
  for (int p = 0; p < width; p++)
    memcpy(out->panels[p], in->panels[p] + at * 32, (size_t)((left + 1) / 2 * MD_LINE_BYTES));
}

#define STEP(low_at, high_at, stride, b0, b1)     \
  do {                                            \
    _tile_loadd(6, b0, 64);                       \
    _tile_loadd(4, low_at, stride);               \
    _tile_dpbf16ps(0, 4, 6);                      \
    if (width > 1) {                              \
      _tile_loadd(7, b1, 64);                     \
      _tile_dpbf16ps(1, 4, 7);                    \
    }                                             \
    if (high) {                                   \
      _tile_loadd(5, high_at, stride);            \
      _tile_dpbf16ps(2, 5, 6);                    \
      if (width > 1) _tile_dpbf16ps(3, 5, 7);     \
    }                                             \
  } while (0)

static inline __attribute__((always_inline)) void sum_tiles(const tiles_in *in, const int width,
                                                            const int high) {
  const int64_t stride = in->x_stride * 2;
  const uint16_t *x = in->x, *above = in->x + in->low * in->x_stride;
  const char *b0 = in->panels[0], *b1 = in->panels[1];
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  int64_t k = 0;
  for (; k + TILE_K <= in->k; k += TILE_K) {
    for (int i = 0; in->ahead && i < TILE_BYTES; i += MD_LINE_BYTES) {
      __builtin_prefetch(b0 + k * 32 + in->ahead + i, 0, 2);
      if (width > 1) __builtin_prefetch(b1 + k * 32 + in->ahead + i, 0, 2);
    }
    STEP(x + k, above + k, stride, b0 + k * 32, b1 + k * 32);
  }
  if (k < in->k) {
    tail last;
    fill_tail(in, k, width, &last);
    STEP(last.low, last.high, TILE_K * 2, last.panels[0], last.panels[1]);
  }
  _tile_stored(0, in->sums, 128);
  if (width > 1) _tile_stored(1, in->sums + 16, 128);
  if (high) {
    _tile_stored(2, in->sums + in->low * 32, 128);
    if (width > 1) _tile_stored(3, in->sums + in->low * 32 + 16, 128);
  }
}

void md_tiles(const md_product *job, int64_t row, int64_t rows, int64_t panel, int64_t panels) {
  _Alignas(64) float sums[32 * 32];
  const md_stored *stored = job->stored;
  const int64_t bytes = md_panel_bytes(stored), count = (rows + 31) / 32;
  int64_t set_low = 0, set_high = 0;
  for (int64_t p = 0; p < panels;) {
    const int64_t width = panels - p > 1 ? 2 : 1;
    tiles_in in = {.x_stride = job->x_stride, .k = stored->k, .sums = sums};
    in.panels[0] = (const char *)stored->weights + (panel + p) * bytes;
    in.panels[1] = in.panels[0] + bytes;
    for (int64_t i = 0; i < count; i++) {
      const int64_t first = rows * i / count, now = rows * (i + 1) / count - first;
      in.low = now > TILE_ROWS ? (now + 1) / 2 : now;
      in.high = now - in.low;
      if (in.low != set_low || in.high != set_high) configure(in.low, in.high);
      set_low = in.low;
      set_high = in.high;
      in.ahead = i == count - 1 ? width * bytes : 0;
      in.x = (const uint16_t *)job->x + (row + first) * job->x_stride;
      if (in.high) {
        if (width > 1) sum_tiles(&in, 2, 1);
        else sum_tiles(&in, 1, 1);
      } else {
        if (width > 1) sum_tiles(&in, 2, 0);
        else sum_tiles(&in, 1, 0);
      }
      md_finish(job, sums, 32, row + first, now, panel + p, width);
    }
    p += width;
  }
  _tile_release();
}

#else

int md_tiles_ready(void) { return 0; }

void md_tiles(const md_product *job, int64_t row, int64_t rows, int64_t panel, int64_t panels) {
  (void)job, (void)row, (void)rows, (void)panel, (void)panels;
}

#endif
