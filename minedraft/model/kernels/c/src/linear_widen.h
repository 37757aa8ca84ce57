/* Widens codes and activations to float32, which a register tile reads. */
#ifndef MD_LINEAR_WIDEN_H
#define MD_LINEAR_WIDEN_H

#include "linear.h"
#include "vec.h"

/* Codes of `bits` that begin at bit `shift` of 16 words, as floats. */
#if defined(__AVX512F__)
MD_INLINE v16 md_codes(const uint32_t *words, const int shift, const int bits) {
  __m512i x = _mm512_srli_epi32(_mm512_loadu_si512(words), shift);
  return _mm512_cvtepi32_ps(_mm512_and_si512(x, _mm512_set1_epi32((1 << bits) - 1)));
}
#elif defined(__AVX2__)
MD_INLINE __m256 md_codes_half(const uint32_t *words, const int shift, const int bits) {
  __m256i x = _mm256_srli_epi32(_mm256_loadu_si256((const __m256i *)words), shift);
  return _mm256_cvtepi32_ps(_mm256_and_si256(x, _mm256_set1_epi32((1 << bits) - 1)));
}
MD_INLINE v16 md_codes(const uint32_t *words, const int shift, const int bits) {
  return (v16){md_codes_half(words, shift, bits), md_codes_half(words + 8, shift, bits)};
}
#else
MD_INLINE v16 md_codes(const uint32_t *words, const int shift, const int bits) {
  float lanes[16];
  for (int i = 0; i < 16; i++) lanes[i] = (float)((words[i] >> shift) & ((1u << bits) - 1));
  return v16_load(lanes);
}
#endif

MD_INLINE void widen_panel(const char *panel, const float *scales, const float *offsets,
                           int64_t group, int64_t k0, int64_t k, float *to, const int bits) {
  const int per_word = 32 / bits;
  const uint32_t *words = (const uint32_t *)panel + k0 / per_word * MD_PANEL;
  for (int64_t i = 0; i < k;) {
    const int64_t g = (k0 + i) / group;
    const int64_t until = (g + 1) * group - k0 < k ? (g + 1) * group - k0 : k;
    const v16 scale = v16_load(scales + g * MD_PANEL), offset = v16_load(offsets + g * MD_PANEL);
    for (; i < until; i += per_word, words += MD_PANEL, to += per_word * MD_PANEL) {
      __builtin_prefetch((const char *)words + 1024, 0, 3);
#pragma GCC unroll 8
      for (int j = 0; j < per_word; j++)
        v16_store(to + j * MD_PANEL, v16_fma(md_codes(words, j * bits, bits), scale, offset));
    }
  }
}

/* Part [k0, k0 + k) of `panels` panels from `panel` on: to [panels][k][16]. All are multiples of 8,
 * as groups are. */
MD_INLINE void widen_codes(const md_stored *stored, int64_t panel, int64_t panels, int64_t k0,
                           int64_t k, float *to) {
  const int64_t bytes = md_panel_bytes(stored), group = stored->group;
  const int64_t per_panel = stored->k / group * MD_PANEL;
  for (int64_t p = panel; p < panel + panels; p++, to += k * MD_PANEL) {
    const char *from = (const char *)stored->weights + p * bytes;
    const float *scales = stored->scales + p * per_panel, *offsets = stored->offsets + p * per_panel;
    if (stored->kind == MD_CODES4)
      widen_panel(from, scales, offsets, group, k0, k, to, 4);
    else
      widen_panel(from, scales, offsets, group, k0, k, to, 8);
  }
}

/* Activations are widened likewise: [rows][k]. */
MD_INLINE void widen_x(const uint16_t *x, int64_t stride, int64_t rows, int64_t k, float *to) {
  for (int64_t r = 0; r < rows; r++, x += stride, to += k) {
    int64_t i = 0;
    for (; i + 16 <= k; i += 16) v16_store(to + i, v16_load_bf16(x + i));
    for (; i < k; i++) to[i] = md_widen(x[i]);
  }
}

#endif
