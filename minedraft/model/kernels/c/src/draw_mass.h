/* What a token weighs in top-p: minedraft/model/mass.py, bit for bit. A weight is a float32 of
 * additions and multiplications alone, a mass is that weight in units of 2^-40 of the best token's,
 * and sums of masses are sums of integers: no order, width or thread can move them.
 */
#ifndef MD_DRAW_MASS_H
#define MD_DRAW_MASS_H

#include "vec.h"

#define MASS_LOWEST -60.0f  /* powers of two; from there down all weigh 2^-60, a mass of 0 */

/* 2^(score / ln 2), within 2e-7 and the rounding of the exponent. */
MD_INLINE v16 mass_weights(v16 scores) {
  v16 power = v16_max(v16_mul(scores, v16_set(1.44269502f)), v16_set(MASS_LOWEST));
  v16 magic, f = v16_sub(power, v16_round_to_int(power, &magic));
  v16 p = v16_set(0x1.5bba1p-10f);
  p = v16_add(v16_mul(p, f), v16_set(0x1.3cea88p-7f));
  p = v16_add(v16_mul(p, f), v16_set(0x1.c6b752p-5f));
  p = v16_add(v16_mul(p, f), v16_set(0x1.ebf9bcp-3f));
  p = v16_add(v16_mul(p, f), v16_set(0x1.62e42ap-1f));
  p = v16_add(v16_mul(p, f), v16_set(1.0f));
  return v16_scale2(p, magic);
}

/* A double in [2^12, 2^13) has a last place of 2^-40: adding MASS_SHIFT rounds a weight to a mass,
 * ties to even, and leaves it in the low bits. Sums of those patterns are sums of masses. */
#define MASS_SHIFT 6144.0
#define MASS_SHIFT_BITS 0x40B8000000000000u

#if defined(__AVX512F__)
typedef __m512i mass_sum;
MD_INLINE mass_sum mass_zero(void) { return _mm512_setzero_si512(); }
MD_INLINE mass_sum mass_add(mass_sum sum, v16 weights) {
  const __m512d shift = _mm512_set1_pd(MASS_SHIFT);
  __m512d a = _mm512_cvtps_pd(_mm512_castps512_ps256(weights));
  __m512d b = _mm512_cvtps_pd(_mm512_extractf32x8_ps(weights, 1));
  __m512i both = _mm512_add_epi64(_mm512_castpd_si512(_mm512_add_pd(a, shift)),
                                  _mm512_castpd_si512(_mm512_add_pd(b, shift)));
  return _mm512_add_epi64(sum, both);
}
#elif defined(__AVX2__)
typedef struct {
  __m256i a, b;
} mass_sum;
MD_INLINE mass_sum mass_zero(void) {
  return (mass_sum){_mm256_setzero_si256(), _mm256_setzero_si256()};
}
MD_INLINE __m256i mass_half(__m256 weights) {
  const __m256d shift = _mm256_set1_pd(MASS_SHIFT);
  __m256d a = _mm256_cvtps_pd(_mm256_castps256_ps128(weights));
  __m256d b = _mm256_cvtps_pd(_mm256_extractf128_ps(weights, 1));
  return _mm256_add_epi64(_mm256_castpd_si256(_mm256_add_pd(a, shift)),
                          _mm256_castpd_si256(_mm256_add_pd(b, shift)));
}
MD_INLINE mass_sum mass_add(mass_sum sum, v16 weights) {
  return (mass_sum){_mm256_add_epi64(sum.a, mass_half(weights.a)),
                    _mm256_add_epi64(sum.b, mass_half(weights.b))};
}
#else
typedef struct {
  uint64_t lanes[16];
} mass_sum;
MD_INLINE mass_sum mass_zero(void) { return (mass_sum){{0}}; }
MD_INLINE mass_sum mass_add(mass_sum sum, v16 weights) {
  float w[16];
  v16_store(w, weights);
  for (int lane = 0; lane < 16; lane++) {
    double shifted = (double)w[lane] + MASS_SHIFT;
    uint64_t pattern;
    memcpy(&pattern, &shifted, 8);
    sum.lanes[lane] += pattern;
  }
  return sum;
}
#endif

/* The sum of all masses, after `count` vectors of 16. */
MD_INLINE int64_t mass_total(mass_sum sum, int64_t count) {
  uint64_t lanes[sizeof(mass_sum) / 8], total = 0;
  memcpy(lanes, &sum, sizeof lanes);
  for (size_t lane = 0; lane < sizeof lanes / 8; lane++) total += lanes[lane];
  return (int64_t)(total - (uint64_t)count * 16 * MASS_SHIFT_BITS);
}

#endif
