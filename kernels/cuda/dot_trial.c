/* Which of the algorithms that cuBLASLt proposes for a product is taken: trials, when it is prepared. */
#include "kernels/cuda/dot.h"

#ifdef HAVE_CUBLASLT
#include <cuda_runtime_api.h>
#include <math.h>
#include <string.h>

#include "kernels/cuda/dot_lt.h"

#define ROUNDS 5 /* the best of so many measurements counts */

typedef struct {
  char *mem, *scratch;   /* scratch: of the parts */
  ZkLtPlaces now, right; /* operands and results; what the results should be */
  int *flag;
  size_t bytes; /* of a result */
  cudaEvent_t from, to;
} Trial;

static size_t extent(const ZkLtPlan *p, int i) {
  const ZkLtMatrix *m = &p->layout.mat[i];
  int64_t lines = m->trans ? m->cols : m->rows, width = m->trans ? m->rows : m->cols;
  int64_t n = (p->layout.d.batch.count - 1) * m->step + (lines - 1) * m->ld + width;
  return (size_t)n * zk_elem_bytes(zk_lt_elem(&p->layout.d, i));
}

static char *take_scratch(size_t *all, char *mem, size_t bytes) {
  char *p = mem ? mem + *all : NULL;
  *all += zb_round_up(bytes, 256);
  return bytes ? p : NULL;
}

static void add_noise(ZkCuda *cu, const ZkLtPlan *p, const void *at, size_t bytes, int i, unsigned seed) {
  ZkElem elem = zk_lt_elem(&p->layout.d, i);
  if (at) zk_dot_noise(cu, (void *)(uintptr_t)at, elem, (int64_t)(bytes / zk_elem_bytes(elem)), seed);
}

static size_t vector_bytes(const ZkLtPlan *p) {
  const ZkDot *d = &p->layout.d;
  bool along_m = p->epi.kind != ZKD_COLUMN_SUMS && p->layout.mat[ZKD_C].trans;
  int64_t n = (along_m ? d->m.count : d->n.count) * (p->vector_step ? d->batch.count : 1);
  return zk_lt_has_vector(&p->epi) ? (size_t)n * zk_elem_bytes(zk_lt_elem(d, ZKD_C)) : 0;
}

/* Lays the trial's memory out from t->mem on; returns how much it is. */
static size_t trial_places(const ZkLtPlan *p, const ZkCall *call, Trial *t) {
  const ZkDotEpilogue *e = &p->epi;
  size_t all = 0, aux = e->aux >= 0 ? t->bytes : 0;
  t->now.at[ZKD_A] = take_scratch(&all, t->mem, extent(p, ZKD_A));
  t->now.at[ZKD_B] = take_scratch(&all, t->mem, extent(p, ZKD_B));
  t->now.full = take_scratch(&all, t->mem, e->full >= 0 ? t->bytes : 0);
  t->now.vector = take_scratch(&all, t->mem, vector_bytes(p));
  t->right = t->now;
  if (e->kind == ZKD_COLUMN_SUMS) t->right.vector = take_scratch(&all, t->mem, vector_bytes(p));
  t->now.at[ZKD_C] = take_scratch(&all, t->mem, t->bytes);
  t->right.at[ZKD_C] = take_scratch(&all, t->mem, t->bytes);
  t->now.aux = take_scratch(&all, t->mem, aux);
  t->right.aux = e->kind == ZKD_GELU_SLOPE ? t->now.aux : take_scratch(&all, t->mem, aux);
  t->flag = (int *)(void *)take_scratch(&all, t->mem, sizeof *t->flag);
  t->scratch = take_scratch(&all, t->mem, zk_dot_more(call) ? zk_cuda_dot_scratch(call) : 0);
  return all;
}

