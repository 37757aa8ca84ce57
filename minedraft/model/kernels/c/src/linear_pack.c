/* Packs weights into panels of 16 outputs, and writes finished sums. */
#include "linear.h"

#include <string.h>

#include "vec.h"

/* Bits of a weight by kind. */
static const int8_t kind_bits[] = {
    [MD_FLOATS] = 32, [MD_PAIRS] = 16, [MD_CODES8] = 8, [MD_CODES4] = 4};

/* A panel is words of 32 bits, transposed: a float, a pair, or codes. */
static int64_t words_of(const md_stored *stored) {
  const int64_t per_word = 32 / kind_bits[stored->kind];
  return (stored->k + per_word - 1) / per_word;
}

int64_t md_panel_bytes(const md_stored *stored) { return words_of(stored) * MD_LINE_BYTES; }

typedef struct {
  const char *from;
  int64_t row_bytes, n, words, last_bytes; /* of the last word of a row */
  uint32_t *to;
} packing;

static void pack_panels(void *ctx, int64_t begin, int64_t end, int32_t thread) {
  (void)thread;
  const packing *job = ctx;
  for (int64_t panel = begin; panel < end; panel++) {
    uint32_t *out = job->to + panel * job->words * MD_PANEL;
    const int64_t first = panel * MD_PANEL;
    const int64_t rows = job->n - first < MD_PANEL ? job->n - first : MD_PANEL;
    const char *in = job->from + first * job->row_bytes;
    for (int64_t i = 0; i < job->words; i++, out += MD_PANEL) {
      const size_t bytes = i == job->words - 1 ? (size_t)job->last_bytes : 4;
      if (rows < MD_PANEL || bytes < 4) memset(out, 0, MD_LINE_BYTES);
      for (int64_t r = 0; r < rows; r++) memcpy(out + r, in + r * job->row_bytes + i * 4, bytes);
    }
  }
}

static int bad(const md_stored *stored) {
  const int codes = stored->kind == MD_CODES8 || stored->kind == MD_CODES4;
  if (stored->kind < MD_FLOATS || stored->kind > MD_CODES4 || stored->n < 1 || stored->k < 1)
    return 1;
  return codes && (stored->group < 8 || stored->group % 8 || stored->k % stored->group);
}

/* Pack [n, k] into `stored`: elements of the kind, codes packed along k, lowest bits first.
 * row_bytes: from row to row. */
MD_EXPORT int32_t md_linear_pack(md_pool *pool, const md_stored *stored, const void *source,
                                 int64_t row_bytes) {
  if (bad(stored)) return MD_BAD_ARGUMENT;
  const int64_t words = words_of(stored), bits = stored->k * kind_bits[stored->kind];
  packing job = {source, row_bytes, stored->n, words, (bits - (words - 1) * 32) / 8,
                 (uint32_t *)stored->weights};
  md_parallel(pool, pack_panels, &job, md_panels(stored->n), 1);
  return MD_OK;
}

/* Pack scales and offsets, [n, k / group] float32, contiguous, likewise. */
MD_EXPORT int32_t md_linear_pack_groups(md_pool *pool, const md_stored *stored, const float *scales,
                                        const float *offsets) {
  if (bad(stored) || !stored->group) return MD_BAD_ARGUMENT;
  const int64_t groups = stored->k / stored->group;
  packing job = {(const char *)scales, groups * 4, stored->n, groups, 4, (uint32_t *)stored->scales};
  md_parallel(pool, pack_panels, &job, md_panels(stored->n), 1);
  job.from = (const char *)offsets;
  job.to = (uint32_t *)stored->offsets;
  md_parallel(pool, pack_panels, &job, md_panels(stored->n), 1);
  return MD_OK;
}

void md_finish(const md_product *job, const float *sums, int64_t cs, int64_t row, int64_t rows,
               int64_t panel, int64_t panels) {
  const md_stored *stored = job->stored;
  const int32_t dtype = job->dtype;
  for (int64_t p = 0; p < panels; p++) {
    const int64_t first = (panel + p) * MD_PANEL;
    const int64_t n = stored->n - first < MD_PANEL ? stored->n - first : MD_PANEL;
    v16 bias = v16_zero();
    if (stored->bias) bias = v16_load_first(stored->bias, first, n, stored->bias_dtype);
    for (int64_t r = 0; r < rows; r++) {
      const int64_t at = (row + r) * job->y_stride + first;
      v16 sum = v16_load(sums + r * cs + p * MD_PANEL);
      if (stored->bias) sum = v16_add(sum, bias);
      if (n == MD_PANEL) {
        if (job->add) sum = v16_add(sum, v16_load_as(job->y, at, dtype));
        v16_store_as(job->y, at, sum, dtype);
      } else {
        if (job->add) sum = v16_add(sum, v16_load_first(job->y, at, n, dtype));
        v16_store_first(job->y, at, sum, n, dtype);
      }
    }
  }
}
