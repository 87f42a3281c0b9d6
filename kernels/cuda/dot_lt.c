/* Products by cuBLASLt.
 *
 * It wants matrices: each of the classes M, N, K and batch one loop, one of the two loops of an operand with stride 1.
 * What lies otherwise is first copied into scratch as it should lie, and a result that does is copied back from there.
 * Which operands those are depends on the orders in which the axes of the classes are counted; all are tried, and the
 * one that copies the fewest bytes is kept. Rows of bf16 operands that are no multiples of 16 bytes are copied too if
 * the product is large enough to gain by it: the tensor cores' fast kernels read 16 bytes a time. (Such results are
 * not: the planner pads what is that large.)
 *
 * Of the algorithms that cuBLASLt proposes for a shape, the one taken is the fastest of those that give, on random
 * operands, every bit of what its first proposal gives. So what is measured decides about time and never about
 * results: they are the same from run to run and on every rank. Split sums are only let through if they are added in
 * f32 in a separate pass, which has a fixed order. */
#include "kernels/cuda/dot.h"

#ifdef HAVE_CUBLASLT
#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <string.h>

#define PROPOSALS 8
#define ROUNDS 5           /* the best of so many measurements counts */
#define WORTH_ALIGNING 256 /* products of each element that is copied */

/* ---- layout --------------------------------------------------------------------------------------------- */
/* rows x cols; `trans`: the rows have stride 1, and the columns are `ld` apart, else the other way round. */
typedef struct {
  int64_t rows, cols, ld, step; /* step: from one of the batch to the next */
  bool trans;
} Matrix;

typedef struct {
  ZkDot d; /* with its classes in the order chosen */
  bool packed[3];
  ZkView pack[3]; /* where packed: the view in scratch, its data the offset there */
  Matrix mat[3];
  size_t bytes; /* of scratch */
  int64_t cost;
} Layout;

static int find(const ZkView *v, uint16_t axis) {
  int i = 0;
  while (v->axis[i] != axis) i++;
  return i;
}

/* Axes by descending stride in v. */
static ZkDotAxes in_order(const ZkDotAxes *axes, const ZkView *v) {
  ZkDotAxes o = *axes;
  for (int i = 1; i < o.n; i++)
    for (int j = i; j > 0 && v->stride[find(v, o.ax[j - 1])] < v->stride[find(v, o.ax[j])]; j--) {
      uint16_t swap = o.ax[j];
      o.ax[j] = o.ax[j - 1];
      o.ax[j - 1] = swap;
    }
  return o;
}

/* The stride of the axes as one loop over v, if they are one; 1 for no loop. */
static bool one_loop(const ZkDotAxes *axes, const ZkView *v, int64_t *stride) {
  int64_t next = 0;
  *stride = 1;
  for (int i = axes->n - 1; i >= 0; i--) {
    int at = find(v, axes->ax[i]);
    if (v->size[at] == 1) continue;
    if (next == 0) *stride = v->stride[at];
    else if (v->stride[at] != next) return false;
    next = v->stride[at] * v->size[at];
  }
  return true;
}

static bool see(const ZkView *v, const ZkDotAxes *batch, const ZkDotAxes *r, const ZkDotAxes *c, Matrix *m) {
  int64_t sr, sc;
  *m = (Matrix){.rows = r->count, .cols = c->count};
  if (!one_loop(batch, v, &m->step) || !one_loop(r, v, &sr) || !one_loop(c, v, &sc)) return false;
  if (batch->count == 1) m->step = 0;
  bool flat = (m->cols == 1 || sc == 1) && (m->rows == 1 || sr >= m->cols);
  m->trans = !flat;
  m->ld = flat ? (m->rows == 1 ? m->cols : sr) : m->cols == 1 ? m->rows : sc;
  return (flat || ((m->rows == 1 || sr == 1) && (m->cols == 1 || sc >= m->rows))) && m->ld <= INT32_MAX;
}

static const ZkDotAxes *rows_of(const ZkDot *d, int i) { return i == ZKD_B ? &d->k : &d->m; }
static const ZkDotAxes *cols_of(const ZkDot *d, int i) { return i == ZKD_A ? &d->k : &d->n; }

/* Types that cuBLASLt multiplies: two of one kind; bf16 into either, f32 into f32. */
static ZkElem elem_of(const ZkDot *d, int i) {
  bool half = d->v[ZKD_A].elem == ZK_BF16 && d->v[ZKD_B].elem == ZK_BF16;
  return half ? (ZkElem)d->v[i].elem : ZK_F32;
}

