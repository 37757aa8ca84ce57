/* Products over float32 sums: pairs are widened in the tile, codes to a part of a panel before.
 * bfloat16 activations are widened, which is exact.
 */
#include "linear.h"

#include "linear_tile.h"
#include "linear_widen.h"

typedef void (*tile_fn)(const tile_in *);

#define TILE(kind, R, P) \
  static void tile_##kind##_##R##_##P(const tile_in *in) { tile(R, P, MD_##kind, in); }
#define ENTRY(kind, R, P) [MD_##kind][R][P] = tile_##kind##_##R##_##P,

/* Wide tiles where rows are few: so many sums are under way that none waits for the one before. */
#if defined(__AVX512F__)
#define TILES(T, kind)                                                                        \
  T(kind, 1, 1) T(kind, 1, 4) T(kind, 2, 1) T(kind, 2, 4) T(kind, 3, 1) T(kind, 3, 4)         \
  T(kind, 4, 1) T(kind, 4, 4) T(kind, 5, 1) T(kind, 5, 4) T(kind, 6, 1) T(kind, 6, 4)         \
  T(kind, 7, 1) T(kind, 7, 3) T(kind, 8, 1) T(kind, 8, 3) T(kind, 9, 1) T(kind, 9, 2)         \
  T(kind, 10, 1) T(kind, 10, 2) T(kind, 11, 1) T(kind, 11, 2) T(kind, 12, 1) T(kind, 12, 2)
#else
#define TILES(T, kind)                                                                        \
  T(kind, 1, 1) T(kind, 1, 4) T(kind, 2, 1) T(kind, 2, 2) T(kind, 3, 1) T(kind, 3, 2)         \
  T(kind, 4, 1) T(kind, 5, 1) T(kind, 6, 1)
#endif

TILES(TILE, FLOATS)
TILES(TILE, PAIRS)

static const tile_fn tiles[2][MAX_ROWS + 1][MAX_PANELS + 1] = {
    TILES(ENTRY, FLOATS) TILES(ENTRY, PAIRS)};

enum {
  BLOCK_ROWS = 96,       /* rows that share a pass over the weights */
  BLOCK_BYTES = 1 << 20, /* of their activations: they stay in the second cache */
  PART_FLOATS = 4096,        /* of panels that are widened at once: they stay in the first cache */
  X_FLOATS = BLOCK_ROWS * 256, /* of activations that are widened at once */
  NEAR_BYTES = 1024,
  SUMS = BLOCK_ROWS * 8 * MD_PANEL,
};

static inline int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

/* One product of some rows with some panels: sums [rows, sums_stride] += x [k0, k0 + k). */
typedef struct {
  const float *x;
  int64_t x_stride, rows, k0, k;
  float *sums;
  int64_t sums_stride;
} part;

static inline int64_t tiles_of(int64_t rows) { return (rows + MAX_ROWS - 1) / MAX_ROWS; }

/* Panels that the tiles of some rows take at once, at most `most`. */
static int64_t width_of(int64_t rows, int64_t most) {
  const int64_t count = tiles_of(rows), low = rows / count, high = (rows + count - 1) / count;
  int64_t width = least(MAX_PANELS, most);
  while (!tiles[0][low][width] || !tiles[0][high][width]) width--;
  return width;
}

/* The sums of `panels` panels from `panel` on, from k0 to k0 + k. */
static void add_part(const md_stored *stored, const part *at, int64_t panel, int64_t panels) {
  _Alignas(64) float wide[PART_FLOATS];
  const int64_t bytes = md_panel_bytes(stored), count = tiles_of(at->rows);
  const int pairs = stored->kind == MD_PAIRS, codes = stored->group > 0;
  const char *weights = (const char *)stored->weights + at->k0 * (pairs ? 32 : 64);
  for (int64_t p = 0, width; p < panels; p += width) {
    width = width_of(at->rows, panels - p);
    tile_in in = {.x_stride = at->x_stride, .k = at->k, .sums_stride = at->sums_stride,
                  .first = at->k0 == 0};
    const int64_t length = at->k * (pairs ? 32 : 64);
    int64_t jump = width * bytes;
    if (codes) {
      widen_codes(stored, panel + p, width, at->k0, at->k, wide);
      in.w = (const char *)wide;
      in.w_stride = length;
      jump = 0;
    } else {
      in.w = weights + (panel + p) * bytes;
      in.w_stride = bytes;
    }
    for (int64_t i = 0; i < count; i++) {
      const int64_t r = at->rows * i / count, rows = at->rows * (i + 1) / count - r;
      /* One tile waits for memory: a little ahead. The last of several fetches the next panels. */
      in.near = count == 1 ? NEAR_BYTES : length;
      in.far = count == 1 ? jump + NEAR_BYTES - length : i == count - 1 ? jump : 0;
      in.x = at->x + r * at->x_stride;
      in.sums = at->sums + r * at->sums_stride + p * MD_PANEL;
      tiles[pairs][rows][width](&in);
    }
  }
}

static void block(const md_product *job, int64_t row, int64_t rows, int64_t panel, int64_t panels) {
  _Alignas(64) float sums[SUMS];
  _Alignas(64) float wide_x[X_FLOATS];
  const md_stored *stored = job->stored;
  const int narrow = job->dtype == MD_BFLOAT16;
  int64_t width = narrow ? SUMS / (rows * MD_PANEL) : width_of(rows, panels);
  int64_t step = stored->k;
  if (stored->group) step = PART_FLOATS / (width_of(rows, panels) * MD_PANEL) / 8 * 8;
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
      add_part(stored, &at, panel + p, now);
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
  /* As many panels as a tile takes, so that no piece cuts one short; others take 1, 2 or 4. */
  const int64_t most = rows < step ? rows : step;
  const int64_t grain = block_of(&job) == block ? width_of(most, MAX_PANELS) : 4;
  md_parallel(pool, multiply, &job, blocks * md_panels(stored->n), grain);
  return MD_OK;
}
