/* What tests ask of the draw beside its tokens: bits of the noise and of the weights, and draws from
 * memory of exactly the right size, for a build with a sanitizer.
 */
#include <stdlib.h>

#include "api.h"
#include "draw_mass.h"
#include "draw_noise.h"
#include "pool.h"

int64_t md_draw_scratch(int64_t vocab);
int32_t md_draw(md_pool *pool, const void *logits, int32_t dtype, int64_t stride, int64_t vocab,
                int64_t rows, const int64_t *places, const uint64_t *seeds,
                const int64_t *positions, const float *temperatures, const int64_t *top_k,
                const double *top_p, const float *log_min_p, int64_t tries, void *scratch,
                int64_t *tokens, int32_t what, float *scores);

/* Perturbed scores of the tokens of a group, 64 of them, all of score 0; and a bound of them. */
MD_EXPORT void drive_noise(uint64_t seed, int64_t position, int64_t group, double *perturbed,
                           float *reach) {
  uint64_t key = noise_key(seed, position);
  double minimum = noise_group_minimum(key, group);
  float scores[NOISE_LANES] = {0}, some[NOISE_LANES];
  for (int i = 0; i < NOISE_GROUP; i += NOISE_LANES) {
    int64_t tokens[NOISE_LANES];
    for (int lane = 0; lane < NOISE_LANES; lane++) tokens[lane] = group * NOISE_GROUP + i + lane;
    noise_perturb(key, minimum, noise_group_argmin(key, group), scores, tokens, perturbed + i);
  }
  noise_reach(key, group, some);
  *reach = some[0];
}

/* Weights of `count` scores, a multiple of 16; returns the sum of their masses. */
MD_EXPORT int64_t drive_masses(const float *scores, int64_t count, float *weights) {
  mass_sum sum = mass_zero();
  for (int64_t i = 0; i < count; i += 16) {
    v16 w = mass_weights(v16_load(scores + i));
    v16_store(weights + i, w);
    sum = mass_add(sum, w);
  }
  return mass_total(sum, count / 16);
}

/* Draws from vocabularies of 1 to `most` tokens, with nothing behind any array. Returns how many
 * tokens are none of the vocabulary, and scores none at all. */
MD_EXPORT int64_t drive_edges(int64_t most) {
  enum { ROWS = 6 };
  static const float temperatures[ROWS] = {0.0f, 1.0f, 0.8f, 0.8f, 0.8f, 2.0f};
  static const int64_t top_k[ROWS] = {0, 0, 0, 3, 70, 0};
  static const double top_p[ROWS] = {1.0, 1.0, 0.9, 1.0, 0.9, 1.0};
  int64_t astray = 0;
  for (int64_t vocab = 1; vocab <= most; vocab++) {
    for (int32_t dtype = 0; dtype < 2; dtype++) {
      size_t size = dtype ? 2 : 4;
      char *logits = malloc((size_t)vocab * ROWS * size);
      void *scratch = malloc((size_t)md_draw_scratch(vocab));
      int64_t *places = malloc(8 * ROWS), *tokens = malloc(8 * ROWS);
      uint64_t *seeds = malloc(8 * ROWS);
      float *log_min_p = malloc(4 * ROWS), *scores = malloc(4 * ROWS);
      for (int64_t i = 0; i < vocab * ROWS; i++) {
        float x = (float)(noise_bits(7, (uint64_t)i) % 1000) / 100.0f;
        uint32_t bits;
        memcpy(&bits, &x, 4);
        if (dtype)
          ((uint16_t *)(void *)logits)[i] = (uint16_t)(bits >> 16);
        else
          ((float *)(void *)logits)[i] = x;
      }
      for (int r = 0; r < ROWS; r++) {
        places[r] = r;
        seeds[r] = (uint64_t)vocab;
        log_min_p[r] = r == ROWS - 1 ? -3.0f : -__builtin_inff();
      }
      for (int32_t what = 0; what < 3; what++) {
        md_draw(NULL, logits, dtype, vocab, vocab, ROWS, places, seeds, places, temperatures, top_k,
                top_p, log_min_p, 64, scratch, tokens, what, what ? scores : NULL);
        for (int r = 0; r < ROWS; r++) astray += tokens[r] < 0 || tokens[r] >= vocab;
        for (int r = 0; what && r < ROWS; r++) astray += !(scores[r] >= 0.0f && scores[r] < 100.0f);
      }
      free(logits), free(scratch), free(places), free(tokens), free(seeds), free(log_min_p);
      free(scores);
    }
  }
  return astray;
}
