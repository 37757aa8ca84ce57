/* Top-k and top-p of one row, exactly: where top-k cuts the order of tokens off, and whether a token
 * is in the nucleus. Nothing is sorted. Chunks whose best score says that they hold nothing of
 * interest are not read.
 */
#include "draw_row.h"

/* How many of `count` values (a multiple of 16) are at or above x. */
static int64_t count_from(const float *values, int64_t count, float x) {
  v16 low = v16_set(x), one = v16_set(1.0f), sum = v16_zero();  /* exact: counts below 2^24 a lane */
  for (int64_t i = 0; i < count; i += 16)
    sum = v16_add(sum, v16_select(v16_lt(v16_load(values + i), low), v16_zero(), one));
  return (int64_t)v16_sum(sum);
}

/* The k-th largest of `count` values <= 0, by bisection of their bit patterns. */
static float kth_largest(const float *values, int64_t count, int64_t k) {
  uint32_t low = 0, high = 0x7F800000;  /* magnitudes: the k-th value is -high or above it */
  while (low < high) {
    uint32_t middle = low + (high - low) / 2, pattern = middle | 0x80000000u;
    float x;
    memcpy(&x, &pattern, 4);
    if (count_from(values, count, x) >= k)
      high = middle;
    else
      low = middle + 1;
  }
  uint32_t pattern = high | 0x80000000u;
  float x;
  memcpy(&x, &pattern, 4);
  return x;
}

draw_place draw_top_k(const draw_row *row, int64_t k) {
  const float none = -__builtin_inff();
  int64_t padded = (row->chunks + 15) / 16 * 16, count = 0;
  /* As many chunks have a token at or above this as top-k keeps tokens. */
  float floor = k <= row->chunks ? kth_largest(row->maxima, padded, k) : none;
  for (int64_t c = 0; c < row->chunks; c++) {
    if (row->maxima[c] < floor || row->maxima[c] == none) continue;
    float scores[CHUNK];
    for (int i = 0; i < CHUNK; i += 16) v16_store(scores + i, draw_scores(row, c * CHUNK + i));
    for (int i = 0; i < CHUNK; i++) {
      if (scores[i] < floor || scores[i] == none) continue;
      row->list[count] = scores[i];
      row->ids[count++] = (int32_t)(c * CHUNK + i);
    }
  }
  if (count < k) return (draw_place){none, 0};
  for (int i = 0; i < 16; i++) row->list[count + i] = none;
  float last = kth_largest(row->list, (count + 15) / 16 * 16, k);
  int64_t rest = k;
  for (int64_t i = 0; i < count; i++) rest -= row->list[i] > last;
  int64_t i = 0;
  for (;; i++)  /* of those equal to the last one the lowest ids stay */
    if (row->list[i] == last && --rest == 0) break;
  return (draw_place){last, row->ids[i] + 1};
}

typedef struct {
  mass_sum before, all;
  int64_t vectors;
} weighing;

/* Adds one chunk, which may hold tokens before the place. */
MD_INLINE void weigh_both(const draw_row *row, int64_t chunk, draw_place place, weighing *sums) {
  for (int i = 0; i < CHUNK; i += 16) {
    int64_t at = chunk * CHUNK + i;
    v16 scores = draw_scores(row, at), weights = mass_weights(scores);
    v16 score = v16_set(place.score);
    v16 above = v16_select(v16_lt(score, scores), weights, v16_zero());
    v16 from = v16_select(v16_lt(scores, score), v16_zero(), weights);
    int64_t lower = place.token - at;  /* so many of these have lower ids */
    v16 before = lower <= 0    ? above
                 : lower >= 16 ? from
                               : v16_select(m16_range(0, lower), from, above);
    sums->before = mass_add(sums->before, before);
    sums->all = mass_add(sums->all, weights);
    sums->vectors++;
  }
}

static weighing weigh(const draw_row *row, draw_place place) {
  weighing sums = {mass_zero(), mass_zero(), 0};
  for (int64_t c = 0; c < row->chunks; c++)
    if (row->maxima[c] >= place.score) weigh_both(row, c, place, &sums);
  return sums;
}

int64_t draw_mass_before(const draw_row *row, draw_place place) {
  weighing sums = weigh(row, place);
  return mass_total(sums.before, sums.vectors);
}

int draw_in_top_p(const draw_row *row, draw_place place, double p, int64_t *base) {
  enum { PATIENCE = 32 };  /* chunks between two looks at the sum */
  weighing sums = weigh(row, place);
  double before = (double)mass_total(sums.before, sums.vectors);
  if (before == 0.0) return 1;  /* the best token always stays */
  if (*base >= 0) return before < (double)*base * p;
  /* What has been weighed is a lower bound of the whole: often enough to say yes. */
  int64_t seen = PATIENCE;
  for (int64_t c = 0; c < row->chunks; c++) {
    if (row->maxima[c] >= place.score) continue;
    if (seen++ == PATIENCE) {
      seen = 1;
      if (before < (double)mass_total(sums.all, sums.vectors) * p) return 1;
    }
    for (int i = 0; i < CHUNK; i += 16) {
      sums.all = mass_add(sums.all, mass_weights(draw_scores(row, c * CHUNK + i)));
      sums.vectors++;
    }
  }
  *base = mass_total(sums.all, sums.vectors);
  return before < (double)*base * p;
}

int64_t draw_mass_kept(const draw_row *row, draw_place end, double p, int64_t base) {
  int64_t kept = draw_mass_before(row, end), best = (int64_t)1 << 40;
  if (p >= 1.0) return kept;
  if (base < 0) base = draw_mass_before(row, (draw_place){-__builtin_inff(), 0});
  double target = (double)base * p;
  /* The score at which the nucleus ends: the largest that it takes to reach the target. */
  uint32_t low = 0, high = 0x42000000; /* magnitudes; from -32 down no token has a mass */
  while (low < high) {
    uint32_t middle = low + (high - low) / 2, pattern = middle | 0x80000000u;
    draw_place place = {0.0f, row->vocab};
    memcpy(&place.score, &pattern, 4);
    if ((double)draw_mass_before(row, place) >= target)
      high = middle;
    else
      low = middle + 1;
  }
  uint32_t pattern = high | 0x80000000u;
  draw_place place = {0.0f, 0};
  memcpy(&place.score, &pattern, 4);
  /* Of the tokens with that score, as many as it takes. */
  int64_t nucleus = draw_mass_before(row, place);
  float weights[16];
  v16_store(weights, mass_weights(v16_set(place.score)));
  int64_t each = (int64_t)((double)weights[0] * 0x1p40 + 0.5);
  double lacks = target - (double)nucleus;
  if (each > 0 && lacks > 0.0) {
    int64_t count = (int64_t)(lacks / (double)each);
    nucleus += each * (count + ((double)count * (double)each < lacks));
  }
  if (nucleus < best) nucleus = best; /* the best token always stays */
  return nucleus < kept ? nucleus : kept;
}
