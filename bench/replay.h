/* bench-replay: all matrix products of one training step, alone, each by the library that is fastest for it.
 *
 * replay_list.c   the products of a plan, equal ones merged     replay_blas.c   OpenBLAS
 * replay.c        options, choosing, timing, tables             replay_dnnl.c   oneDNN */
#ifndef ZUG_BENCH_REPLAY_H
#define ZUG_BENCH_REPLAY_H

#include "runtime/plan/plan.h"

enum { A, B, C }; /* C[M, N] = A[M, K] B[K, N], in this order everywhere */

#define MAX_LOOPS 6
typedef struct {
  int64_t n, s[3]; /* steps, and elements from one to the next in A, B, C (0: the same for all) */
} Loop;

/* What tells two products apart. Of the strides of an operand one is 1; its elements lie as in the step. */
typedef struct {
  int64_t M, N, K, rs[3], cs[3]; /* from row to row, from column to column */
  Loop loop[MAX_LOOPS];          /* batched */
  int64_t nloops;
  int64_t elem[3]; /* ZkElem */
  int64_t weights; /* B is a parameter */
  /* No library can take the operands as they lie: as if they had been copied. */
  int64_t packed;
} Shape;

typedef struct {
  Shape shape;
  const char *what;   /* "dot", "attend q k'", ... */
  int64_t count;      /* in one step */
  const ZkCall *call; /* a dot's: how Zug does it */
  bool swapped;       /* its first operand is B */
} Product;

typedef struct {
  Product *p;
  uint32_t n;
} Products;

Products replay_list(ZbArena *a, const ZpPlan *p);
int64_t replay_batch(const Shape *s);
int64_t replay_elems(const Shape *s, int operand); /* from the first element to the last */
double replay_flops(const Shape *s);

/* One way to make products. open: false if it cannot make this one; it may ask for more bytes of
 * an operand. */
typedef struct {
  const char *name;
  void (*start)(int threads); /* before a run of products */
  bool (*open)(const Shape *s, int threads, void **state, size_t bytes[3]);
  void (*run)(void *state, const Shape *s, void *const data[3]);
  void (*close)(void *state);
} Library;
extern const Library *const replay_blas[], *const replay_dnnl[]; /* up to NULL */

/* f32 products on one thread, shared out over a pool: whole products of a batch, or rows of one. */
typedef void Sgemm(bool ta, bool tb, int64_t m, int64_t n, int64_t k, const float *a, int64_t lda,
                   const float *b, int64_t ldb, float *c, int64_t ldc);
void replay_sgemm_all(Sgemm *f, const Shape *s, void *const data[3]); /* one after the other */
void *replay_split_open(Sgemm *f, void (*in_thread)(void), int threads);
void replay_split_run(void *split, const Shape *s, void *const data[3]);
void replay_split_close(void *split);

#endif
