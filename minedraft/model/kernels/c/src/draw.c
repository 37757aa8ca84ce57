/* Draws one token per row: greedy, or argmax(score + Gumbel noise) over what top-k, top-p and min-p
 * keep. The same tokens as minedraft/model/sampling.py, and the same scores as scored_draw.py beside
 * it, to the bit.
 *
 * The largest perturbed score is found by bounds: a group's smallest exponential and its best score
 * bound all of its 64 tokens, so few groups are read. With top-p that token is drawn first and asked
 * afterwards whether the nucleus has it; if not, nothing behind it has a chance either, and the draw
 * is repeated among those before it. The nucleus itself is never built. A margin needs the second
 * largest too, so that groups within MOST_MARGIN of the winner are read until one is found.
 */
#include "api.h"
#include "draw_row.h"
#include "pool.h"

enum { BROKEN = -1, UNDECIDED = -2 };

enum { NO_SCORE = 0, MARGIN = 1, SURPRISAL = 2 };
#define MOST_MARGIN 4.0

typedef struct {
  double perturbed;
  float score;
  int64_t token; /* -1: none yet */
} contender;

typedef struct {
  contender best, second; /* without a margin there is no second */
  int has_margin;
  double limit; /* perturbed scores below it change nothing */
  float floor;  /* nor do chunks whose bound is below this */
} podium;

/* Fills `maxima` with logits. Returns the largest; NaN: the row has NaN or +inf. */
static float scan(draw_row *row) {
  v16 inf = v16_set(__builtin_inff()), most = v16_set(-__builtin_inff()), bad = v16_zero();
  for (int64_t c = 0; c < row->chunks; c++) {
    v16 x[CHUNK / 16];
    MD_UNROLL for (int i = 0; i < CHUNK / 16; i++) {
      x[i] = draw_logits(row, c * CHUNK + 16 * i);
      bad = v16_select(v16_lt(x[i], inf), bad, v16_set(1.0f));
    }
    v16 best = v16_max(v16_max(x[0], x[1]), v16_max(x[2], x[3]));
    most = v16_max(best, most);
    row->maxima[c] = v16_largest(best);
  }
  for (int64_t c = row->chunks; c % 16; c++) row->maxima[c] = -__builtin_inff();
  return v16_largest(bad) > 0.0f ? __builtin_nanf("") : v16_largest(most);
}

static int64_t first_of(const draw_row *row, float logit) {
  int64_t c = 0;
  while (row->maxima[c] != logit) c++;
  int64_t token = c * CHUNK;
  while (md_load(row->logits, token, row->dtype) != logit) token++;
  return token;
}

/* Logits in `maxima` become scores, and `bounds` is filled. */
static void relate(draw_row *row) {
  for (int64_t c = 0; c < row->chunks; c += 16) {
    float reach[NOISE_LANES];
    noise_reach(row->key, c, reach);
    v16 scores = draw_relative(row, v16_load(row->maxima + c));
    v16_store(row->maxima + c, scores);
    v16_store(row->bounds + c, v16_mul(mass_weights(scores), v16_load(reach)));
  }
}

/* A little below exp(perturbed). */
static float floor_of(double perturbed) {
  if (perturbed < -40.0) return 0.0f;
  float weights[16];
  v16_store(weights, mass_weights(v16_set((float)perturbed)));
  return weights[0] * (1.0f - 1e-4f);
}

MD_INLINE int is_ahead(contender one, contender other) {
  return other.token < 0 || one.perturbed > other.perturbed ||
         (one.perturbed == other.perturbed && one.token < other.token);
}

MD_INLINE void enter(podium *at, contender one) {
  if (is_ahead(one, at->best)) {
    if (at->has_margin) at->second = at->best;
    at->best = one;
  } else if (at->has_margin && is_ahead(one, at->second)) {
    at->second = one;
  }
}

/* Looks for better tokens in a chunk, among those before the place. */
static void visit(const draw_row *row, int64_t chunk, draw_place cut, podium *at) {
  double minimum = noise_group_minimum(row->key, chunk);
  float threshold = -__builtin_inff(); /* lower scores lose, whatever noise they have */
  if (at->best.token >= 0) threshold = (float)(at->limit + noise_log(minimum)) - 1e-3f;
  if (row->maxima[chunk] < threshold) return;
  float all[CHUNK], scores[CHUNK];
  int64_t tokens[CHUNK], count = 0, argmin = noise_group_argmin(row->key, chunk);
  for (int i = 0; i < CHUNK; i += 16) v16_store(all + i, draw_scores(row, chunk * CHUNK + i));
  for (int i = 0; i < CHUNK; i++) {
    if (!(all[i] >= threshold && draw_is_before(all[i], chunk * CHUNK + i, cut))) continue;
    scores[count] = all[i];
    tokens[count++] = chunk * CHUNK + i;
  }
  for (int64_t i = 0; i < count; i += NOISE_LANES) {
    int64_t end = i + NOISE_LANES;
    double perturbed[NOISE_LANES];
    for (int64_t lane = count; lane < end; lane++) scores[lane] = 0.0f, tokens[lane] = 0;
    noise_perturb(row->key, minimum, argmin, scores + i, tokens + i, perturbed);
    for (int64_t lane = i; lane < end && lane < count; lane++)
      enter(at, (contender){perturbed[lane - i], scores[lane], tokens[lane]});
  }
  if (at->best.token < 0) return;
  at->limit = at->best.perturbed;
  if (at->has_margin) {
    at->limit -= MOST_MARGIN;
    if (at->second.token >= 0 && at->second.perturbed > at->limit)
      at->limit = at->second.perturbed;
  }
  at->floor = floor_of(at->limit);
}

