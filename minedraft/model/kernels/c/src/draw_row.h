/* One row of logits while its token is drawn, and the order of its tokens: by score, equal scores by
 * id. A score is float32(logit) / temperature, less the row's best: two roundings, as in
 * minedraft/model/sampling.py.
 */
#ifndef MD_DRAW_ROW_H
#define MD_DRAW_ROW_H

#include "draw_mass.h"
#include "draw_noise.h"

enum { CHUNK = NOISE_GROUP };

/* A place in the order; it need not be a token's. */
typedef struct {
  float score;
  int64_t token;
} draw_place;

typedef struct {
  const void *logits; /* [vocab] */
  int64_t vocab, chunks;
  int32_t dtype;
  float temperature, best;
  uint64_t key;
  /* Scratch memory of this thread, see draw_scratch. */
  float *maxima; /* [chunks, padded to 16] best score of each chunk; the padding is -inf */
  float *bounds; /* [chunks, padded to 16] not below exp(the chunk's largest perturbed score) */
  float *list;   /* [vocab, padded to 16 and 16 more] scores that top-k looks into */
  int32_t *ids;  /* [vocab] their tokens */
} draw_row;

MD_INLINE int draw_is_before(float score, int64_t token, draw_place place) {
  return score > place.score || (score == place.score && token < place.token);
}

MD_INLINE draw_place draw_stricter(draw_place a, draw_place b) {
  return draw_is_before(a.score, a.token, b) ? a : b;
}

/* Logits of 16 tokens from `at` on; -inf behind the vocabulary. */
MD_INLINE v16 draw_logits(const draw_row *row, int64_t at) {
  int64_t left = row->vocab - at;
  if (left >= 16) return v16_load_as(row->logits, at, row->dtype);
  v16 none = v16_set(-__builtin_inff());
  if (left <= 0) return none;
  v16 some = v16_load_n(row->logits, at, left, row->dtype);
  return v16_select(m16_range(0, left), some, none);
}

MD_INLINE v16 draw_relative(const draw_row *row, v16 logits) {
  return v16_sub(v16_div(logits, v16_set(row->temperature)), v16_set(row->best));
}

MD_INLINE v16 draw_scores(const draw_row *row, int64_t at) {
  return draw_relative(row, draw_logits(row, at));
}

/* The first token that top-k cuts off. `k` >= 1. */
draw_place draw_top_k(const draw_row *row, int64_t k);

/* The mass of all tokens before a place. */
int64_t draw_mass_before(const draw_row *row, draw_place place);

/* Whether top-p keeps the token at a place: the mass of those before it is below p times `*base`.
 * A negative `*base` stands for the mass of all tokens; it is found if it has to be known. */
int draw_in_top_p(const draw_row *row, draw_place place, double p, int64_t *base);

/* The mass of what top-p keeps of the tokens before a place. `base` as above. */
int64_t draw_mass_kept(const draw_row *row, draw_place end, double p, int64_t base);

#endif