/* Memory beside the run's. False if there is too little: then there are no trials. */
static bool trial_new(ZkCuda *cu, const ZkLtPlan *p, const ZkCall *call, Trial *t) {
  *t = (Trial){.bytes = extent(p, ZKD_C)};
  if (cudaMalloc((void **)&t->mem, trial_places(p, call, t)) != cudaSuccess) {
    (void)cudaGetLastError(); /* it is no error */
    return false;
  }
  trial_places(p, call, t);
  for (int i = 0; i < 3; i++) /* the result too: what lies between its rows is compared as well */
    add_noise(cu, p, t->now.at[i], extent(p, i), i, (unsigned)i);
  add_noise(cu, p, t->now.full, t->bytes, ZKD_C, 3);
  add_noise(cu, p, t->now.aux, t->bytes, ZKD_C, 4);
  add_noise(cu, p, t->now.vector, vector_bytes(p), ZKD_C, 5);
  bool ok = cudaMemcpyAsync(t->right.at[ZKD_C], t->now.at[ZKD_C], t->bytes, cudaMemcpyDeviceToDevice,
                            cu->stream) == cudaSuccess;
  if (t->right.aux != t->now.aux)
    ok &= cudaMemcpyAsync(t->right.aux, t->now.aux, t->bytes, cudaMemcpyDeviceToDevice, cu->stream) ==
          cudaSuccess;
  return ok && cudaEventCreate(&t->from) == cudaSuccess && cudaEventCreate(&t->to) == cudaSuccess;
}

static void trial_free(Trial *t) {
  if (t->from) cudaEventDestroy(t->from);
  if (t->to) cudaEventDestroy(t->to);
  cudaFree(t->mem);
}

/* Milliseconds of the best round; negative if it does not run. */
static float measure(ZkCuda *cu, const ZkLtPlan *p, const Trial *t,
                     const cublasLtMatmulHeuristicResult_t *r) {
  float best = -1;
  for (int round = 0; round <= ROUNDS; round++) {
    float ms;
    if (cudaEventRecord(t->from, cu->stream) != cudaSuccess ||
        zk_lt_multiply(cu, p, &t->now, false, &r->algo, r->workspaceSize) != CUBLAS_STATUS_SUCCESS ||
        cudaEventRecord(t->to, cu->stream) != cudaSuccess || cudaEventSynchronize(t->to) != cudaSuccess ||
        cudaEventElapsedTime(&ms, t->from, t->to) != cudaSuccess)
      return -1;
    if (round > 0 && (best < 0 || ms < best)) best = ms; /* the first one warms up */
  }
  return best;
}

/* Whether the flag was not raised by what was queued since it was cleared. */
static bool flag_is_down(ZkCuda *cu, const Trial *t) {
  int up = 1;
  return cudaMemcpyAsync(&up, t->flag, sizeof up, cudaMemcpyDeviceToHost, cu->stream) == cudaSuccess &&
         cudaStreamSynchronize(cu->stream) == cudaSuccess && !up;
}

/* Results of sums of terms of about 1: how they round when they are added in another order, and where an
 * epilogue in parts rounds a product that it does not. A bias that is missing, or another one's, is more. */
static void tolerance(const ZkLtPlan *p, float *unit, float *room) {
  *unit = zk_lt_elem(&p->layout.d, ZKD_C) == ZK_BF16 ? 0x1p-8f : 0x1p-14f;
  *room = 2 * fabsf(p->epi.alpha) * sqrtf((float)p->layout.d.k.count) + fabsf(p->epi.beta) + 1;
}

/* Whether the results are what they should be; `bits`: to the bit. */
static bool right(ZkCuda *cu, const ZkLtPlan *p, const Trial *t, bool bits) {
  ZkElem elem = zk_lt_elem(&p->layout.d, ZKD_C);
  const struct {
    const void *now, *right;
    size_t bytes;
  } each[3] = {{t->now.at[ZKD_C], t->right.at[ZKD_C], t->bytes},
               {t->now.aux, t->right.aux, t->bytes},
               {t->now.vector, t->right.vector, vector_bytes(p)}};
  float unit, room;
  tolerance(p, &unit, &room);
  if (cudaMemsetAsync(t->flag, 0, sizeof *t->flag, cu->stream) != cudaSuccess) return false;
  for (int i = 0; i < 3; i++) {
    if (each[i].now == each[i].right) continue; /* no result */
    if (bits) zk_dot_compare(cu, each[i].now, each[i].right, (int64_t)each[i].bytes, t->flag);
    else
      zk_dot_close(cu, each[i].now, each[i].right, elem, (int64_t)(each[i].bytes / zk_elem_bytes(elem)), unit,
                   room, t->flag);
  }
  return flag_is_down(cu, t);
}