static bool sixteens(const ZkView *v, const Matrix *m) {
  int64_t size = (int64_t)zk_elem_bytes((ZkElem)v->elem);
  return m->ld * size % 16 == 0 && m->step * size % 16 == 0;
}

/* Appends the axes to view p, from the fastest on; the fastest gets `stride`. */
static int64_t add_axes(ZkView *p, const ZkView *v, const ZkDotAxes *axes, int64_t stride) {
  for (int i = axes->n - 1; i >= 0; i--) {
    int at = find(v, axes->ax[i]), to = p->rank++;
    p->axis[to] = axes->ax[i];
    p->size[to] = v->size[at];
    p->start[to] = v->start[at];
    p->whole[to] = v->whole[at];
    p->stride[to] = stride;
    stride *= v->size[at];
  }
  return stride;
}

/* Operand i in scratch, as [batch, rows, cols]. */
static void pack(Layout *l, int i) {
  const ZkDot *d = &l->d;
  ZkElem elem = elem_of(d, i);
  int64_t size = (int64_t)zk_elem_bytes(elem), unit = 16 / size;
  ZkView *p = &l->pack[i];
  *p = (ZkView){.data = (void *)l->bytes, .elem = elem};
  int64_t cols = add_axes(p, &d->v[i], cols_of(d, i), 1);
  int64_t ld = (cols + unit - 1) / unit * unit;
  int64_t step = add_axes(p, &d->v[i], rows_of(d, i), ld);
  add_axes(p, &d->v[i], &d->batch, step);
  l->mat[i] = (Matrix){rows_of(d, i)->count, cols, ld, step, false};
  l->packed[i] = true;
  l->bytes += zb_round_up((size_t)(d->batch.count * step * size), 64);
  int64_t copies = i == ZKD_C && d->add ? 2 : 1; /* there, and back */
  l->cost += copies * zkc_count(&d->v[i]) * (size + (int64_t)zk_elem_bytes((ZkElem)d->v[i].elem));
}

static Layout lay_out(const ZkDot *d) {
  Layout l = {.d = *d};
  const int64_t other[3] = {d->n.count, d->m.count, 0}; /* times that an element is used */
  for (int i = 0; i < 3; i++) {
    const ZkView *v = &d->v[i];
    bool as_is = see(v, &d->batch, rows_of(d, i), cols_of(d, i), &l.mat[i]) && v->elem == elem_of(d, i);
    if (as_is && v->elem == ZK_BF16 && other[i] >= WORTH_ALIGNING) as_is = sixteens(v, &l.mat[i]);
    if (!as_is) pack(&l, i);
  }
  return l;
}

/* The cheapest layout over the orders that some operand suggests. */
static Layout best_layout(const ZkDot *d) {
  static const uint8_t has[4][2] = {{ZKD_C, ZKD_A}, {ZKD_C, ZKD_B}, {ZKD_A, ZKD_B}, {ZKD_C, ZKD_A}};
  Layout best = {.cost = INT64_MAX};
  for (int way = 0; way < 16; way++) {
    ZkDot o = *d;
    o.m = in_order(&d->m, &d->v[has[0][way & 1]]);
    o.n = in_order(&d->n, &d->v[has[1][way >> 1 & 1]]);
    o.k = in_order(&d->k, &d->v[has[2][way >> 2 & 1]]);
    o.batch = in_order(&d->batch, &d->v[has[3][way >> 3 & 1]]);
    Layout l = lay_out(&o);
    if (l.cost < best.cost) best = l;
  }
  return best;
}

size_t zk_dot_lt_scratch(const ZkDot *d) { return d->k.count ? best_layout(d).bytes : 0; }

/* ---- plan ------------------------------------------------------------------------------------------------ */
typedef struct {
  bool usable;
  Layout layout;
  int left, right; /* which operand comes first: cuBLASLt counts along columns */
  cublasLtMatmulDesc_t desc;
  cublasLtMatrixLayout_t mat[3];
  cublasLtMatmulAlgo_t algo;
  size_t workspace;
} Plan;

static bool ok(ZkCuda *cu, const ZkCall *call, const char *what, cublasStatus_t status) {
  if (status != CUBLAS_STATUS_SUCCESS) zk_cuda_fail(cu, call, what, cublasLtGetStatusString(status));
  return status == CUBLAS_STATUS_SUCCESS;
}

