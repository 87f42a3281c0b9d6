/* kernels/cuda: the same calls as kernels/cpu, on device pointers, for NVIDIA GPUs. This header is the host's
 * side and plain C; it needs no CUDA headers.
 *
 * context.c  a device: handles, workspaces       NAME.cu       ops: their kernels, and what launches them
 * table.c    from op to function, errors         common.cuh    what .cu files share; on devices: *.cuh
 * host.c     views as loops for a kernel, memos  emu.h emu.cc  the same kernels on the CPU, for tests
 * fallback.c which calls are not done in the fastest way, and why
 * tiles.c    what multiprocessors have to do, and whether it is the same for all
 * program.c  kernels made at run time            NAME_text.c   their text: pointwise functions, fused norms
 *
 * Kernels only enqueue work on the context's stream: they never wait, and allocate nothing once
 * zk_cuda_prepare has seen a call. What goes wrong is noted in the context once, with op and sizes; later
 * calls do nothing. Results depend on shapes only, with no sums in the order in which threads happen to come;
 * but of the gradient of attention by cuDNN, where the call is not `repeatable`. */
#ifndef ZUG_KERNELS_CUDA_H
#define ZUG_KERNELS_CUDA_H

#include "base/base.h"
#include "kernels/devices.h"

/* ---- a device ------------------------------------------------------------------------------------ */
#define ZK_CUDA_PARTS 512    /* partial sums of zk_cuda_sumsq */
#define ZK_CUDA_ARRIVALS 512 /* tiles that several blocks of a kernel have parts of */
typedef struct ZkCudaMemo ZkCudaMemo;
typedef struct ZkCuda {
  struct CUstream_st *stream; /* kernels go here; the caller may change it between calls */
  void *owner;                /* the caller's */
  int device, sms, arch;      /* number, multiprocessors, 90 for 9.0 */
  int most_blocks; /* of kernels that go on with the next piece of work: enough to fill the device */
  char name[256], text[384];
  struct CUstream_st *own_stream;
  struct cublasLtContext *blas; /* NULL: not in this build */
  struct cudnnContext *dnn;
  void *workspace; /* for cuBLASLt: one stream at a time */
  size_t workspace_bytes;
  double *parts;     /* [ZK_CUDA_PARTS], likewise */
  unsigned *arrived; /* [ZK_CUDA_ARRIVALS], likewise: zeros between kernels */
  ZkCudaMemo *memos; /* what was made for calls like this one */
  struct ZkCudaProgram *programs;
  bool pretend;          /* it is not here: calls are looked at and prepared, and never made */
  bool tf32, repeatable; /* as ZkEnv has them; so: */
  ZkDebug debug;
  void *products;        /* plans of cuBLASLt's, for zk_cuda_choices */
  ZkRates rates;         /* by its data sheet */
  size_t l2;             /* bytes of its cache */
  size_t attend_piece;   /* most bytes for a piece of attention's gradient; 0: as the call has room */
  char no_dnn[128];      /* why `dnn` is NULL, in a build that has it */
  char no_programs[256]; /* why programs cannot be compiled; empty: none failed */
  bool capturing; /* what the stream is given is noted, and done later: nothing can be made or waited for */
  bool late;      /* `news` is to be told */
  char news[512];
  bool failed;
  char error[512]; /* the first thing that went wrong */
} ZkCuda;

/* ZkEnv's `device` is one of these. NULL with a message if there is no such device or it is too old. Makes a
 * stream; zk_cuda_free ends that one. */
ZkCuda *zk_cuda_new(int device, ZbErr *err);
/* A context of no device, to be asked zk_cuda_fallback: as of an H100 with the libraries of this build. */
ZkCuda *zk_cuda_pretend(void);
void zk_cuda_free(ZkCuda *cu); /* NULL is allowed */
/* NULL while all is well. Looks for what kernels reported since, too, but does not wait for them. */
const char *zk_cuda_error(ZkCuda *cu);
/* For logs: "NVIDIA H100 80GB HBM3, 132 SMs, CUDA 13.0, cuDNN 9.19". */
const char *zk_cuda_describe(ZkCuda *cu);

/* ---- operations ---------------------------------------------------------------------------------- */
/* As zk_cpu_kernel and zk_cpu_scratch. NULL too for ops that this build lacks. Scratch does not depend on
 * threads. */
