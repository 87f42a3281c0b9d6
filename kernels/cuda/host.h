/* The host's side of kernels/cuda, private to it: views as loops, memory that belongs to calls, errors. */
#ifndef ZUG_KERNELS_CUDA_HOST_H
#define ZUG_KERNELS_CUDA_HOST_H

#include "graph/ops.h"
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/shape.h"

/* Notes the first error: what failed, why, and the sizes of the call (NULL: a flat kernel). */
void zk_cuda_fail(ZkCuda *cu, const ZkCall *call, const char *what, const char *why);
/* For a call that a library refuses in a step, though it was prepared. False: it is to be done `instead` ("in
 * parts"), which zk_cuda_late says. True: the step is captured, where nothing else can be prepared, so the
 * context failed. */
bool zk_cuda_refused(ZkCuda *cu, const ZkCall *call, const char *library, const char *instead,
                     const char *why);
/* The memory that belongs to calls of these shapes and attributes: `bytes` bytes, zeroed and then filled by
 * `make` when they are first asked for. Pointers count only by whether they are multiples of 16, those to
 * scalars not at all. `drop` (may be NULL) ends what `make` began, when the context goes. While a step is
 * captured nothing is made: the context fails, and the memory stays zeroed until it is asked for again. */
typedef void ZkCudaMake(ZkCuda *cu, const ZkCall *call, void *memo);
void *zk_cuda_memo(ZkCuda *cu, const ZkCall *call, size_t bytes, ZkCudaMake *make, void (*drop)(void *memo));
void zk_cuda_forget(ZkCuda *cu); /* ends all memos */

/* Kernels by op, and the scratch they need, beside each other in NAME.cu. */
typedef size_t ZkCudaScratch(const ZkCall *call);
#define KERNEL(NAME, name) ZkKernel zk_cuda_##name;
#include "kernels/kernels.def"
ZkKernel zk_cuda_copy, zk_cuda_pointwise, zk_cuda_xent_max_sums, zk_cuda_xent_sums_grad, zk_cuda_grouped_dot,
    zk_cuda_grouped_outer, zk_cuda_slots, zk_cuda_round;
/* Of steps of generation. */
ZkKernel zk_cuda_put_pages, zk_cuda_attend_pages, zk_cuda_resume_scan, zk_cuda_resume_linear, zk_cuda_recent,
    zk_cuda_rope_at, zk_cuda_rows;
ZkCudaScratch zk_cuda_attend_pages_scratch;
ZkKernel zk_cuda_pointwise_prepare, zk_cuda_dot_prepare, zk_cuda_attend_prepare;
ZkKernel zk_cuda_run_unfused, zk_cuda_prepare_unfused; /* of fused calls, one by one (kernels.h: zk_unfuse) */
bool zk_cuda_dot_supports(const ZkCall *call);
ZkCudaScratch zk_cuda_reduce_scratch, zk_cuda_lookup_grad_scratch, zk_cuda_dot_scratch,
    zk_cuda_attend_scratch, zk_cuda_conv_scratch, zk_cuda_linear_attend_scratch;
ZkKernel zk_cuda_norm_fused, zk_cuda_norm_prepare; /* of fused calls, and normalize_grad_sums */
bool zk_cuda_norm_supports(const ZkCall *call), zk_cuda_norm_sums_supports(const ZkCall *call);
ZkCudaScratch zk_cuda_norm_sums_scratch;
/* The last `sums` results of the call, of what `blocks` have made of them in its scratch, [block][sum][column]. */
void zk_cuda_norm_join(ZkCuda *cu, const ZkCall *call, int sums, unsigned blocks);
/* As zk_cuda_fallback, of their ops. */
typedef bool ZkCudaFallback(const ZkEnv *env, const ZkCall *call, ZkFallback *how);
ZkCudaFallback zk_cuda_attend_fallback, zk_cuda_dot_fallback, zk_cuda_norm_fallback,
    zk_cuda_pointwise_fallback;

/* ---- views ------------------------------------------------------------------------------------------- */
static inline int64_t zk_ceil_of(int64_t a, int64_t b) { return (a + b - 1) / b; }

/* The axes of views[0] that are (in) or are not (!in) among ax[0..nax), merged, in descending stride of
 * views[0]. */
ZkcNest zkc_nest(const ZkView *const *views, int nviews, const uint16_t *ax, int nax, bool in);
/* The same, with the innermost loop apart: {1, all 0} if there is none. */
ZkcNest zkc_nest_run(const ZkView *const *views, int nviews, const uint16_t *ax, int nax, bool in,
                     ZkcRun *run);
/* Takes loop `l` out of the nest. */
ZkcRun zkc_take(ZkcNest *nest, int l);
ZkcUnits zkc_units(int64_t rows, int64_t n);
/* Do contiguous rows, one at each point of the nest, all begin at multiples of 16 bytes in view v, which is
 * number k of the nest? `stride` is that along the rows. */
bool zkc_aligned(const ZkView *v, const ZkcNest *nest, int k, int64_t stride);
/* And are they whole eights, as the wide rows of device.cuh must be? */
bool zkc_wide(const ZkView *v, const ZkcNest *nest, int k, int64_t n, int64_t stride);

int zkc_find(const ZkView *v, uint16_t axis);       /* which dimension of v; -1: v lacks it */
int64_t zkc_size(const ZkView *v, uint16_t axis);   /* asserts that v has it */
int64_t zkc_stride(const ZkView *v, uint16_t axis); /* 0 if v lacks it */
int64_t zkc_start(const ZkView *v, uint16_t axis);  /* 0 if v lacks it */
int64_t zkc_count(const ZkView *v);

#endif
