/* What the CPU kernels share among themselves: loop nests over strided views, rows in f32,
 * parallel loops, and vectorised passes over contiguous runs. Private to kernels/cpu. */
#ifndef ZUG_KERNELS_CPU_H
#define ZUG_KERNELS_CPU_H

#include <string.h>

#include "base/base.h"
#include "graph/ops.h"
#include "kernels/kernels.h"

#define ZK_SIMD ZB_WIDE
#define ZK_INLINE static inline __attribute__((always_inline))

static inline int64_t zk_min(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t zk_max(int64_t a, int64_t b) { return a > b ? a : b; }
static inline int64_t zk_ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
static inline int64_t zk_up(int64_t n, int64_t unit) { return zk_ceil_div(n, unit) * unit; }

/* ---- views ----------------------------------------------------------------------------------- */
int zk_axis_find(const ZkView *v, uint16_t axis);       /* position in v, -1 if v lacks the axis */
int64_t zk_axis_size(const ZkView *v, uint16_t axis);   /* asserts that v has it */
int64_t zk_axis_stride(const ZkView *v, uint16_t axis); /* 0 if v lacks it: a broadcast */
int64_t zk_axis_start(const ZkView *v, uint16_t axis);  /* 0 if v lacks it */
int64_t zk_view_count(const ZkView *v);
bool zk_has(const uint16_t *axes, int n, uint16_t axis);

/* ---- loop nests: merged axes with a stride for each of several views ------------------------- */
#define ZK_NEST_VIEWS (ZK_MAX_IN + ZK_MAX_OUT) /* also those of linear_attend_grad by role */
#define ZK_NEST_LOOPS (2 * ZK_MAX_AXES)
typedef struct {
  int64_t n;
  int64_t s[ZK_NEST_VIEWS]; /* stride in elements in each view; 0: the view lacks the axis */
} ZkLoop;
typedef struct {
  int nloops, nviews;
  ZkLoop loop[ZK_NEST_LOOPS]; /* slowest first */
} ZkNest;
typedef struct {
  int64_t i[ZK_NEST_LOOPS];
  int64_t off[ZK_NEST_VIEWS]; /* element offset of the current point in each view */
} ZkWalk;

/* The nest over the axes of views[0] that are (in = true) or are not (in = false) among ax[0..nax), in
 * the order of views[0], merged. nax = 0 with in = false takes all axes. */
ZkNest zk_nest(const ZkView *const *views, int nviews, const uint16_t *ax, int nax, bool in);
/* Appends the loop over `axis`; views that lack it get stride 0. Does not merge. */
void zk_nest_add(ZkNest *n, const ZkView *const *views, int nviews, uint16_t axis, int64_t size);
/* Merges neighbouring loops that are one loop in every view, and drops loops of size 1. */
void zk_nest_merge(ZkNest *n);
/* Orders the loops by descending stride in view k; loops that it lacks go outermost. */
void zk_nest_order(ZkNest *n, int k);
int64_t zk_nest_count(const ZkNest *n);
/* Splits the innermost loop off: the nest loses it and it is returned; {1, all 0} if there is none. */
ZkLoop zk_nest_pop(ZkNest *n);
void zk_walk_seek(const ZkNest *n, ZkWalk *w, int64_t index);
static inline void zk_walk_next(const ZkNest *n, ZkWalk *w) {
  for (int l = n->nloops - 1; l >= 0; l--) {
    const ZkLoop *p = &n->loop[l];
    for (int v = 0; v < n->nviews; v++) w->off[v] += p->s[v];
    if (++w->i[l] < p->n) return;
    for (int v = 0; v < n->nviews; v++) w->off[v] -= p->n * p->s[v];
    w->i[l] = 0;
  }
}

/* ---- elements -------------------------------------------------------------------------------- */
/* n elements of v from offset `off` with stride `s` to and from contiguous f32. `add` adds to what is
 * there. */
void zk_load(float *dst, const ZkView *v, int64_t off, int64_t s, int64_t n);
void zk_load_packed(float *dst, const ZkView *v, int64_t off, int64_t s, int64_t n); /* packed_view.c */
void zk_store(const ZkView *v, int64_t off, int64_t s, int64_t n, const float *src, bool add);
/* The row itself when it lies contiguous in f32, else a copy of it in buf. */
const float *zk_row_in(const ZkView *v, int64_t off, int64_t s, int64_t n, float *buf);
/* Where to write a row: in place when it lies contiguous in f32, else buf; zk_row_done then stores buf. */
float *zk_row_out(const ZkView *v, int64_t off, int64_t s, int64_t n, float *buf);
void zk_row_done(const ZkView *v, int64_t off, int64_t s, int64_t n, const float *row);
float zk_get(const ZkView *v, int64_t off);
void zk_set(const ZkView *v, int64_t off, float x);

/* ---- machine.c ------------------------------------------------------------------------------- */
/* Whether this CPU has all that code for a level of x86-64 may use: AVX2, FMA and the like, or AVX-512. */
typedef enum { ZK_X86_V3, ZK_X86_V4 } ZkX86;
bool zk_cpu_has(ZkX86 level);

/* ---- pool.c ---------------------------------------------------------------------------------- */
/* fn over [0, n) in pieces of at least `grain`; `part` numbers the thread. A thread begins with a share of
 * its own, piece by piece, and then takes the last of others'. What is computed for an index must not depend
 * on the pieces. */
typedef void ZkForFn(void *arg, int64_t from, int64_t to, int part);
void zk_for(const ZkEnv *env, int64_t n, int64_t grain, ZkForFn *fn, void *arg);
/* Returns where the share of a thread begins, which ends where the next one's does; of part `threads`: n. */
int64_t zk_for_share(const ZkEnv *env, int64_t n, int64_t grain, int part);
static inline int zk_threads(const ZkEnv *env) { return env->pool ? zk_pool_threads(env->pool) : 1; }

/* ---- run.c: passes over contiguous f32 runs, vectorised -------------------------------------- */
float zk_run_sum(const float *x, int64_t n);
float zk_run_max(const float *x, int64_t n);
float zk_run_dot(const float *x, const float *y, int64_t n);
float zk_run_sumsq_about(const float *x, float mean, int64_t n);              /* sum (x - mean)^2 */
void zk_run_add(float *y, const float *x, int64_t n);                         /* y += x */
void zk_run_max_into(float *y, const float *x, int64_t n);                    /* y = max(y, x) */
void zk_run_fma(float *y, const float *a, const float *b, int64_t n);         /* y += a b */
void zk_run_axpy(float *y, float a, const float *x, int64_t n);               /* y += a x */
void zk_run_scale(float *y, const float *x, float a, int64_t n);              /* y = a x */
void zk_run_affine(float *y, const float *x, float mean, float r, int64_t n); /* y = (x - mean) r */
float zk_run_exp_sum(float *y, const float *x, float scale, float shift,
                     int64_t n);                              /* y = exp(scale x - shift), sum y */
float zk_run_sum_exp(const float *x, float shift, int64_t n); /* sum exp(x - shift) */
void zk_run_exp_scale(float *y, const float *x, float shift, float a, int64_t n); /* y = a exp(x - shift) */
void zk_run_fill(float *y, float a, int64_t n);
void zk_run_from_bf16(float *y, const uint16_t *x, int64_t n);
void zk_run_to_bf16(uint16_t *y, const float *x, int64_t n);

/* ---- codes.c: a block of a format whose elements share a scale -------------------------------- */
void zk_decode_block(ZkFlat from, float *x);
void zk_encode_block(const float *x, ZkFlat to);

/* ---- sgemm.c: products on one thread --------------------------------------------------------- */
/* c[m, n] = beta c + alpha op(a) op(b) in f32, all row-major; op transposes if ta (tb). Sizes and strides fit
 * an int. Which library does it depends on shape and CPU only. */
void zk_sgemm(bool ta, bool tb, int64_t m, int64_t n, int64_t k, float alpha, const float *a, int64_t lda,
              const float *b, int64_t ldb, float beta, float *c, int64_t ldc);
/* The libraries in use: "OpenBLAS 0.3.21 SkylakeX and oneDNN 2.6.3". */
void zk_sgemm_describe(char *text, size_t size);

/* ---- reduce.c: the dot whose axes are all batched or contracted ------------------------------ */
void zk_reduce_dot(const ZkEnv *env, const ZkCall *call);
size_t zk_reduce_dot_scratch(const ZkCall *call);

/* ---- kernels by op, and the scratch functions beside them ------------------------------------ */
#define KERNEL(NAME, name) ZkKernel zk_cpu_##name;
#include "kernels/kernels.def"
ZkKernel zk_cpu_pointwise, zk_cpu_copy, zk_cpu_grouped_dot, zk_cpu_grouped_outer, zk_cpu_slots, zk_cpu_round;
ZkKernel zk_cpu_put_pages, zk_cpu_attend_pages, zk_cpu_attend_own, zk_cpu_resume_scan, zk_cpu_resume_linear,
    zk_cpu_recent, zk_cpu_rope_at, zk_cpu_rows;
typedef size_t ZkScratch(const ZkCall *call, int threads);
ZkScratch zk_scratch_sum, zk_scratch_dot, zk_scratch_conv, zk_scratch_softmax, zk_scratch_normalize,
    zk_scratch_rope, zk_scratch_rotate, zk_scratch_attend, zk_scratch_attend_grad,
    zk_scratch_attend_bias_grad, zk_scratch_linear_attend, zk_scratch_lookup_grad, zk_scratch_topk,
    zk_scratch_onehot, zk_scratch_grouped_dot, zk_scratch_grouped_outer, zk_scratch_attend_pages,
    zk_scratch_resume_linear;

#endif