/* In columns, the matrix is its own transpose: the dimension with stride 1 comes first. */
static cublasStatus_t describe(Plan *p, int i) {
  const Matrix *m = &p->layout.mat[i];
  int32_t count = (int32_t)p->layout.d.batch.count;
  cudaDataType_t type = elem_of(&p->layout.d, i) == ZK_BF16 ? CUDA_R_16BF : CUDA_R_32F;
  cublasStatus_t s = cublasLtMatrixLayoutCreate(&p->mat[i], type, (uint64_t)(m->trans ? m->rows : m->cols),
                                                (uint64_t)(m->trans ? m->cols : m->rows), m->ld);
  if (s) return s;
  s = cublasLtMatrixLayoutSetAttribute(p->mat[i], CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof count);
  if (s) return s;
  return cublasLtMatrixLayoutSetAttribute(p->mat[i], CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &m->step,
                                          sizeof m->step);
}

/* A result with stride 1 along n is, in columns, C' = B' A'; with stride 1 along m it is C = A B. An operand that lies
 * as the result does is then what is wanted, one that does not is wanted transposed. */
static cublasStatus_t describe_all(Plan *p) {
  const Matrix *m = p->layout.mat;
  p->left = m[ZKD_C].trans ? ZKD_A : ZKD_B;
  p->right = m[ZKD_C].trans ? ZKD_B : ZKD_A;
  int32_t left = m[p->left].trans == m[ZKD_C].trans ? CUBLAS_OP_N : CUBLAS_OP_T;
  int32_t right = m[p->right].trans == m[ZKD_C].trans ? CUBLAS_OP_N : CUBLAS_OP_T;
  cublasStatus_t s = cublasLtMatmulDescCreate(&p->desc, CUBLAS_COMPUTE_32F, CUDA_R_32F); /* f32 stays exact */
  if (s) return s;
  s = cublasLtMatmulDescSetAttribute(p->desc, CUBLASLT_MATMUL_DESC_TRANSA, &left, sizeof left);
  if (s) return s;
  s = cublasLtMatmulDescSetAttribute(p->desc, CUBLASLT_MATMUL_DESC_TRANSB, &right, sizeof right);
  for (int i = 0; i < 3 && !s; i++) s = describe(p, i);
  return s;
}

/* Bytes of which all addresses that operand i has are multiples. */
static uint32_t alignment(const Plan *p, int i) {
  ZkView v = p->layout.packed[i] ? p->layout.pack[i] : p->layout.d.v[i];
  uintptr_t address = p->layout.packed[i] ? 0 : (uintptr_t)v.data; /* scratch is aligned */
  return sixteens(&v, &p->layout.mat[i]) && address % 16 == 0 ? 16 : (uint32_t)zk_elem_bytes((ZkElem)v.elem);
}

static cublasStatus_t prefer(const ZkCuda *cu, const Plan *p, cublasLtMatmulPreference_t pref) {
  uint64_t workspace = cu->workspace_bytes;
  uint32_t reduce = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
  const struct {
    cublasLtMatmulPreferenceAttributes_t what;
    uint32_t bytes;
  } align[4] = {{CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment(p, p->left)},
                {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment(p, p->right)},
                {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignment(p, ZKD_C)},
                {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignment(p, ZKD_C)}};
  cublasStatus_t s = cublasLtMatmulPreferenceSetAttribute(pref, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                                          &workspace, sizeof workspace);
  if (s) return s;
  s = cublasLtMatmulPreferenceSetAttribute(pref, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &reduce,
                                           sizeof reduce);
  for (int i = 0; i < 4 && !s; i++)
    s = cublasLtMatmulPreferenceSetAttribute(pref, align[i].what, &align[i].bytes, sizeof align[i].bytes);
  return s;
}

/* What cuBLASLt proposes for the plan, best first; none where it has nothing. */
static int propose(ZkCuda *cu, const ZkCall *call, const Plan *p, cublasLtMatmulHeuristicResult_t *found) {
  cublasLtMatmulPreference_t pref;
  int n = 0, kept = 0;
  if (!ok(cu, call, "cublasLtMatmulPreferenceCreate", cublasLtMatmulPreferenceCreate(&pref))) return 0;
  if (ok(cu, call, "cublasLtMatmulPreferenceSetAttribute", prefer(cu, p, pref))) {
    cublasStatus_t s =
        cublasLtMatmulAlgoGetHeuristic(cu->blas, p->desc, p->mat[p->left], p->mat[p->right], p->mat[ZKD_C],
                                       p->mat[ZKD_C], pref, PROPOSALS, found, &n);
    if (s == CUBLAS_STATUS_NOT_SUPPORTED) n = 0;
    else if (!ok(cu, call, "cublasLtMatmulAlgoGetHeuristic", s)) n = 0;
  }
  cublasLtMatmulPreferenceDestroy(pref);
  for (int i = 0; i < n; i++)
    if (found[i].state == CUBLAS_STATUS_SUCCESS) found[kept++] = found[i];
  return kept;
}