/* The token with the largest perturbed score before a place; there is one. With a margin also the
 * second, if it is within MOST_MARGIN. */
static podium search(const draw_row *row, draw_place cut, int has_margin) {
  int64_t likely = 0, next = -1; /* the chunks with the highest bounds: nearly always theirs win */
  float most = -1.0f, more = -1.0f;
  for (int64_t c = 0; c < row->chunks; c++) {
    float bound = row->bounds[c];
    if (!(bound > more && row->maxima[c] >= cut.score)) continue;
    if (bound > most)
      more = most, next = most < 0.0f ? -1 : likely, most = bound, likely = c;
    else
      more = bound, next = c;
  }
  podium at = {{0.0, 0.0f, -1}, {0.0, 0.0f, -1}, has_margin, 0.0, 0.0f};
  visit(row, likely, cut, &at);
  if (has_margin && next >= 0)
    visit(row, next, cut, &at);
  else
    next = -1;
  for (int64_t c = 0; c < row->chunks; c++)
    if (row->bounds[c] >= at.floor && row->maxima[c] >= cut.score && c != likely && c != next)
      visit(row, c, cut, &at);
  return at;
}

MD_INLINE draw_place place_of(contender one) { return (draw_place){one.score, one.token}; }

static float margin_of(double distance) {
  return distance < MOST_MARGIN ? (float)distance : (float)MOST_MARGIN;
}

/* The largest logit less the largest of all other tokens. */
static float greedy_margin(draw_row *row, int64_t token) {
  int64_t own = token / CHUNK;
  float logits[CHUNK], rest = -__builtin_inff(), best = row->maxima[own];
  for (int i = 0; i < CHUNK; i += 16) v16_store(logits + i, draw_logits(row, own * CHUNK + i));
  logits[token % CHUNK] = -__builtin_inff();
  for (int i = 0; i < CHUNK; i++) rest = logits[i] > rest ? logits[i] : rest;
  for (int64_t c = 0; c < row->chunks; c++)
    if (c != own && row->maxima[c] > rest) rest = row->maxima[c];
  return margin_of((double)(best - rest));
}

/* -log of a token's share of what is kept, in nats. */
static float surprisal_of(float score, int64_t kept) {
  double nats = noise_log((double)kept * 0x1p-40) - (double)score;
  return nats > 0.0 ? (float)nats : 0.0f;
}

/* Of the softmax of the logits: what temperature 0 makes of them says nothing. */
static float greedy_surprisal(draw_row *row, float most) {
  row->best = most;
  row->temperature = 1.0f;
  for (int64_t c = 0; c < row->chunks; c += 16)
    v16_store(row->maxima + c, draw_relative(row, v16_load(row->maxima + c)));
  return surprisal_of(0.0f, draw_mass_before(row, (draw_place){-__builtin_inff(), 0}));
}

static int64_t draw_one(draw_row *row, int64_t top_k, double top_p, float log_min_p,
                        int64_t tries, int32_t what, float *score) {
  float most = scan(row);
  *score = 0.0f;
  if (!(most > -__builtin_inff())) return BROKEN;
  if (row->temperature == 0.0f) {
    int64_t token = first_of(row, most);
    if (what == MARGIN) *score = greedy_margin(row, token);
    if (what == SURPRISAL) *score = greedy_surprisal(row, most);
    return token;
  }
  row->best = most / row->temperature;
  if (!(row->best - row->best == 0.0f)) return UNDECIDED; /* beyond float32 */
  relate(row);
  draw_place cut = {-__builtin_inff(), 0}; /* tokens before it may be drawn */
  int64_t base = -1;
  if (top_k > 0 && top_k < row->vocab) {
    cut = draw_top_k(row, top_k);
    if (top_p < 1.0) base = draw_mass_before(row, cut);
  }
  if (log_min_p > -__builtin_inff()) cut = draw_stricter(cut, (draw_place){log_min_p, row->vocab});
  draw_place end = cut;
  while (tries-- > 0) {
    podium at = search(row, cut, what == MARGIN);
    double distance = at.best.perturbed - at.second.perturbed;
    /* Of the two the one that is later in the order: if top-p keeps it, it keeps the other. */
    draw_place last = place_of(at.best);
    if (at.second.token < 0 || distance >= MOST_MARGIN)
      distance = MOST_MARGIN;
    else if (draw_is_before(at.best.score, at.best.token, place_of(at.second)))
      last = place_of(at.second);
    if (top_p >= 1.0 || draw_in_top_p(row, last, top_p, &base)) {
      if (what == MARGIN) *score = margin_of(distance);
      if (what == SURPRISAL)
        *score = surprisal_of(at.best.score, draw_mass_kept(row, end, top_p, base));
      return at.best.token;
    }
    cut = last;
  }
  return UNDECIDED;
}

