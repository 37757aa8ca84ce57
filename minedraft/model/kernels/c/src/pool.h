/* A pool of threads that splits a range and never a sum: 1 and N threads give the same bits,
 * whichever thread takes which piece. Not here: queues, priorities, nested splits (those run on the
 * thread that asks).
 */
#ifndef MD_POOL_H
#define MD_POOL_H

#include "api.h"

typedef struct md_pool md_pool;

/* Work on [begin, end), a piece of the range. One thread may get several, one after the other.
 * `thread` is below md_pool_threads, for scratch memory of each thread. */
typedef void (*md_task)(void *ctx, int64_t begin, int64_t end, int32_t thread);

/* Split [0, count) over the threads, the caller among them, and return when all of it is done.
 * Boundaries are multiples of `grain` (at least 1), the least that is worth taking alone.
 * pool NULL, a pool that is busy with other work, or one inherited by a fork: the caller alone, as
 * thread 0. An empty range calls nothing. */
void md_parallel(md_pool *pool, md_task task, void *ctx, int64_t count, int64_t grain);

/* Start a pool of `threads` in all, 1 to MD_MAX_THREADS: the caller of md_parallel is one of them.
 * They run where the calling thread may run. NULL: out of range, no memory, no threads. */
enum { MD_MAX_THREADS = 256 };
MD_EXPORT md_pool *md_pool_create(int64_t threads);

/* End the threads, asleep or not. No work may run. NULL is allowed. */
MD_EXPORT void md_pool_destroy(md_pool *pool);

/* Split the next calls over the first `threads` only, 1 to all of them; the others sleep. No work may
 * run. -1: out of range. */
MD_EXPORT int32_t md_pool_use(md_pool *pool, int64_t threads);

/* Let a thread, 1 or later, run on these cores only. -1: out of range, or the system refuses. */
MD_EXPORT int32_t md_pool_place(md_pool *pool, int64_t thread, const int64_t *cores, int64_t count);

/* Threads of a pool; 1 for NULL. */
MD_EXPORT int32_t md_pool_threads(const md_pool *pool);

#endif