static cublasStatus_t multiply(ZkCuda *cu, const Plan *p, void *const at[3], bool add,
                               const cublasLtMatmulAlgo_t *algo, size_t workspace) {
  const float one = 1, zero = 0;
  return cublasLtMatmul(cu->blas, p->desc, &one, at[p->left], p->mat[p->left], at[p->right], p->mat[p->right],
                        add ? &one : &zero, at[ZKD_C], p->mat[ZKD_C], at[ZKD_C], p->mat[ZKD_C], algo,
                        cu->workspace, workspace, cu->stream);
}

/* ---- trials ---------------------------------------------------------------------------------------------- */
typedef struct {
  char *mem;
  void *at[3], *first; /* operands, result, the first proposal's result */
  int *flag;
  size_t bytes; /* of a result */
  cudaEvent_t from, to;
} Trial;

static size_t extent(const Plan *p, int i) {
  const Matrix *m = &p->layout.mat[i];
  int64_t lines = m->trans ? m->cols : m->rows, width = m->trans ? m->rows : m->cols;
  int64_t n = (p->layout.d.batch.count - 1) * m->step + (lines - 1) * m->ld + width;
  return (size_t)n * zk_elem_bytes(elem_of(&p->layout.d, i));
}

/* Memory beside the run's. False if there is too little: then there are no trials. */
static bool trial_new(ZkCuda *cu, const Plan *p, Trial *t) {
  size_t size[5] = {extent(p, 0), extent(p, 1), extent(p, 2), extent(p, 2), sizeof *t->flag}, at[5], all = 0;
  for (int i = 0; i < 5; i++) at[i] = all, all += zb_round_up(size[i], 256);
  *t = (Trial){.bytes = size[ZKD_C]};
  if (cudaMalloc((void **)&t->mem, all) != cudaSuccess) {
    (void)cudaGetLastError(); /* it is no error */
    return false;
  }
  for (int i = 0; i < 3; i++) t->at[i] = t->mem + at[i];
  t->first = t->mem + at[3];
  t->flag = (int *)(void *)(t->mem + at[4]);
  for (int i = 0; i < 3; i++) { /* the result too: what lies between its rows is compared as well */
    int elem = elem_of(&p->layout.d, i);
    zk_dot_noise(cu, t->at[i], elem, (int64_t)(size[i] / zk_elem_bytes((ZkElem)elem)), (unsigned)i);
  }
  return cudaMemcpyAsync(t->first, t->at[ZKD_C], t->bytes, cudaMemcpyDeviceToDevice, cu->stream) ==
             cudaSuccess &&
         cudaEventCreate(&t->from) == cudaSuccess && cudaEventCreate(&t->to) == cudaSuccess;
}

static void trial_free(Trial *t) {
  if (t->from) cudaEventDestroy(t->from);
  if (t->to) cudaEventDestroy(t->to);
  cudaFree(t->mem);
}

/* Milliseconds of the best round; negative if it does not run. */
static float measure(ZkCuda *cu, const Plan *p, const Trial *t, const cublasLtMatmulHeuristicResult_t *r) {
  float best = -1;
  for (int round = 0; round <= ROUNDS; round++) {
    float ms;
    if (cudaEventRecord(t->from, cu->stream) != cudaSuccess ||
        multiply(cu, p, t->at, false, &r->algo, r->workspaceSize) != CUBLAS_STATUS_SUCCESS ||
        cudaEventRecord(t->to, cu->stream) != cudaSuccess || cudaEventSynchronize(t->to) != cudaSuccess ||
        cudaEventElapsedTime(&ms, t->from, t->to) != cudaSuccess)
      return -1;
    if (round > 0 && (best < 0 || ms < best)) best = ms; /* the first one warms up */
  }
  return best;
}

static bool same_bits(ZkCuda *cu, const Trial *t) {
  int differs = 1;
  if (cudaMemsetAsync(t->flag, 0, sizeof *t->flag, cu->stream) != cudaSuccess) return false;
  zk_dot_compare(cu, t->first, t->at[ZKD_C], (int64_t)t->bytes, t->flag);
  return cudaMemcpyAsync(&differs, t->flag, sizeof differs, cudaMemcpyDeviceToHost, cu->stream) ==
             cudaSuccess &&
         cudaStreamSynchronize(cu->stream) == cudaSuccess && !differs;
}

