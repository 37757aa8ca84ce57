/* Products with stored weights: y = x w^T + bias, summed in float32 and rounded once.
 *
 * Every output is one chain of additions over k, in pairs, of each pair the second first: the order
 * of vdpbf16ps. It is the same for every tile, number of rows, chunk, thread and instruction set,
 * so a row has the same bits whatever is computed beside it.
 */
#ifndef MD_LINEAR_H
#define MD_LINEAR_H

#include "pool.h"

/* How weights lie in memory, in panels of 16 outputs; outputs that do not exist are zero. */
enum {
  MD_FLOATS = 0, /* float32 [N/16][K][16] */
  MD_PAIRS = 1,  /* bfloat16 [N/16][K/2][16][2]: a load widens by one shift and one mask, and the
                  * same bytes feed vdpbf16ps */
  MD_CODES8 = 2, /* codes of 8 bits, in words of four k: [N/16][K/4][16] */
  MD_CODES4 = 3, /* codes of 4 bits, in words of eight k: [N/16][K/8][16] */
};

enum { MD_PANEL = 16, MD_LINE_BYTES = 64 };

typedef struct {
  const void *weights; /* packed; at a multiple of 64 bytes */
  const void *bias;    /* [n], or NULL */
  const float *scales;  /* of codes: [N/16][K/group][16] */
  const float *offsets; /* likewise: a weight is code * scale + offset, rounded once */
  int64_t n, k, group;  /* group: a multiple of 8 that divides k; 0 where there are no codes */
  int32_t kind;
  int32_t bias_dtype;
} md_stored;

/* A product as a task sees it. */
typedef struct {
  const md_stored *stored;
  const void *x; /* [rows, k] */
  void *y;       /* [rows, n] */
  int64_t rows, x_stride, y_stride; /* strides in elements */
  int32_t dtype; /* of x and y */
  int32_t add;   /* add into y */
} md_product;

static inline int64_t md_panels(int64_t n) { return (n + MD_PANEL - 1) / MD_PANEL; }

/* Bytes of one packed panel. */
int64_t md_panel_bytes(const md_stored *stored);

/* Write sums [rows, cs] of panels from `panel` on to y: bias, then residual, rounded once. */
void md_finish(const md_product *job, const float *sums, int64_t cs, int64_t row, int64_t rows,
               int64_t panel, int64_t panels);

/* A block of a product. What a CPU has no unit for is not ready and not called. */
typedef void (*md_block)(const md_product *job, int64_t row, int64_t rows, int64_t panel,
                         int64_t panels);

/* bfloat16 by pairs with the tile unit (linear_amx.c), and with vdpbf16ps (linear_dot.c). */
int md_tiles_ready(void);
void md_tiles(const md_product *job, int64_t row, int64_t rows, int64_t panel, int64_t panels);
int md_dots_ready(void);
void md_dots(const md_product *job, int64_t row, int64_t rows, int64_t panel, int64_t panels);

#endif