/* Would other sums show in this result? In f32 they do in about every second element; rounded to bf16, in one
 * of some 2^15. */
static bool tells(const ZkLtPlan *p) {
  int64_t n = p->layout.d.batch.count * p->layout.d.m.count * p->layout.d.n.count;
  return n >= (zk_lt_elem(&p->layout.d, ZKD_C) == ZK_BF16 ? 1 << 20 : 1 << 8);
}

/* The call in parts, from the trial's operands to what its results should be. False if it has an operand that
 * the epilogue does not. */
static bool run_parts(ZkCuda *cu, const ZkLtPlan *p, const ZkCall *call, const Trial *t) {
  const ZkDotEpilogue *e = &p->epi;
  ZkEnv env = {.device = cu};
  ZkCall c = *call;
  for (int i = 0; i < call->nin; i++) {
    void *from = i == e->full                               ? (void *)(uintptr_t)t->right.full
                 : i == e->bias                             ? t->right.vector
                 : e->kind == ZKD_GELU_SLOPE && i == e->aux ? t->right.aux
                                                            : NULL;
    if (i < ZKD_C && p->layout.packed[i]) c.in[i] = p->layout.pack[i];
    c.in[i].data = i < ZKD_C ? t->right.at[i] : from;
    if (!c.in[i].data) return false;
  }
  c.out[e->out].data = t->right.at[ZKD_C];
  if (e->kind == ZKD_GELU && e->aux >= 0) c.out[e->aux].data = t->right.aux;
  if (e->kind == ZKD_COLUMN_SUMS) c.out[1].data = t->right.vector;
  c.accumulate = false, c.scratch = t->scratch;
  zk_cuda_run_unfused(&env, &c);
  return !cu->failed;
}

/* The fastest proposal whose results are right; -1 if none is, and why. `all`: of all, else the first that
 * runs. */
static int fastest(ZkCuda *cu, ZkLtPlan *p, const ZkCall *call, Trial *t, int n, bool all,
                   const cublasLtMatmulHeuristicResult_t *found) {
  int best = -1;
  float best_ms = 0;
  bool have = zk_dot_more(call) && run_parts(cu, p, call, t), bits = false, wrong = false;
  if (zk_dot_more(call) && !have) return -1;
  for (int i = 0; i < n && (best < 0 || all); i++) {
    if (!have) { /* the first that runs says what is right */
      have = zk_lt_multiply(cu, p, &t->right, false, &found[i].algo, found[i].workspaceSize) ==
             CUBLAS_STATUS_SUCCESS;
      if (!have) continue;
    }
    float ms = measure(cu, p, t, &found[i]);
    if (ms < 0 || (best >= 0 && ms >= best_ms)) continue;
    if (!right(cu, p, t, bits)) {
      wrong |= !bits;
      continue;
    }
    best = i, best_ms = ms;
    if (!cu->repeatable || bits) continue;
    /* From now on the first proposal's bits count. */
    bits = zk_lt_multiply(cu, p, &t->right, false, &found[i].algo, found[i].workspaceSize) ==
           CUBLAS_STATUS_SUCCESS;
  }
  if (best < 0 && wrong) p->why = "cuBLASLt computes it wrongly here: the same in parts gives other results";
  return best;
}
int zk_lt_try(ZkCuda *cu, ZkLtPlan *p, const ZkCall *call, int n,
              const cublasLtMatmulHeuristicResult_t *found) {
  bool more = zk_dot_more(call), all = n > 1 && (tells(p) || !cu->repeatable);
  int use = 0;
  if (!all && !more) return use;
  Trial t;
  bool can = trial_new(cu, p, call, &t);
  if (can) use = fastest(cu, p, call, &t, n, all, found);
  else if (more) use = -1, p->why = "there is no memory to check it";
  trial_free(&t);
  (void)cudaGetLastError(); /* a proposal that does not run is no error */
  return use;
}
#endif
