/* Draws one token per row: greedy, or argmax(score + Gumbel noise) over what top-k, top-p and min-p
 * keep. The same tokens as minedraft/model/sampling.py, to the bit.
 *
 * The largest perturbed score is found by bounds: a group's smallest exponential and its best score
 * bound all of its 64 tokens, so few groups are read. With top-p that token is drawn first and asked
 * afterwards whether the nucleus has it; if not, nothing behind it has a chance either, and the draw
 * is repeated among those before it. The nucleus itself is never built.
 */
#include "api.h"
#include "draw_row.h"
#include "pool.h"

enum { BROKEN = -1, UNDECIDED = -2 };

typedef struct {
  double perturbed;
  float score, floor; /* floor: chunks whose bound is below it cannot win */
  int64_t token;      /* -1: none yet */
} winner;

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

/* Looks for a better token in a chunk, among those before the place. */
static void visit(const draw_row *row, int64_t chunk, draw_place cut, winner *best) {
  double minimum = noise_group_minimum(row->key, chunk);
  float threshold = -__builtin_inff(); /* lower scores lose, whatever noise they have */
  if (best->token >= 0) threshold = (float)(best->perturbed + noise_log(minimum)) - 1e-3f;
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
    for (int64_t lane = i; lane < end && lane < count; lane++) {
      if (best->token >= 0 && !(perturbed[lane - i] > best->perturbed ||
                                (perturbed[lane - i] == best->perturbed &&
                                 tokens[lane] < best->token)))
        continue;
      *best = (winner){perturbed[lane - i], scores[lane], 0.0f, tokens[lane]};
    }
  }
  if (best->token >= 0) best->floor = floor_of(best->perturbed);
}

/* The token with the largest perturbed score before a place; there is one. */
static draw_place search(const draw_row *row, draw_place cut) {
  int64_t likely = 0;
  float most = -1.0f;
  for (int64_t c = 0; c < row->chunks; c++)
    if (row->bounds[c] > most && row->maxima[c] >= cut.score) most = row->bounds[c], likely = c;
  winner best = {0.0, 0.0f, 0.0f, -1};
  visit(row, likely, cut, &best);
  for (int64_t c = 0; c < row->chunks; c++)
    if (row->bounds[c] >= best.floor && row->maxima[c] >= cut.score && c != likely)
      visit(row, c, cut, &best);
  return (draw_place){best.score, best.token};
}

static int64_t draw_one(draw_row *row, int64_t top_k, double top_p, float log_min_p,
                        int64_t tries) {
  float most = scan(row);
  if (!(most > -__builtin_inff())) return BROKEN;
  if (row->temperature == 0.0f) return first_of(row, most);
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
  while (tries-- > 0) {
    draw_place drawn = search(row, cut);
    if (top_p >= 1.0 || draw_in_top_p(row, drawn, top_p, &base)) return drawn.token;
    cut = drawn;
  }
  return UNDECIDED;
}

typedef struct {
  const char *logits;
  int64_t row_bytes, vocab, tries;
  int32_t dtype;
  const int64_t *places;
  const uint64_t *seeds;
  const int64_t *positions;
  const float *temperatures;
  const int64_t *top_k;
  const double *top_p;
  const float *log_min_p;
  char *scratch;
  int64_t *tokens;
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
    the->tokens[r] = draw_one(&row, the->top_k[r], the->top_p[r], the->log_min_p[r], the->tries);
  }
}

/* logits: vectors of `vocab` elements of a dtype, `stride` elements apart. The arrays: [rows].
 * places: the vector of each row. temperatures: 0 is greedy. top_k 0, top_p 1 and log_min_p -inf are
 * "off". tries: draws per row until top-p keeps one. scratch: of md_draw_scratch for each thread.
 * tokens: ids; -1: no distribution; -2: not decided here. */
MD_EXPORT int32_t md_draw(md_pool *pool, const void *logits, int32_t dtype, int64_t stride,
                          int64_t vocab, int64_t rows, const int64_t *places,
                          const uint64_t *seeds, const int64_t *positions,
                          const float *temperatures, const int64_t *top_k, const double *top_p,
                          const float *log_min_p, int64_t tries, void *scratch, int64_t *tokens) {
  if (dtype != MD_FLOAT32 && dtype != MD_BFLOAT16) return MD_BAD_DTYPE;
  if (rows < 0 || vocab < 1 || vocab > INT32_MAX - CHUNK || stride < 0) return MD_BAD_ARGUMENT;
  int64_t size = dtype == MD_BFLOAT16 ? 2 : 4;
  call the = {logits,       stride * size, vocab, tries, dtype,     places,  seeds,
              positions,    temperatures,  top_k, top_p, log_min_p, scratch, tokens};
  md_parallel(pool, draw_rows, &the, rows, 4);
  return MD_OK;
}
