/* Trials of the algorithms that cuBLASLt proposes for a product, when it is prepared: which one is taken.
 *
 * A trial makes the call as a step will: on addresses that are as odd, added to what is there if the call
 * adds (beta = 1), with the result's own type and the epilogue; and it is timed with the cache full of other
 * things, as it is where a step has come by. So an algorithm that the library refuses for one of these is
 * passed over here, and not found out in the middle of a step.
 *
 * Each proposal makes one call that is looked at, and then up to ROUNDS that are timed, but one only where
 * that shows it to be hopeless: for 8 proposals at most 49 products a plan, and 18 where all but one are
 * hopeless. */
#include "kernels/cuda/dot.h"

#ifdef HAVE_CUBLASLT
#include <cuda_runtime_api.h>
#include <math.h>
#include <string.h>

#include "kernels/cuda/dot_lt.h"

#define ROUNDS 5       /* the best of so many measurements counts */
#define HOPELESS 1.25f /* times the best proposal so far */
#define FLUSH                                                                                                \
  2 /* caches that are written over before a call is timed: more than one, since what to throw
                          out is the cache's own choice */

#define ANYWHERE ((char *)(uintptr_t)256) /* where memory might lie */

typedef struct {
  char *mem, *scratch, *flush; /* scratch: of the parts */
  ZkLtPlaces now, right;       /* operands and results; what the results should be */
  int *flag;
  size_t bytes, flushed; /* of a result; of `flush` */
  bool add;              /* to what is there */
  cudaEvent_t from, to;
} Trial;

static size_t extent(const ZkLtPlan *p, int i) {
  const ZkLtMatrix *m = &p->layout.mat[i];
  int64_t lines = m->trans ? m->cols : m->rows, width = m->trans ? m->rows : m->cols;
  int64_t n = (p->layout.d.batch.count - 1) * m->step + (lines - 1) * m->ld + width;
  return zk_bytes(zk_lt_elem(&p->layout.d, i), (uint64_t)n);
}

static char *take(size_t *all, char *mem, size_t bytes) {
  char *p = mem + *all;
  *all += zb_round_up(bytes, 256);
  return bytes ? p : NULL;
}

/* Takes memory that begins as odd as a view of the call: cuBLASLt was told how odd. */
static char *take_like(size_t *all, char *mem, size_t bytes, const ZkView *v) {
  size_t odd = (uintptr_t)v->data % 16;
  char *p = take(all, mem, bytes ? bytes + odd : 0);
  return p ? p + odd : NULL;
}

static char *take_operand(size_t *all, char *mem, const ZkLtPlan *p, int i) {
  static const ZkView scratch;
  return take_like(all, mem, extent(p, i), p->layout.packed[i] ? &scratch : &p->layout.d.v[i]);
}

static void add_noise(ZkCuda *cu, const ZkLtPlan *p, const void *at, size_t bytes, int i, unsigned seed) {
  ZkElem elem = zk_lt_elem(&p->layout.d, i);
  if (at) zk_dot_noise(cu, (void *)(uintptr_t)at, elem, (int64_t)(bytes / zk_plain_bytes(elem)), seed);
}

static size_t vector_bytes(const ZkLtPlan *p) {
  const ZkDot *d = &p->layout.d;
  bool along_m = p->epi.kind != ZKD_COLUMN_SUMS && p->layout.mat[ZKD_C].trans;
  int64_t n = (along_m ? d->m.count : d->n.count) * (p->vector_step ? d->batch.count : 1);
  return zk_lt_has_vector(&p->epi) ? zk_bytes(zk_lt_elem(d, ZKD_C), (uint64_t)n) : 0;
}

/* Lays the trial's memory out from `mem` on; returns how much it is. */
static size_t lay_out(const ZkLtPlan *p, const ZkCall *call, char *mem, Trial *t) {
  const ZkDotEpilogue *e = &p->epi;
  size_t all = 0, aux = e->aux >= 0 ? t->bytes : 0;
  t->now.at[ZKD_A] = take_operand(&all, mem, p, ZKD_A);
  t->now.at[ZKD_B] = take_operand(&all, mem, p, ZKD_B);
  t->now.full = e->full >= 0 ? take_like(&all, mem, t->bytes, &call->in[e->full]) : NULL;
  t->now.vector = take(&all, mem, vector_bytes(p));
  t->right = t->now;
  if (e->kind == ZKD_COLUMN_SUMS) t->right.vector = take(&all, mem, vector_bytes(p));
  t->now.at[ZKD_C] = take_operand(&all, mem, p, ZKD_C);
  t->right.at[ZKD_C] = take_operand(&all, mem, p, ZKD_C);
  t->now.aux = take(&all, mem, aux);
  t->right.aux = e->kind == ZKD_GELU_SLOPE ? t->now.aux : take(&all, mem, aux);
  t->flag = (int *)(void *)take(&all, mem, sizeof *t->flag);
  t->scratch = take(&all, mem, zk_dot_more(call) ? zk_cuda_dot_scratch(call) : 0);
  t->flush = take(&all, mem, t->flushed);
  return all;
}

