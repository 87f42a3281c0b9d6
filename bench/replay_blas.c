/* Products by OpenBLAS: with its own threads, and on one thread each of a pool's. */
#include "bench/replay.h" /* first: cblas.h takes the name I */

#include <cblas.h>
#include <stdlib.h>

/* ---- one product after the other ---- */
typedef struct {
  bool trans;
  int64_t ld;
} Matrix;

static Matrix seen(const Shape *s, int k) {
  return s->cs[k] == 1 ? (Matrix){false, s->rs[k]} : (Matrix){true, s->cs[k]};
}

/* Where the i-th of the batch starts. */
static void offsets(const Shape *s, int64_t i, int64_t off[3]) {
  off[A] = off[B] = off[C] = 0;
  for (int64_t l = s->nloops; l-- > 0; i /= s->loop[l].n)
    for (int k = 0; k < 3; k++) off[k] += i % s->loop[l].n * s->loop[l].s[k];
}

static void one(Sgemm *f, const Shape *s, void *const data[3], int64_t i, int64_t from, int64_t rows) {
  int64_t off[3];
  offsets(s, i, off);
  Matrix a = seen(s, A), b = seen(s, B), c = seen(s, C);
  f(a.trans, b.trans, rows, s->N, s->K, (float *)data[A] + off[A] + from * s->rs[A], a.ld,
    (float *)data[B] + off[B], b.ld, (float *)data[C] + off[C] + from * s->rs[C], c.ld);
}

void replay_sgemm_all(Sgemm *f, const Shape *s, void *const data[3]) {
  for (int64_t i = 0, n = replay_batch(s); i < n; i++) one(f, s, data, i, 0, s->M);
}

/* ---- shared out ---- */
typedef struct {
  Sgemm *f;
  void (*in_thread)(void);
  ZkPool *pool;
  const Shape *s;
  void *const *data;
} Split;

/* Threads get whole products; a last few, or a single one, by rows. */
static void run_part(void *arg, int part, int parts) {
  const Split *p = arg;
  int64_t n = replay_batch(p->s), whole = n / parts * parts, M = p->s->M;
  if (p->in_thread) p->in_thread();
  for (int64_t i = part; i < whole; i += parts) one(p->f, p->s, p->data, i, 0, M);
  int64_t rows = zb_round_up((uint64_t)((M + parts - 1) / parts), 16), from = part * rows;
  if (rows > M - from) rows = M - from;
  for (int64_t i = whole; i < n && rows > 0; i++) one(p->f, p->s, p->data, i, from, rows);
}

void *replay_split_open(Sgemm *f, void (*in_thread)(void), int threads) {
  Split *p = malloc(sizeof *p);
  ZB_ASSERT(p != NULL);
  *p = (Split){.f = f, .in_thread = in_thread, .pool = zk_pool_new(threads)};
  return p;
}

void replay_split_run(void *split, const Shape *s, void *const data[3]) {
  Split *p = split;
  p->s = s;
  p->data = data;
  zk_pool_run(p->pool, run_part, p);
}

void replay_split_close(void *split) {
  Split *p = split;
  zk_pool_free(p->pool);
  free(p);
}

/* ---- OpenBLAS ---- */
static void sgemm(bool ta, bool tb, int64_t m, int64_t n, int64_t k, const float *a, int64_t lda,
                  const float *b, int64_t ldb, float *c, int64_t ldc) {
  cblas_sgemm(CblasRowMajor, ta ? CblasTrans : CblasNoTrans, tb ? CblasTrans : CblasNoTrans, (int)m, (int)n,
              (int)k, 1, a, (int)lda, b, (int)ldb, 0, c, (int)ldc);
}

static bool f32(const Shape *s) {
  return s->elem[A] == ZK_F32 && s->elem[B] == ZK_F32 && s->elem[C] == ZK_F32;
}

static bool open_own(const Shape *s, int threads, void **state, size_t bytes[3]) {
  (void)threads, (void)bytes;
  *state = NULL;
  return f32(s);
}

static bool open_split(const Shape *s, int threads, void **state, size_t bytes[3]) {
  (void)bytes;
  if (!f32(s) || threads == 1) return false; /* on one thread it is the same as the other */
  *state = replay_split_open(sgemm, NULL, threads);
  return true;
}

static void run_own(void *state, const Shape *s, void *const data[3]) {
  (void)state;
  replay_sgemm_all(sgemm, s, data);
}

static void close_own(void *state) { (void)state; }
static void start_own(int threads) { openblas_set_num_threads(threads); }
static void start_split(int threads) {
  (void)threads;
  openblas_set_num_threads(1);
}

static const Library own = {"OpenBLAS", start_own, open_own, run_own, close_own},
                     split = {"OpenBLAS/thread", start_split, open_split, replay_split_run,
                              replay_split_close};
const Library *const replay_blas[] = {&own, &split, NULL};
