/* The threads of one rank. A worker waits for the next job by looking at a counter for a moment and then
 * sleeps on a condition, so that an idle pool costs nothing; with more threads than cores it sleeps at
 * once. */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>

#include <cblas.h>

#include "kernels/cpu/cpu.h"

#define SPINS 2000 /* a few tens of microseconds */

struct ZkPool {
  int threads, spins;
  void (*fn)(void *arg, int part, int parts);
  void *arg;
  atomic_uint job; /* counts jobs; workers start when it changes */
  atomic_int left; /* workers still busy with the current job */
  bool quit;
  pthread_mutex_t lock;
  pthread_cond_t start, done;
  struct Worker {
    ZkPool *pool;
    int part;
    pthread_t thread;
    _Atomic uint64_t left; /* of its share of a parallel for: pieces first, end */
    char apart[64];        /* no two in a line of the cache */
  } * worker;
};

static inline void relax(void) {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

static unsigned wait_job(ZkPool *p, unsigned seen) {
  for (int i = 0; i < p->spins; i++) {
    unsigned now = atomic_load_explicit(&p->job, memory_order_acquire);
    if (now != seen) return now;
    relax();
  }
  pthread_mutex_lock(&p->lock);
  while (atomic_load(&p->job) == seen) pthread_cond_wait(&p->start, &p->lock);
  pthread_mutex_unlock(&p->lock);
  return atomic_load(&p->job);
}

static void *work(void *arg) {
  struct Worker *w = arg;
  ZkPool *p = w->pool;
  for (unsigned seen = 0;;) {
    seen = wait_job(p, seen);
    if (p->quit) return NULL;
    p->fn(p->arg, w->part, p->threads);
    if (atomic_fetch_sub(&p->left, 1) == 1) {
      pthread_mutex_lock(&p->lock);
      pthread_cond_signal(&p->done);
      pthread_mutex_unlock(&p->lock);
    }
  }
}

ZkPool *zk_pool_new(int threads) {
  ZB_ASSERT(threads >= 1);
  openblas_set_num_threads(1); /* products are split here: two pools would fight over the cores */
  ZkPool *p = calloc(1, sizeof *p);
  ZB_ASSERT(p != NULL);
  p->threads = threads;
  p->spins = (uint32_t)threads <= zb_cpus().n ? SPINS : 0;
  pthread_mutex_init(&p->lock, NULL);
  pthread_cond_init(&p->start, NULL);
  pthread_cond_init(&p->done, NULL);
  p->worker = calloc((size_t)threads, sizeof *p->worker);
  ZB_ASSERT(p->worker != NULL);
  sigset_t all, old; /* signals are the main thread's business */
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &old);
  for (int i = 1; i < p->threads; i++) {
    p->worker[i].pool = p, p->worker[i].part = i;
    if (pthread_create(&p->worker[i].thread, NULL, work, &p->worker[i]) != 0) p->threads = i;
  }
  pthread_sigmask(SIG_SETMASK, &old, NULL);
  if (p->threads == threads) return p;
  zk_pool_free(p);
  return NULL;
}

static void post_job(ZkPool *p) {
  pthread_mutex_lock(&p->lock);
  atomic_fetch_add(&p->job, 1);
  pthread_cond_broadcast(&p->start);
  pthread_mutex_unlock(&p->lock);
}

void zk_pool_free(ZkPool *p) {
  if (p == NULL) return;
  p->quit = true;
  post_job(p);
  for (int i = 1; i < p->threads; i++) pthread_join(p->worker[i].thread, NULL);
  pthread_mutex_destroy(&p->lock);
  pthread_cond_destroy(&p->start);
  pthread_cond_destroy(&p->done);
  free(p->worker);
  free(p);
}

int zk_pool_threads(const ZkPool *p) { return p->threads; }

void zk_pool_run(ZkPool *p, void (*fn)(void *arg, int part, int parts), void *arg) {
  if (p->threads == 1) {
    fn(arg, 0, 1);
    return;
  }
  p->fn = fn;
  p->arg = arg;
  atomic_store(&p->left, p->threads - 1);
  post_job(p);
  fn(arg, 0, p->threads);
  for (int i = 0; i < p->spins; i++) {
    if (atomic_load_explicit(&p->left, memory_order_acquire) == 0) return;
    relax();
  }
  pthread_mutex_lock(&p->lock);
  while (atomic_load(&p->left) > 0) pthread_cond_wait(&p->done, &p->lock);
  pthread_mutex_unlock(&p->lock);
}

/* ---- parallel for ---------------------------------------------------------------------------- */

/* [0, n) in pieces. Each thread begins with a share of its own, neighbouring pieces from the first on, so
 * that it reads memory in one stream; who has none left takes the last of another's. */
typedef struct {
  ZkPool *pool;
  int64_t n, piece, pieces;
  ZkForFn *fn;
  void *arg;
} For;

static uint64_t pack(int64_t first, int64_t end) { return (uint64_t)first << 32 | (uint64_t)end; }

/* Takes a piece of what is left of a thread's share, the first or the last; -1: nothing is. */
static int64_t take(_Atomic uint64_t *left, bool last) {
  uint64_t now = atomic_load_explicit(left, memory_order_relaxed);
  for (;;) {
    int64_t first = (int64_t)(now >> 32), end = (int64_t)(uint32_t)now;
    if (first >= end) return -1;
    if (atomic_compare_exchange_weak(left, &now, last ? pack(first, end - 1) : pack(first + 1, end)))
      return last ? end - 1 : first;
  }
}

static void for_part(void *arg, int part, int parts) {
  const For *f = arg;
  for (int i = 0; i < parts; i++)
    for (int64_t p; (p = take(&f->pool->worker[(part + i) % parts].left, i > 0)) >= 0;)
      f->fn(f->arg, p * f->piece, zk_min((p + 1) * f->piece, f->n), part);
}

/* About eight pieces a thread even out threads that the machine slows down. */
static int64_t piece_of(int64_t n, int64_t grain, int threads) {
  return zk_max(grain, zk_ceil_div(n, 8 * (int64_t)threads));
}

int64_t zk_for_share(const ZkEnv *env, int64_t n, int64_t grain, int part) {
  int threads = zk_threads(env);
  if (threads == 1 || n <= grain) return part > 0 ? n : 0;
  int64_t piece = piece_of(n, grain, threads);
  return zk_min(n, zk_ceil_div(n, piece) * part / threads * piece);
}

void zk_for(const ZkEnv *env, int64_t n, int64_t grain, ZkForFn *fn, void *arg) {
  int threads = zk_threads(env);
  if (n <= 0) return;
  if (threads == 1 || n <= grain) {
    fn(arg, 0, n, 0);
    return;
  }
  For f = {.pool = env->pool, .n = n, .piece = piece_of(n, grain, threads), .fn = fn, .arg = arg};
  f.pieces = zk_ceil_div(n, f.piece);
  for (int i = 0; i < threads; i++)
    atomic_store_explicit(&env->pool->worker[i].left,
                          pack(f.pieces * i / threads, f.pieces * (i + 1) / threads), memory_order_relaxed);
  zk_pool_run(env->pool, for_part, &f);
}