/* The call in parts, from the trial's operands to what its results should be. False if it has an operand that
 * the epilogue does not. */
static bool parts_of(const ZkLtPlan *p, const ZkCall *call, const Trial *t, ZkCall *c) {
  const ZkDotEpilogue *e = &p->epi;
  *c = *call;
  for (int i = 0; i < call->nin; i++) {
    void *from = i == e->full                               ? (void *)(uintptr_t)t->right.full
                 : i == e->bias                             ? t->right.vector
                 : e->kind == ZKD_GELU_SLOPE && i == e->aux ? t->right.aux
                                                            : NULL;
    if (i < ZKD_C && p->layout.packed[i]) c->in[i] = p->layout.pack[i];
    c->in[i].data = i < ZKD_C ? t->right.at[i] : from;
    if (!c->in[i].data) return false;
  }
  c->out[e->out].data = t->right.at[ZKD_C];
  if (e->kind == ZKD_GELU && e->aux >= 0) c->out[e->aux].data = t->right.aux;
  if (e->kind == ZKD_COLUMN_SUMS) c->out[1].data = t->right.vector;
  c->scratch = t->scratch;
  return true;
}

/* Prepares the parts, with trials of their own, before this trial takes its memory. Where that will lie is
 * not known, but how odd it will be is. */
static bool prepare_parts(ZkCuda *cu, const ZkLtPlan *p, const ZkCall *call, Trial *t) {
  ZkEnv env = {.device = cu};
  ZkCall c;
  lay_out(p, call, ANYWHERE, t);
  if (!parts_of(p, call, t, &c)) return false;
  zk_cuda_prepare_unfused(&env, &c);
  return true;
}

/* Takes memory beside the run's, which is not there yet: at most half of what is left, since ranks that share
 * the GPU may have trials at the same time. False, and p->text, if there is too little. */
static bool take_memory(ZkLtPlan *p, const ZkCall *call, Trial *t) {
  size_t bytes = lay_out(p, call, ANYWHERE, t), left = 0, total = 0;
  char x[2][24];
  bool fits = cudaMemGetInfo(&left, &total) == cudaSuccess && bytes <= left / 2;
  if (fits && cudaMalloc((void **)&t->mem, bytes) == cudaSuccess) {
    lay_out(p, call, t->mem, t);
    return true;
  }
  t->mem = NULL;
  (void)cudaGetLastError(); /* it is no error */
  snprintf(p->text, sizeof p->text, "to try it takes %s, %s %s that the GPU has left", zb_bytes(x[0], bytes),
           fits ? "which it does not give of" : "and may take half of", zb_bytes(x[1], left));
  return false;
}

static bool trial_new(ZkCuda *cu, ZkLtPlan *p, const ZkCall *call, Trial *t) {
  if (!take_memory(p, call, t)) return false;
  for (int i = 0; i < ZKD_C; i++) add_noise(cu, p, t->now.at[i], extent(p, i), i, (unsigned)i);
  add_noise(cu, p, t->now.full, t->bytes, ZKD_C, 3);
  add_noise(cu, p, t->now.aux, t->bytes, ZKD_C, 4);
  add_noise(cu, p, t->now.vector, vector_bytes(p), ZKD_C, 5);
  bool ok = true;
  if (t->right.aux != t->now.aux)
    ok = cudaMemcpyAsync(t->right.aux, t->now.aux, t->bytes, cudaMemcpyDeviceToDevice, cu->stream) ==
         cudaSuccess;
  if (t->right.vector != t->now.vector) /* the parts add to it, if they add */
    ok &= cudaMemsetAsync(t->right.vector, 0, vector_bytes(p), cu->stream) == cudaSuccess;
  return ok && cudaEventCreate(&t->from) == cudaSuccess && cudaEventCreate(&t->to) == cudaSuccess;
}

static void trial_free(Trial *t) {
  if (t->from) cudaEventDestroy(t->from);
  if (t->to) cudaEventDestroy(t->to);
  cudaFree(t->mem);
}

