/* Products over float32 sums: few rows straight from the packed weights, many rows from a part of
 * them that is widened once. bfloat16 activations are widened, which is exact.
 */
#include "linear.h"

#include "linear_tile.h"
#include "linear_widen.h"

typedef void (*tile_fn)(const tile_in *);

#define TILE(from, R, P) \
  static void tile_##from##_##R##_##P(const tile_in *in) { tile(R, P, FROM_##from, in); }
#define ENTRY(from, R, P) [FROM_##from][R][P] = tile_##from##_##R##_##P,

/* Wide tiles where rows are few, so that enough sums are under way to hide the latency of one. */
#if defined(__AVX512F__)
#define TILES(T, from)                                                                           \
  T(from, 1, 1) T(from, 1, 2) T(from, 1, 4) T(from, 1, 8)                                        \
  T(from, 2, 1) T(from, 2, 2) T(from, 2, 4) T(from, 2, 8)                                        \
  T(from, 3, 1) T(from, 3, 2) T(from, 3, 4) T(from, 3, 8)                                        \
  T(from, 4, 1) T(from, 4, 2) T(from, 4, 4) T(from, 5, 1) T(from, 5, 2) T(from, 5, 4)            \
  T(from, 6, 1) T(from, 6, 2) T(from, 6, 4) T(from, 7, 1) T(from, 7, 2) T(from, 7, 3)            \
  T(from, 8, 1) T(from, 8, 2) T(from, 8, 3) T(from, 9, 1) T(from, 9, 2)                          \
  T(from, 10, 1) T(from, 10, 2) T(from, 11, 1) T(from, 11, 2) T(from, 12, 1) T(from, 12, 2)
enum { WIDE_PANELS = 2 };
#else
#define TILES(T, from)                                                                           \
  T(from, 1, 1) T(from, 1, 2) T(from, 1, 4) T(from, 2, 1) T(from, 2, 2) T(from, 3, 1)            \
  T(from, 3, 2) T(from, 4, 1) T(from, 5, 1) T(from, 6, 1)
enum { WIDE_PANELS = 1 };
#endif

TILES(TILE, FLOATS)
TILES(TILE, PAIRS)
TILES(TILE, BUFFER)

static const tile_fn tiles[SOURCES][MAX_ROWS + 1][MAX_PANELS + 1] = {
    TILES(ENTRY, FLOATS) TILES(ENTRY, PAIRS) TILES(ENTRY, BUFFER)};

enum {
  BLOCK_ROWS = 96,         /* rows that share a widened part */
  BLOCK_BYTES = 1 << 20,   /* of their activations: they stay in the second cache */
  WIDE_FLOATS = 256 * 2 * MD_PANEL, /* of a widened part: it stays in the first cache */
  SUMS = BLOCK_ROWS * 8 * MD_PANEL,
  X_FLOATS = BLOCK_ROWS * 256,
  FEW_ROWS = MAX_ROWS,
};

static inline int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

/* One product of some rows with some panels: sums [rows, sums_stride] += x [k0, k0 + k). */
typedef struct {
  const float *x;
  int64_t x_stride, rows, k0, k;
  float *sums;
  int64_t sums_stride;
} part;

/* Panels that the tiles of some rows take at once, at most `most`. */
static int64_t width_of(int32_t from, int64_t rows, int64_t most) {
  const int64_t count = (rows + MAX_ROWS - 1) / MAX_ROWS;
  const int64_t low = rows / count, high = (rows + count - 1) / count;
  int64_t width = least(MAX_PANELS, most);
  while (!tiles[from][low][width] || !tiles[from][high][width]) width--;
  return width;
}

static void run_tiles(int32_t from, const part *at, int64_t panel, int64_t width, tile_in *in) {
  const int64_t count = (at->rows + MAX_ROWS - 1) / MAX_ROWS;
  in->x_stride = at->x_stride;
  in->k = at->k;
  in->sums_stride = at->sums_stride;
  in->first = at->k0 == 0;
  for (int64_t i = 0; i < count; i++) {
    const int64_t r = at->rows * i / count, rows = at->rows * (i + 1) / count - r;
    in->x = at->x + r * at->x_stride;
    in->sums = at->sums + r * at->sums_stride + panel * MD_PANEL;
    tiles[from][rows][width](in);
  }
}