ZkKernel *zk_cuda_kernel(int op);
size_t zk_cuda_scratch(const ZkCall *call, int threads);
/* Whether a fused or batched call (kernels.h) is better done as one. This is known by its shapes and its
 * pointwise function alone, not by the device and the libraries: where cuBLASLt cannot do it, the op runs and
 * then its epilogue. */
bool zk_cuda_supports(const ZkCall *call);
/* As ZkPlanning has it, of a Hopper GPU; nothing of it is measured. (tiles.c) */
bool zk_cuda_tiles(const ZkCall *call, int multiprocessors, ZkTiling *t);
extern const ZkPlanning zk_planning_cuda; /* the three, for planners that load the module */
/* Compiles and plans whatever running this call will need, so that a step does not. Optional: a kernel that
 * was not prepared does it at its first call. Only whether pointers are multiples of 16 matters, not where
 * they point. */
void zk_cuda_prepare(const ZkEnv *env, const ZkCall *call);

/* Returns whether a call that was prepared is not done in the fastest way, because a library is not there, is not
 * trusted with it, or refuses it. Calls that are left to own kernels by choice are. (fallback.c) */
bool zk_cuda_fallback(const ZkEnv *env, const ZkCall *call, ZkFallback *how);

/* What a step has shown to be done in another way than zk_cuda_fallback said before it, the first such call since
 * this was last asked; NULL: nothing. */
const char *zk_cuda_late(ZkCuda *cu);

/* ---- choices by time ---------------------------------------------------------------------------------- */
/* Which algorithm a product is done by, of those that libraries propose, is measured when it is prepared, and
 * others may measure otherwise; results differ by roundings. Ranks that are to have the same bits take the
 * choices of one of them: those of `out` that no zk_cuda_choose has settled yet (returns how many there are);
 * and the same made this context's, where it has such calls. Calls are to be prepared again then. */
typedef struct {
  uint64_t call, workspace;
  uint8_t usable, tried, algorithm[64];
} ZkCudaChoice;
uint32_t zk_cuda_choices(ZkCuda *cu, ZkCudaChoice *out, uint32_t most);
void zk_cuda_choose(ZkCuda *cu, const ZkCudaChoice *choice, uint32_t n);

/* ---- flat buffers -------------------------------------------------------------------------------- */
/* Whether a step updates anything: not where one of n numbers, on the device, is not finite, where one of those that
 * losses are divided by is negative, or where all of these are 0. */
typedef struct {
  const double *x;
  int n; /* may be 0 */
  const double *divisor;
  int ndivisors; /* may be 0 */
} ZkIfSound;
/* Sum of squares in f64 into (add: onto) *sum, on the device, in an order that depends on n only. */
void zk_cuda_sumsq(const ZkEnv *env, int64_t n, const float *x, double *sum, bool add);
/* Adds to *sum, which may be pinned memory of the host's, a number made of these bytes, their places and
 * `salt`: another one if one bit is another. It depends on nothing else. */
void zk_cuda_digest(const ZkEnv *env, const void *p, size_t bytes, uint64_t salt, uint64_t *sum);
void zk_cuda_add_scalar(const ZkEnv *env, const float *x, double *sum); /* *sum += *x */
void zk_cuda_reciprocal(const ZkEnv *env, const double *x, float *y);   /* *y = 1 / *x; 0 unless *x > 0 */
void zk_cuda_axpy(const ZkEnv *env, int64_t n, float a, const float *x, float *y); /* y += a x */
void zk_cuda_to_bf16(const ZkEnv *env, int64_t n, const float *x, uint16_t *y);
void zk_cuda_from_bf16(const ZkEnv *env, int64_t n, const uint16_t *x, float *y);
void zk_cuda_zero(const ZkEnv *env, void *p, size_t bytes);
/* Row i of the n at `to` becomes row map[i] at `from`, or zeros where that is below 0. */
void zk_cuda_gather_rows(const ZkEnv *env, size_t n, size_t row, const int32_t *map, const void *from,
                         void *to);

/* Only in builds for the emulator: the order in which threads run. 0 all up to the next barrier or warp
 * operation in turn; 1 downwards, the last warp as far ahead as it can; 2 shuffled; 3 upwards, the first warp
 * ahead; more: shuffled. */
void zk_cuda_emulate(int order);

#endif