/* Would other sums show in this result? In f32 they do in about every second element; rounded to bf16, in one of some
 * 2^15. */
static bool tells(const Plan *p) {
  int64_t n = p->layout.d.batch.count * p->layout.d.m.count * p->layout.d.n.count;
  return n >= (elem_of(&p->layout.d, ZKD_C) == ZK_BF16 ? 1 << 20 : 1 << 8);
}

/* The fastest of those that agree with number 0. */
static int fastest(ZkCuda *cu, const Plan *p, Trial *t, int n, const cublasLtMatmulHeuristicResult_t *found) {
  void *const at[3] = {t->at[ZKD_A], t->at[ZKD_B], t->first};
  if (multiply(cu, p, at, false, &found[0].algo, found[0].workspaceSize) != CUBLAS_STATUS_SUCCESS) return 0;
  int best = 0;
  float best_ms = measure(cu, p, t, &found[0]);
  for (int i = 1; i < n && best_ms > 0; i++) {
    float ms = measure(cu, p, t, &found[i]);
    if (ms >= 0 && ms < best_ms && same_bits(cu, t)) best = i, best_ms = ms;
  }
  return best;
}

static void make_plan(ZkCuda *cu, const ZkCall *call, void *memo) {
  Plan *p = memo;
  ZkDot d = zk_dot_of(call);
  cublasLtMatmulHeuristicResult_t found[PROPOSALS];
  if (d.batch.count > INT32_MAX) return;
  p->layout = best_layout(&d);
  if (!ok(cu, call, "describing the product to cuBLASLt", describe_all(p))) return;
  int n = propose(cu, call, p, found), use = 0;
  if (n == 0) return;
  if (n > 1 && tells(p)) {
    Trial t;
    if (trial_new(cu, p, &t)) use = fastest(cu, p, &t, n, found);
    trial_free(&t);
  }
  p->algo = found[use].algo;
  p->workspace = found[use].workspaceSize;
  p->usable = true;
}

static void drop_plan(void *memo) {
  Plan *p = memo;
  if (p->desc) cublasLtMatmulDescDestroy(p->desc);
  for (int i = 0; i < 3; i++)
    if (p->mat[i]) cublasLtMatrixLayoutDestroy(p->mat[i]);
}

void zk_dot_lt_prepare(ZkCuda *cu, const ZkCall *call) {
  if (cu->blas) zk_cuda_memo(cu, call, sizeof(Plan), make_plan, drop_plan);
}

/* ---- run -------------------------------------------------------------------------------------------------- */
static void copy(const ZkEnv *env, const ZkView *to, const ZkView *from) {
  ZkCall c = {.op = ZG_OP_COPY, .nin = 1, .nout = 1, .in = {*from}, .out = {*to}};
  zk_cuda_copy(env, &c);
}

bool zk_dot_lt(const ZkEnv *env, const ZkCall *call, const ZkDot *d) {
  ZkCuda *cu = env->device;
  if (!cu->blas || cu->failed) return false;
  const Plan *p = zk_cuda_memo(cu, call, sizeof *p, make_plan, drop_plan);
  if (!p->usable) return false;
  ZkView v[3];
  void *at[3];
  for (int i = 0; i < 3; i++) {
    v[i] = p->layout.packed[i] ? p->layout.pack[i] : d->v[i];
    if (p->layout.packed[i]) {
      v[i].data = (char *)call->scratch + (size_t)p->layout.pack[i].data;
      if (i != ZKD_C || d->add) copy(env, &v[i], &d->v[i]);
    }
    at[i] = v[i].data;
  }
  if (!cu->failed) ok(cu, call, "cublasLtMatmul", multiply(cu, p, at, d->add, &p->algo, p->workspace));
  if (p->layout.packed[ZKD_C]) copy(env, &d->v[ZKD_C], &v[ZKD_C]);
  return true;
}

#else
bool zk_dot_lt(const ZkEnv *env, const ZkCall *call, const ZkDot *d) {
  (void)env, (void)call, (void)d;
  return false;
}
void zk_dot_lt_prepare(ZkCuda *cu, const ZkCall *call) { (void)cu, (void)call; }
size_t zk_dot_lt_scratch(const ZkDot *d) {
  (void)d;
  return 0;
}
#endif
