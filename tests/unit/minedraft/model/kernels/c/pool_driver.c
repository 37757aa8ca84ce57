/* Work for the tests of the pool: counts who was given what. */
#include "pool.h"

typedef struct {
  int32_t *times, *threads;
  int64_t grain, count;
  md_pool *pool;
  _Atomic int32_t odd;
  int32_t depth;
} job;

static void note(void *ctx, int64_t begin, int64_t end, int32_t thread) {
  job *j = ctx;
  if (begin % j->grain || (end % j->grain && end != j->count) || begin >= end) j->odd++;
  if (thread < 0 || thread >= md_pool_threads(j->pool)) j->odd++;
  for (int64_t i = begin; i < end; i++) {
    j->times[i]++;
    j->threads[i] = thread;
  }
}

static void nest(void *ctx, int64_t begin, int64_t end, int32_t thread) {
  (void)thread;
  job *j = ctx;
  for (int64_t i = begin; i < end; i++) {
    job inner = {.times = j->times + i * j->count, .threads = j->threads + i * j->count,
                 .grain = 1, .count = j->count, .pool = j->pool};
    md_parallel(j->pool, note, &inner, inner.count, 1);
    j->odd += inner.odd;
  }
}

/* Returns the number of pieces that broke a rule. */
MD_EXPORT int32_t drive(md_pool *pool, int32_t *times, int32_t *threads, int64_t count,
                        int64_t grain, int64_t calls) {
  job j = {.times = times, .threads = threads, .grain = grain < 1 ? 1 : grain, .count = count,
           .pool = pool};
  for (int64_t i = 0; i < calls; i++) md_parallel(pool, note, &j, count, grain);
  return j.odd;
}

/* Splits `count` pieces, each of which splits `count` items: times is [count, count]. */
MD_EXPORT int32_t drive_nested(md_pool *pool, int32_t *times, int32_t *threads, int64_t count) {
  job j = {.times = times, .threads = threads, .grain = 1, .count = count, .pool = pool};
  md_parallel(pool, nest, &j, count, 1);
  return j.odd;
}
