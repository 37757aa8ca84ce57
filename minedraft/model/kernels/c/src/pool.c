/* See pool.h. Each worker has a mailbox on a cache line of its own. The caller posts work to as many
 * as it has pieces for; a worker spins for a moment after each job, then sleeps on a futex, so
 * that an idle pool costs nothing and kernels that follow each other need no system call.
 *
 * All take the next piece from one counter. A virtual core may run at half the speed of the other,
 * or not at all for a millisecond: with halves the job would take as long as the slower one. And
 * the caller waits only for workers that have begun: one that wakes late finds nothing left.
 */
#include "pool.h"

#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* About 40 us: longer than Python needs between two kernels, shorter than anybody notices. */
enum { SPINS = 20000, LINE = 64, STACK_BYTES = 1 << 20 };

typedef struct {
  _Alignas(LINE) _Atomic uint32_t posted; /* jobs, counted; the futex word */
  _Atomic uint32_t asleep;
  md_pool *pool;
  int32_t thread;
  pthread_t handle;
} worker;

struct md_pool {
  _Alignas(LINE) _Atomic uint32_t inside; /* workers that look at the job; the caller's futex word */
  _Atomic uint32_t waiting;               /* the caller sleeps on it */
  _Atomic uint32_t open;                  /* there is a job; if not, nothing below is valid */
  _Atomic uint32_t busy;                  /* one caller at a time; others work alone */
  _Atomic uint32_t ending;
  uint32_t forks; /* the value of `forks_seen` in the process that has the threads */
  int32_t threads;
  int32_t used; /* of them, by the next call */
  int32_t spins;
  md_task task;
  void *ctx;
  int64_t count, grain, units, step; /* of the range; pieces are of `step` units of `grain` */
  worker *workers;                   /* threads - 1 of them; the caller is thread 0 */
  _Alignas(LINE) _Atomic int64_t next; /* unit that is not taken yet */
};

/* Pieces for each thread: so many that a fast one helps a slow one, so few that taking is cheap. */
enum { PIECES = 8 };

static _Atomic uint32_t forks_seen; /* a child has the pools' memory but not their threads */
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void count_fork(void) { atomic_fetch_add(&forks_seen, 1); }
static void watch_forks(void) { (void)pthread_atfork(NULL, NULL, count_fork); }

/* Not `pause`: on two virtual cores (Intel Xeon) with it, a hand-over after a gap of 9 us took 25 us
 * in three runs of eight; without it, none of seven. */
static inline void relax(void) {
  __asm__ volatile("nop; nop; nop; nop; nop; nop; nop; nop" ::: "memory");
}

static void sleep_while(_Atomic uint32_t *word, uint32_t value) {
  (void)syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, NULL, NULL, 0);
}

