/* vec.h by AVX-512: F, BW, DQ and VL. */
#ifndef MD_VEC_AVX512_H
#define MD_VEC_AVX512_H

#include <immintrin.h>

typedef __m512 v16;
typedef __mmask16 m16;

MD_INLINE v16 v16_zero(void) { return _mm512_setzero_ps(); }
MD_INLINE v16 v16_set(float x) { return _mm512_set1_ps(x); }
MD_INLINE v16 v16_load(const float *p) { return _mm512_loadu_ps(p); }
MD_INLINE void v16_store(float *p, v16 x) { _mm512_storeu_ps(p, x); }
MD_INLINE v16 v16_add(v16 a, v16 b) { return _mm512_add_ps(a, b); }
MD_INLINE v16 v16_sub(v16 a, v16 b) { return _mm512_sub_ps(a, b); }
MD_INLINE v16 v16_mul(v16 a, v16 b) { return _mm512_mul_ps(a, b); }
MD_INLINE v16 v16_div(v16 a, v16 b) { return _mm512_div_ps(a, b); }
/* a * b + c, rounded once. */
MD_INLINE v16 v16_fma(v16 a, v16 b, v16 c) { return _mm512_fmadd_ps(a, b, c); }
MD_INLINE v16 v16_min(v16 a, v16 b) { return _mm512_min_ps(a, b); }
MD_INLINE v16 v16_max(v16 a, v16 b) { return _mm512_max_ps(a, b); }

MD_INLINE m16 v16_lt(v16 a, v16 b) { return _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ); }
/* The lanes first <= lane < last. */
MD_INLINE m16 m16_range(int64_t first, int64_t last) {
  const __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  return _mm512_cmpge_epi32_mask(lane, _mm512_set1_epi32((int32_t)first)) &
         _mm512_cmplt_epi32_mask(lane, _mm512_set1_epi32((int32_t)last));
}
/* a where the mask is set, else b. */
MD_INLINE v16 v16_select(m16 mask, v16 a, v16 b) { return _mm512_mask_blend_ps(mask, b, a); }

MD_INLINE v16 v16_abs(v16 x) { return _mm512_abs_ps(x); }
/* x * 2^n for n that came out of v16_round_to_int; x and the product normal. */
MD_INLINE v16 v16_scale2(v16 x, v16 magic) {
  __m512i n = _mm512_slli_epi32(_mm512_castps_si512(magic), 23);
  return _mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(x), n));
}

MD_INLINE v16 v16_load_bf16(const uint16_t *p) {
  __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)p));
  return _mm512_castsi512_ps(_mm512_slli_epi32(wide, 16));
}

/* Sixteen pairs of bf16: the first and the second of each. */
MD_INLINE v16 v16_even_bf16(const uint16_t *p) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_loadu_si512(p), 16));
}
MD_INLINE v16 v16_odd_bf16(const uint16_t *p) {
  const __m512i high = _mm512_set1_epi32((int32_t)0xffff0000u);
  return _mm512_castsi512_ps(_mm512_and_si512(_mm512_loadu_si512(p), high));
}

/* Rounded to bf16, ties to even. Not vcvtneps2bf16, which flushes denormals: other CPUs would give
 * other bits. */
MD_INLINE v16 v16_round_bf16(v16 x) {
  __m512i bits = _mm512_castps_si512(x), high = _mm512_set1_epi32((int32_t)0xffff0000u);
  __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  __m512i up = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
  __m512i nan = _mm512_or_si512(bits, _mm512_set1_epi32(0x400000));
  __mmask16 is_nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
  return _mm512_castsi512_ps(_mm512_and_si512(_mm512_mask_blend_epi32(is_nan, up, nan), high));
}
MD_INLINE void v16_store_bf16(uint16_t *p, v16 x) {
  __m512i half = _mm512_srli_epi32(_mm512_castps_si512(v16_round_bf16(x)), 16);
  _mm256_storeu_si256((__m256i *)p, _mm512_cvtepi32_epi16(half));
}

MD_INLINE float md_sqrt(float x) { return _mm_cvtss_f32(_mm_sqrt_ss(_mm_set_ss(x))); }

/* ((0+8)+(4+12)) + ((2+10)+(6+14)), likewise the odd lanes, then their sum. */
MD_INLINE float v16_sum(v16 x) {
  __m256 a = _mm256_add_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps(x, 1));
  __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
  __m128 c = _mm_add_ps(b, _mm_movehl_ps(b, b));
  return _mm_cvtss_f32(_mm_add_ss(c, _mm_movehdup_ps(c)));
}
MD_INLINE float v16_largest(v16 x) {
  __m256 a = _mm256_max_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps(x, 1));
  __m128 b = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
  __m128 c = _mm_max_ps(b, _mm_movehl_ps(b, b));
  return _mm_cvtss_f32(_mm_max_ss(c, _mm_movehdup_ps(c)));
}

#endif
