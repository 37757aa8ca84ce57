/* The noise of minedraft/model/noise.py, bit for bit: SplitMix64, and a logarithm of IEEE additions,
 * multiplications and divisions. Loops over lanes are elementwise, so any vector width gives the
 * same bits. Keys and stream numbers are that module's.
 */
#ifndef MD_DRAW_NOISE_H
#define MD_DRAW_NOISE_H

#include <stdint.h>
#include <string.h>

#include "vec.h"

enum { NOISE_LANES = 16, NOISE_LANE_BITS = 6, NOISE_GROUP = 1 << NOISE_LANE_BITS };

#define NOISE_GOLDEN 0x9E3779B97F4A7C15u
#define NOISE_GROUP_INDEX ((uint64_t)1 << 40)
#define NOISE_SQRT_HALF 0x3FE6A09E667F3BCDu /* the bits of 0.7071067811865476 */

MD_INLINE uint64_t noise_mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

/* The key of a position, of the stream that drafter and verifier share (0). */
MD_INLINE uint64_t noise_key(uint64_t seed, int64_t position) {
  uint64_t key = noise_mix(seed + NOISE_GOLDEN);
  key = noise_mix(key ^ (uint64_t)position);
  return noise_mix(key + NOISE_GOLDEN);
}

/* 52 bits. */
MD_INLINE uint64_t noise_bits(uint64_t key, uint64_t index) {
  return noise_mix(key + (index + 1) * NOISE_GOLDEN) >> 12;
}

/* (bits + 1/2) / 2^52, exact: with that exponent the last place of a double is 1. */
MD_INLINE double noise_uniform(uint64_t bits) {
  uint64_t pattern = bits | 0x4330000000000000u;
  double x;
  memcpy(&x, &pattern, 8);
  return (x - 0x1p52 + 0.5) * 0x1p-52;
}

/* Natural logarithm of a positive normal number. Integers in place of branches, for the vectors. */
MD_INLINE double noise_log(double x) {
  uint64_t pattern, biased;
  double mantissa, power;
  memcpy(&pattern, &x, 8);
  biased = (pattern >> 52) + 0x4330000000000000u; /* as in noise_uniform */
  pattern = (pattern & 0x000FFFFFFFFFFFFFu) | 0x3FE0000000000000u; /* in [1/2, 1) */
  uint64_t is_low = (pattern - NOISE_SQRT_HALF) >> 63;
  pattern += is_low << 52;
  memcpy(&mantissa, &pattern, 8);
  biased -= is_low;
  memcpy(&power, &biased, 8);
  power -= 0x1p52 + 1022.0;
  double s = (mantissa - 1.0) / (mantissa + 1.0), square = s * s;
  double series = 1.0 / 19;
  series = series * square + 1.0 / 17;
  series = series * square + 1.0 / 15;
  series = series * square + 1.0 / 13;
  series = series * square + 1.0 / 11;
  series = series * square + 1.0 / 9;
  series = series * square + 1.0 / 7;
  series = series * square + 1.0 / 5;
  series = series * square + 1.0 / 3;
  series = series * square + 1.0;
  return power * 0.6931471805599453 + series * s * 2.0;
}

MD_INLINE double noise_exponential(uint64_t key, uint64_t index) {
  return -noise_log(1.0 - noise_uniform(noise_bits(key, index)));
}

/* The smallest exponential of a group of 64 tokens. */
MD_INLINE double noise_group_minimum(uint64_t key, int64_t group) {
  return noise_exponential(key, 2 * (uint64_t)group + NOISE_GROUP_INDEX) * (1.0 / NOISE_GROUP);
}

/* The token that has it. */
MD_INLINE int64_t noise_group_argmin(uint64_t key, int64_t group) {
  uint64_t bits = noise_bits(key, 2 * (uint64_t)group + NOISE_GROUP_INDEX + 1);
  return (int64_t)(bits >> (52 - NOISE_LANE_BITS)) + (group << NOISE_LANE_BITS);
}

/* Not below 1 / noise_group_minimum, of 16 groups from `first` on: -log(1 - u) is at least
 * u + u^2 / 2 + u^3 / 3. No logarithm, and in float32: a bound. */
MD_INLINE void noise_reach(uint64_t key, int64_t first, float *reach) {
  for (int lane = 0; lane < NOISE_LANES; lane++) {
    uint64_t index = 2 * (uint64_t)(first + lane) + NOISE_GROUP_INDEX;
    double u = noise_uniform(noise_bits(key, index));
    double least = u + u * u * (0.5 + u * (1.0 / 3));
    reach[lane] = (float)(NOISE_GROUP * (1.0 + 1e-6) / least);
  }
}

/* score + Gumbel noise of 16 tokens of one group. */
MD_INLINE void noise_perturb(uint64_t key, double minimum, int64_t argmin, const float *scores,
                             const int64_t *tokens, double *perturbed) {
  for (int lane = 0; lane < NOISE_LANES; lane++) {
    double own = noise_exponential(key, (uint64_t)tokens[lane]);
    uint64_t pattern, other = (uint64_t)(tokens[lane] ^ argmin);
    memcpy(&pattern, &own, 8);
    pattern &= -((other | -other) >> 63); /* 0 for the argmin */
    memcpy(&own, &pattern, 8);
    perturbed[lane] = (double)scores[lane] - noise_log(own + minimum);
  }
}

#endif
