/* Lets the tests of Python see the operations of vec.h that are our own. */
#include "vec.h"

/* x [count], a multiple of 16: exp, tanh, and x rounded to bf16 twice (vector and scalar). */
MD_EXPORT int32_t drive_vec(const float *x, float *exps, float *tanhs, uint16_t *halves,
                            uint16_t *scalars, int64_t count) {
  for (int64_t i = 0; i < count; i += 16) {
    v16 v = v16_load(x + i);
    v16_store(exps + i, v16_exp(v));
    v16_store(tanhs + i, v16_tanh(v));
    v16_store_bf16(halves + i, v);
    for (int64_t j = i; j < i + 16; j++) scalars[j] = md_round(x[j]);
  }
  return MD_OK;
}

/* Sum and largest of 16 lanes, and the lanes from `first` to `last` of -x. */
MD_EXPORT int32_t drive_lanes(const float *x, int64_t first, int64_t last, float *sum,
                              float *largest, float *chosen) {
  v16 v = v16_load(x);
  *sum = v16_sum(v);
  *largest = v16_largest(v);
  v16_store(chosen, v16_select(m16_range(first, last), v16_sub(v16_zero(), v), v));
  return MD_OK;
}