/* Fills the result before a call: it may be added to, and what lies between its rows is compared as well. */
static void begin_result(ZkCuda *cu, const ZkLtPlan *p, const Trial *t, const ZkLtPlaces *to) {
  add_noise(cu, p, to->at[ZKD_C], t->bytes, ZKD_C, ZKD_C);
}

/* Makes the call once, as a step does. */
static bool run_once(ZkCuda *cu, const ZkLtPlan *p, const Trial *t, const ZkLtPlaces *to,
                     const cublasLtMatmulHeuristicResult_t *r) {
  begin_result(cu, p, t, to);
  return zk_lt_multiply(cu, p, to, t->add, &r->algo, r->workspaceSize) == CUBLAS_STATUS_SUCCESS;
}

/* Returns the milliseconds of the best round; negative if it does not run. `best`: of the best proposal so
 * far, or 0. */
static float measure(ZkCuda *cu, const ZkLtPlan *p, const Trial *t, float best,
                     const cublasLtMatmulHeuristicResult_t *r) {
  float least = -1;
  for (int round = 0; round < ROUNDS; round++) {
    float ms;
    if ((t->flush && cudaMemsetAsync(t->flush, 0, t->flushed, cu->stream) != cudaSuccess) ||
        cudaEventRecord(t->from, cu->stream) != cudaSuccess ||
        zk_lt_multiply(cu, p, &t->now, t->add, &r->algo, r->workspaceSize) != CUBLAS_STATUS_SUCCESS ||
        cudaEventRecord(t->to, cu->stream) != cudaSuccess || cudaEventSynchronize(t->to) != cudaSuccess ||
        cudaEventElapsedTime(&ms, t->from, t->to) != cudaSuccess)
      return -1;
    if (least < 0 || ms < least) least = ms;
    if (best > 0 && ms > HOPELESS * best) break;
  }
  return least;
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
      zk_dot_close(cu, each[i].now, each[i].right, elem, (int64_t)(each[i].bytes / zk_plain_bytes(elem)),
                   unit, room, t->flag);
  }
  return flag_is_down(cu, t);
}

/* Would other sums show in this result? In f32 they do in about every second element; rounded to bf16, in one
 * of some 2^15. */
static bool tells(const ZkLtPlan *p) {
  int64_t n = p->layout.d.batch.count * p->layout.d.m.count * p->layout.d.n.count;
  return n >= (zk_lt_elem(&p->layout.d, ZKD_C) == ZK_BF16 ? 1 << 20 : 1 << 8);
}

static bool run_parts(ZkCuda *cu, const ZkLtPlan *p, const ZkCall *call, const Trial *t) {
  ZkEnv env = {.device = cu};
  ZkCall c;
  begin_result(cu, p, t, &t->right);
  if (!parts_of(p, call, t, &c)) return false;
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
    /* The first that runs says what is right. */
    if ((!have && !(have = run_once(cu, p, t, &t->right, &found[i]))) ||
        !run_once(cu, p, t, &t->now, &found[i]))
      continue;
    if (!right(cu, p, t, bits)) {
      wrong |= !bits;
      continue;
    }
    float ms = all ? measure(cu, p, t, best_ms, &found[i]) : 0;
    if (ms < 0 || (best >= 0 && ms >= best_ms)) continue;
    best = i, best_ms = ms;
    if (!cu->repeatable || bits) continue;
    bits = run_once(cu, p, t, &t->right, &found[i]); /* from now on the first proposal's bits count */
  }
  if (best < 0)
    p->why = wrong ? "cuBLASLt computes it wrongly here: the same in parts gives other results"
                   : "cuBLASLt proposes it and then refuses to run it";
  return best;
}

int zk_lt_try(ZkCuda *cu, ZkLtPlan *p, const ZkCall *call, int n,
              const cublasLtMatmulHeuristicResult_t *found) {
  bool more = zk_dot_more(call), all = n > 1 && (tells(p) || !cu->repeatable);
  Trial t = {.bytes = extent(p, ZKD_C), .flushed = all ? FLUSH * cu->l2 : 0, .add = call->accumulate};
  int use = -1;
  if (more && !prepare_parts(cu, p, call, &t)) return -1;
  if (trial_new(cu, p, call, &t)) use = fastest(cu, p, call, &t, n, all, found);
  else if (more) p->why = *p->text ? p->text : "it cannot be tried";
  else use = 0, p->untried = n > 1 && *p->text ? p->text : NULL;
  trial_free(&t);
  (void)cudaGetLastError(); /* a proposal that does not run is no error */
  return use;
}
#endif