typedef struct {
  const char *logits;
  int64_t row_bytes, vocab, tries;
  int32_t dtype, what;
  const int64_t *places;
  const uint64_t *seeds;
  const int64_t *positions;
  const float *temperatures;
  const int64_t *top_k;
  const double *top_p;
  const float *log_min_p;
  char *scratch;
  int64_t *tokens;
  float *scores;
} call;

/* Bytes of scratch memory for each thread. */
MD_EXPORT int64_t md_draw_scratch(int64_t vocab) {
  int64_t chunks = (vocab + CHUNK - 1) / CHUNK, padded = (chunks + 15) / 16 * 16;
  return 4 * (2 * padded + 2 * (chunks * CHUNK + 16));
}

static void draw_rows(void *ctx, int64_t begin, int64_t end, int32_t thread) {
  const call *the = ctx;
  int64_t chunks = (the->vocab + CHUNK - 1) / CHUNK, padded = (chunks + 15) / 16 * 16;
  float *scratch = (float *)(the->scratch + thread * md_draw_scratch(the->vocab));
  for (int64_t r = begin; r < end; r++) {
    draw_row row = {
        .logits = the->logits + the->places[r] * the->row_bytes,
        .vocab = the->vocab,
        .chunks = chunks,
        .dtype = the->dtype,
        .temperature = the->temperatures[r],
        .key = noise_key(the->seeds[r], the->positions[r]),
        .maxima = scratch,
        .bounds = scratch + padded,
        .list = scratch + 2 * padded,
        .ids = (int32_t *)(scratch + 2 * padded + chunks * CHUNK + 16),
    };
    float score;
    the->tokens[r] = draw_one(&row, the->top_k[r], the->top_p[r], the->log_min_p[r], the->tries,
                              the->what, &score);
    if (the->scores) the->scores[r] = score;
  }
}

/* logits: vectors of `vocab` elements of a dtype, `stride` elements apart. The arrays: [rows].
 * places: the vector of each row. temperatures: 0 is greedy. top_k 0, top_p 1 and log_min_p -inf are
 * "off". tries: draws per row until top-p keeps one. scratch: of md_draw_scratch for each thread.
 * tokens: ids; -1: no distribution; -2: not decided here. what: the score, 0 none, 1 best less
 * second-best perturbed score, 2 -log q. scores: [rows], 0 where there is no token; null: none. */
MD_EXPORT int32_t md_draw(md_pool *pool, const void *logits, int32_t dtype, int64_t stride,
                          int64_t vocab, int64_t rows, const int64_t *places,
                          const uint64_t *seeds, const int64_t *positions,
                          const float *temperatures, const int64_t *top_k, const double *top_p,
                          const float *log_min_p, int64_t tries, void *scratch, int64_t *tokens,
                          int32_t what, float *scores) {
  if (dtype != MD_FLOAT32 && dtype != MD_BFLOAT16) return MD_BAD_DTYPE;
  if (rows < 0 || vocab < 1 || vocab > INT32_MAX - CHUNK || stride < 0) return MD_BAD_ARGUMENT;
  if (what < NO_SCORE || what > SURPRISAL || (what != NO_SCORE && !scores)) return MD_BAD_ARGUMENT;
  int64_t size = dtype == MD_BFLOAT16 ? 2 : 4;
  call the = {
      .logits = logits,
      .row_bytes = stride * size,
      .vocab = vocab,
      .tries = tries,
      .dtype = dtype,
      .what = what,
      .places = places,
      .seeds = seeds,
      .positions = positions,
      .temperatures = temperatures,
      .top_k = top_k,
      .top_p = top_p,
      .log_min_p = log_min_p,
      .scratch = scratch,
      .tokens = tokens,
      .scores = scores,
  };
  md_parallel(pool, draw_rows, &the, rows, 4);
  return MD_OK;
}