/* Straight from the packed weights. */
static void few_rows(const md_stored *stored, const part *at, int64_t panel, int64_t panels) {
  const int64_t bytes = md_panel_bytes(stored);
  const char *weights = (const char *)stored->weights + panel * bytes +
                        at->k0 * (stored->kind == MD_PAIRS ? 32 : 64);
  for (int64_t p = 0, width; p < panels; p += width) {
    width = width_of(stored->kind, at->rows, panels - p);
    tile_in in = {.w = weights + p * bytes, .w_stride = bytes, .jump = width * bytes};
    run_tiles(stored->kind, at, p, width, &in);
  }
}

/* From a part that is widened first. */
static void many_rows(const md_stored *stored, const part *at, int64_t panel, int64_t panels) {
  _Alignas(64) float wide[WIDE_FLOATS];
  for (int64_t p = 0, width; p < panels; p += width) {
    width = width_of(FROM_BUFFER, at->rows, least(WIDE_PANELS, panels - p));
    widen_weights(stored, panel + p, width, at->k0, at->k, wide);
    tile_in in = {.w = (const char *)wide};
    run_tiles(FROM_BUFFER, at, p, width, &in);
  }
}

static void block(const md_product *job, int64_t row, int64_t rows, int64_t panel, int64_t panels) {
  _Alignas(64) float sums[SUMS];
  _Alignas(64) float wide_x[X_FLOATS];
  const md_stored *stored = job->stored;
  const int narrow = job->dtype == MD_BFLOAT16, few = rows <= FEW_ROWS && !stored->group;
  int64_t width = narrow ? SUMS / (rows * MD_PANEL) : few ? MAX_PANELS : WIDE_PANELS;
  int64_t step = few ? stored->k : WIDE_FLOATS / (MD_PANEL * WIDE_PANELS);
  if (narrow) step = least(step, X_FLOATS / rows / 8 * 8);
  for (int64_t p = 0; p < panels; p += width) {
    const int64_t now = least(width, panels - p);
    part at = {.rows = rows, .sums = sums, .sums_stride = now * MD_PANEL};
    for (int64_t k = 0; k < stored->k; k += step) {
      at.k0 = k;
      at.k = least(step, stored->k - k);
      at.x = (const float *)job->x + row * job->x_stride + k;
      at.x_stride = job->x_stride;
      if (narrow) {
        const uint16_t *x = (const uint16_t *)job->x + row * job->x_stride + k;
        widen_x(x, job->x_stride, rows, at.k, wide_x);
        at.x = wide_x;
        at.x_stride = at.k;
      }
      (few ? few_rows : many_rows)(stored, &at, panel + p, now);
    }
    md_finish(job, sums, now * MD_PANEL, row, rows, panel + p, now);
  }
}

static int64_t block_rows(const md_stored *stored) {
  int64_t fit = BLOCK_BYTES / (4 * stored->k) / MAX_ROWS * MAX_ROWS;
  return fit < 2 * MAX_ROWS ? 2 * MAX_ROWS : least(fit, BLOCK_ROWS);
}

static md_block block_of(const md_product *job) {
  if (job->dtype == MD_BFLOAT16 && job->stored->kind == MD_PAIRS) {
    if (md_tiles_ready()) return md_tiles;
    if (md_dots_ready()) return md_dots;
  }
  return block;
}

/* Units are panels of blocks of rows, the blocks outermost. */
static void multiply(void *ctx, int64_t begin, int64_t end, int32_t thread) {
  (void)thread;
  const md_product *job = ctx;
  const md_block one = block_of(job);
  const int64_t panels = md_panels(job->stored->n), step = block_rows(job->stored);
  while (begin < end) {
    const int64_t row = begin / panels * step, panel = begin % panels;
    const int64_t until = least(panels, panel + end - begin);
    one(job, row, least(step, job->rows - row), panel, until - panel);
    begin += until - panel;
  }
}

/* y = x w^T + bias, or y += that: [rows, k] to [rows, n], of one dtype, rows strided. */
MD_EXPORT int32_t md_linear(md_pool *pool, const md_stored *stored, const void *x, int64_t x_stride,
                            void *y, int64_t y_stride, int64_t rows, int32_t dtype, int32_t add) {
  if (dtype != MD_FLOAT32 && dtype != MD_BFLOAT16) return MD_BAD_DTYPE;
  if (rows < 0 || stored->k < 1 || stored->n < 1) return MD_BAD_ARGUMENT;
  if (rows == 0) return MD_OK;
  md_product job = {stored, x, y, rows, x_stride, y_stride, dtype, add};
  const int64_t step = block_rows(stored), blocks = (rows + step - 1) / step;
  md_parallel(pool, multiply, &job, blocks * md_panels(stored->n), 1);
  return MD_OK;
}