static void wake(_Atomic uint32_t *word) {
  (void)syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

/* Wait until `*word` is not `value`. Whoever changes it looks at `*asleep` afterwards. Both sides
 * store and then load, sequentially consistent: one of them sees the other. */
static uint32_t wait_for_change(_Atomic uint32_t *word, uint32_t value, _Atomic uint32_t *asleep,
                                int32_t spins) {
  for (int32_t i = 0; i < spins; i++) {
    uint32_t now = atomic_load_explicit(word, memory_order_acquire);
    if (now != value) return now;
    relax();
  }
  atomic_store(asleep, 1);
  uint32_t now = atomic_load(word);
  while (now == value) {
    sleep_while(word, value);
    now = atomic_load(word);
  }
  atomic_store(asleep, 0);
  return now;
}

static void post(worker *one) {
  atomic_fetch_add(&one->posted, 1);
  if (atomic_load(&one->asleep)) wake(&one->posted);
}

/* Work on pieces until none is left. */
static void take(md_pool *pool, int32_t thread) {
  const int64_t units = pool->units, step = pool->step;
  for (;;) {
    const int64_t begin = atomic_fetch_add(&pool->next, step);
    if (begin >= units) return;
    const int64_t end = begin + step < units ? (begin + step) * pool->grain : pool->count;
    pool->task(pool->ctx, begin * pool->grain, end, thread);
  }
}

static void *work(void *argument) {
  worker *me = argument;
  md_pool *pool = me->pool;
  uint32_t seen = 0;
  for (;;) {
    seen = wait_for_change(&me->posted, seen, &me->asleep, pool->spins);
    if (atomic_load(&pool->ending)) return NULL;
    /* Enter, then look; the caller shuts, then looks who is inside: one of them sees the other. */
    atomic_fetch_add(&pool->inside, 1);
    if (atomic_load(&pool->open)) take(pool, me->thread);
    if (atomic_fetch_sub(&pool->inside, 1) == 1 && atomic_load(&pool->waiting)) wake(&pool->inside);
  }
}

/* Spinning helps only if all threads can run at once. */
static int32_t spins_for(int64_t threads) {
  cpu_set_t usable;
  if (sched_getaffinity(0, sizeof usable, &usable)) return 0;
  return CPU_COUNT(&usable) >= threads ? SPINS : 0;
}

static void end_workers(md_pool *pool, int32_t started) {
  atomic_store(&pool->ending, 1);
  for (int32_t i = 0; i < started; i++) post(&pool->workers[i]);
  for (int32_t i = 0; i < started; i++) (void)pthread_join(pool->workers[i].handle, NULL);
}

static int32_t start_workers(md_pool *pool) {
  pthread_attr_t attributes;
  if (pthread_attr_init(&attributes)) return 0;
  (void)pthread_attr_setstacksize(&attributes, STACK_BYTES);
  sigset_t all, before; /* signals are Python's: none is for these threads */
  (void)sigfillset(&all);
  (void)pthread_sigmask(SIG_SETMASK, &all, &before);
  int32_t started = 0;
  for (; started < pool->threads - 1; started++) {
    worker *one = &pool->workers[started];
    one->pool = pool;
    one->thread = started + 1;
    if (pthread_create(&one->handle, &attributes, work, one)) break;
  }
  (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
  (void)pthread_attr_destroy(&attributes);
  return started;
}

static void *zeroed(size_t bytes) {
  void *memory = aligned_alloc(LINE, (bytes + LINE - 1) / LINE * LINE);
  return memory ? memset(memory, 0, bytes) : NULL;
}

MD_EXPORT md_pool *md_pool_create(int64_t threads) {
  if (threads < 1 || threads > MD_MAX_THREADS) return NULL;
  (void)pthread_once(&once, watch_forks);
  md_pool *pool = zeroed(sizeof *pool);
  worker *workers = zeroed((size_t)threads * sizeof *workers);
  if (!pool || !workers) {
    free(pool);
    free(workers);
    return NULL;
  }
  pool->workers = workers;
  pool->threads = pool->used = (int32_t)threads;
  pool->spins = spins_for(threads);
  pool->forks = atomic_load(&forks_seen);
  int32_t started = start_workers(pool);
  if (started == threads - 1) return pool;
  end_workers(pool, started);
  free(workers);
  free(pool);
  return NULL;
}

MD_EXPORT void md_pool_destroy(md_pool *pool) {
  if (!pool) return;
  if (pool->forks == atomic_load(&forks_seen)) end_workers(pool, pool->threads - 1);
  free(pool->workers);
  free(pool);
}

MD_EXPORT int32_t md_pool_use(md_pool *pool, int64_t threads) {
  if (!pool || threads < 1 || threads > pool->threads) return -1;
  pool->used = (int32_t)threads;
  return 0;
}

MD_EXPORT int32_t md_pool_place(md_pool *pool, int64_t thread, const int64_t *cores, int64_t count) {
  if (!pool || thread < 1 || thread >= pool->threads || count < 1) return -1;
  cpu_set_t set;
  CPU_ZERO(&set);
  for (int64_t i = 0; i < count; i++) {
    if (cores[i] < 0 || cores[i] >= CPU_SETSIZE) return -1;
    CPU_SET((size_t)cores[i], &set);
  }
  return pthread_setaffinity_np(pool->workers[thread - 1].handle, sizeof set, &set) ? -1 : 0;
}

MD_EXPORT int32_t md_pool_threads(const md_pool *pool) { return pool ? pool->threads : 1; }

void md_parallel(md_pool *pool, md_task task, void *ctx, int64_t count, int64_t grain) {
  if (count <= 0) return;
  if (grain < 1) grain = 1;
  int64_t units = (count - 1) / grain + 1;
  if (!pool || pool->used == 1 || units == 1 || pool->forks != atomic_load(&forks_seen) ||
      atomic_exchange(&pool->busy, 1)) {
    task(ctx, 0, count, 0);
    return;
  }
  const int64_t helpers = (units < pool->used ? units : pool->used) - 1;
  pool->task = task;
  pool->ctx = ctx;
  pool->count = count;
  pool->grain = grain;
  pool->units = units;
  pool->step = units / ((int64_t)pool->used * PIECES);
  if (pool->step < 1) pool->step = 1;
  atomic_store(&pool->next, 0);
  atomic_store(&pool->open, 1);
  for (int64_t i = 0; i < helpers; i++) post(&pool->workers[i]);
  take(pool, 0);
  atomic_store(&pool->open, 0);
  for (uint32_t left = atomic_load(&pool->inside); left;)
    left = wait_for_change(&pool->inside, left, &pool->waiting, pool->spins);
  atomic_store(&pool->busy, 0);
}
