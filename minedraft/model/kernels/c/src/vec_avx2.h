/* vec.h by AVX2 with FMA: two halves of eight. */
#ifndef MD_VEC_AVX2_H
#define MD_VEC_AVX2_H

#include <immintrin.h>

typedef struct {
  __m256 a, b;
} v16;
typedef v16 m16;

#define MD_HALVES(name, op)                              \
  MD_INLINE v16 name(v16 x, v16 y) {                     \
    return (v16){op(x.a, y.a), op(x.b, y.b)};            \
  }
MD_HALVES(v16_add, _mm256_add_ps)
MD_HALVES(v16_sub, _mm256_sub_ps)
MD_HALVES(v16_mul, _mm256_mul_ps)
MD_HALVES(v16_div, _mm256_div_ps)
MD_HALVES(v16_min, _mm256_min_ps)
MD_HALVES(v16_max, _mm256_max_ps)
#undef MD_HALVES

MD_INLINE v16 v16_zero(void) { return (v16){_mm256_setzero_ps(), _mm256_setzero_ps()}; }
MD_INLINE v16 v16_set(float x) { return (v16){_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
MD_INLINE v16 v16_load(const float *p) {
  return (v16){_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)};
}
MD_INLINE void v16_store(float *p, v16 x) {
  _mm256_storeu_ps(p, x.a);
  _mm256_storeu_ps(p + 8, x.b);
}
/* a * b + c, rounded once. */
MD_INLINE v16 v16_fma(v16 a, v16 b, v16 c) {
  return (v16){_mm256_fmadd_ps(a.a, b.a, c.a), _mm256_fmadd_ps(a.b, b.b, c.b)};
}

MD_INLINE m16 v16_lt(v16 x, v16 y) {
  return (m16){_mm256_cmp_ps(x.a, y.a, _CMP_LT_OQ), _mm256_cmp_ps(x.b, y.b, _CMP_LT_OQ)};
}
/* The lanes first <= lane < last. */
MD_INLINE m16 m16_range(int64_t first, int64_t last) {
  const __m256i low = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  const __m256i high = _mm256_setr_epi32(8, 9, 10, 11, 12, 13, 14, 15);
  __m256i from = _mm256_set1_epi32((int32_t)first - 1), to = _mm256_set1_epi32((int32_t)last);
  return (m16){_mm256_castsi256_ps(_mm256_and_si256(_mm256_cmpgt_epi32(low, from),
                                                    _mm256_cmpgt_epi32(to, low))),
               _mm256_castsi256_ps(_mm256_and_si256(_mm256_cmpgt_epi32(high, from),
                                                    _mm256_cmpgt_epi32(to, high)))};
}
/* a where the mask is set, else b. */
MD_INLINE v16 v16_select(m16 mask, v16 x, v16 y) {
  return (v16){_mm256_blendv_ps(y.a, x.a, mask.a), _mm256_blendv_ps(y.b, x.b, mask.b)};
}

MD_INLINE v16 v16_abs(v16 x) {
  const __m256 sign = _mm256_set1_ps(-0.0f);
  return (v16){_mm256_andnot_ps(sign, x.a), _mm256_andnot_ps(sign, x.b)};
}
MD_INLINE __m256 md_scale2_half(__m256 x, __m256 magic) {
  __m256i n = _mm256_slli_epi32(_mm256_castps_si256(magic), 23);
  return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(x), n));
}
/* x * 2^n for n that came out of v16_round_to_int; x and the product normal. */
MD_INLINE v16 v16_scale2(v16 x, v16 magic) {
  return (v16){md_scale2_half(x.a, magic.a), md_scale2_half(x.b, magic.b)};
}

MD_INLINE __m256 md_widen_half(const uint16_t *p) {
  __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)p));
  return _mm256_castsi256_ps(_mm256_slli_epi32(wide, 16));
}
MD_INLINE v16 v16_load_bf16(const uint16_t *p) {
  return (v16){md_widen_half(p), md_widen_half(p + 8)};
}

/* Sixteen pairs of bf16: the first and the second of each. */
MD_INLINE v16 v16_even_bf16(const uint16_t *p) {
  const __m256i *at = (const __m256i *)p;
  return (v16){_mm256_castsi256_ps(_mm256_slli_epi32(_mm256_loadu_si256(at), 16)),
               _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_loadu_si256(at + 1), 16))};
}
MD_INLINE v16 v16_odd_bf16(const uint16_t *p) {
  const __m256i *at = (const __m256i *)p, high = _mm256_set1_epi32((int32_t)0xffff0000u);
  return (v16){_mm256_castsi256_ps(_mm256_and_si256(_mm256_loadu_si256(at), high)),
               _mm256_castsi256_ps(_mm256_and_si256(_mm256_loadu_si256(at + 1), high))};
}

MD_INLINE __m256 md_round_half(__m256 x) {
  __m256i bits = _mm256_castps_si256(x), high = _mm256_set1_epi32((int32_t)0xffff0000u);
  __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  __m256i up = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
  __m256i nan = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
  __m256i is_nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
  return _mm256_castsi256_ps(_mm256_and_si256(_mm256_blendv_epi8(up, nan, is_nan), high));
}
/* Rounded to bf16, ties to even. */
MD_INLINE v16 v16_round_bf16(v16 x) { return (v16){md_round_half(x.a), md_round_half(x.b)}; }
MD_INLINE void v16_store_bf16(uint16_t *p, v16 x) {
  __m256i a = _mm256_srli_epi32(_mm256_castps_si256(md_round_half(x.a)), 16);
  __m256i b = _mm256_srli_epi32(_mm256_castps_si256(md_round_half(x.b)), 16);
  __m256i both = _mm256_permute4x64_epi64(_mm256_packus_epi32(a, b), 0xd8);
  _mm256_storeu_si256((__m256i *)p, both);
}

MD_INLINE float md_sqrt(float x) { return _mm_cvtss_f32(_mm_sqrt_ss(_mm_set_ss(x))); }

/* ((0+8)+(4+12)) + ((2+10)+(6+14)), likewise the odd lanes, then their sum. */
MD_INLINE float v16_sum(v16 x) {
  __m256 a = _mm256_add_ps(x.a, x.b);
  __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
  __m128 c = _mm_add_ps(b, _mm_movehl_ps(b, b));
  return _mm_cvtss_f32(_mm_add_ss(c, _mm_movehdup_ps(c)));
}
MD_INLINE float v16_largest(v16 x) {
  __m256 a = _mm256_max_ps(x.a, x.b);
  __m128 b = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
  __m128 c = _mm_max_ps(b, _mm_movehl_ps(b, b));
  return _mm_cvtss_f32(_mm_max_ss(c, _mm_movehdup_ps(c)));
}

#endif
