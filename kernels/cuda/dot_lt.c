/* Products by cuBLASLt.
 *
 * It wants matrices: each of the classes M, N, K and batch one loop, one of the two loops of an operand with
 * stride 1. What lies otherwise is first copied into scratch as it should lie, and a result that does is
 * copied back from there. Which operands those are depends on the orders in which the axes of the classes are
 * counted; all are tried, and the one that copies the fewest bytes is kept. Rows of bf16 operands that are no
 * multiples of 16 bytes are copied too if the product is large enough to gain by it: the tensor cores' fast
 * kernels read 16 bytes a time. (Such results are not: the planner pads what is that large.)
 *
 * Of the algorithms that cuBLASLt proposes for a shape, the one taken is the fastest whose results are right
 * (dot_trial.c): on random operands those of the same call in parts, a product by the proposal that is taken
 * for it and then a kernel of ours, up to roundings; of a product without an epilogue, those of the first
 * proposal that runs. An epilogue that is wrong in this version is so found out, and not used. Algorithms add
 * in different orders, so what is measured decides about roundings: whoever runs several ranks makes the
 * choice the same on all (zk_cuda_choices). With `repeatable` only such are chosen from that give every bit
 * of what the first gives: results are then the same from run to run. Split sums are only let through if they
 * are added in f32 in a separate pass, which has a fixed order. What is refused in a step nevertheless is
 * done otherwise from then on, and said (zk_cuda_late).
 *
 * A fused call (dot_epilogue.c) is the same with an epilogue, and the tensor that it adds as cuBLASLt's C. It
 * needs the result where it lies. Activations are left to generations from 9.0 on: before, they are known to
 * be slower than a kernel of their own (karpathy/llm.c, pull request 338), and so they are on 12.0
 * (sgl-project/sglang, pull request 34350). Column sums (dot_bias_grad) are known to be slower before 9.0 too
 * (NVIDIA/CUDALibrarySamples, issue 90), and cuBLAS must be 12.3.4 or newer for them: its release notes name
 * wrong sums before. They are written and never added to, so what accumulates has them in scratch first, and
 * operand B must lie with its columns side by side. */
#include "kernels/cuda/dot.h"

#ifdef HAVE_CUBLASLT
#include <cuda_runtime_api.h>
#include <string.h>

#include "kernels/cuda/dot_lt.h"

#define PROPOSALS 8
#define WORTH_ALIGNING 256    /* products of each element that is copied */
#define OLDEST_ACTIVATIONS 90 /* generations */
#define NEWEST_ACTIVATIONS 119
#define OLDEST_SUMS 120304 /* version of the library */

/* ---- layout -------------------------------------------------------------------------------------------- */
static bool see(const ZkView *v, const ZkDotAxes *batch, const ZkDotAxes *r, const ZkDotAxes *c,
                ZkLtMatrix *m) {
  int64_t sr, sc;
  *m = (ZkLtMatrix){.rows = r->count, .cols = c->count};
  if (!zk_dot_one_loop(batch, v, &m->step) || !zk_dot_one_loop(r, v, &sr) || !zk_dot_one_loop(c, v, &sc))
    return false;
  if (batch->count == 1) m->step = 0;
  bool flat = (m->cols == 1 || sc == 1) && (m->rows == 1 || sr >= m->cols);
  m->trans = !flat;
  m->ld = flat ? (m->rows == 1 ? m->cols : sr) : m->cols == 1 ? m->rows : sc;
  return (flat || ((m->rows == 1 || sr == 1) && (m->cols == 1 || sc >= m->rows))) && m->ld <= INT32_MAX;
}

static const ZkDotAxes *rows_of(const ZkDot *d, int i) { return i == ZKD_B ? &d->k : &d->m; }
static const ZkDotAxes *cols_of(const ZkDot *d, int i) { return i == ZKD_A ? &d->k : &d->n; }

/* Types that cuBLASLt multiplies: two of one kind; bf16 into either, f32 into f32. */
ZkElem zk_lt_elem(const ZkDot *d, int i) {
  bool half = d->v[ZKD_A].elem == ZK_BF16 && d->v[ZKD_B].elem == ZK_BF16;
  return half ? (ZkElem)d->v[i].elem : ZK_F32;
}

static bool sixteens(const ZkView *v, const ZkLtMatrix *m) {
  int64_t size = (int64_t)zk_plain_bytes((ZkElem)v->elem);
  return m->ld * size % 16 == 0 && m->step * size % 16 == 0;
}

/* Appends the axes that v has to view p, from the fastest on; the fastest gets `stride`. */
static int64_t add_axes(ZkView *p, const ZkView *v, const ZkDotAxes *axes, int64_t stride) {
  for (int i = axes->n - 1; i >= 0; i--) {
    int at = zkc_find(v, axes->ax[i]);
    if (at < 0) continue;
    int to = p->rank++;
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
static void pack(ZkLtLayout *l, int i) {
  const ZkDot *d = &l->d;
  ZkElem elem = zk_lt_elem(d, i);
  int64_t size = (int64_t)zk_plain_bytes(elem), unit = 16 / size;
  ZkView *p = &l->pack[i];
  *p = (ZkView){.data = (void *)l->bytes, .elem = elem};
  int64_t cols = add_axes(p, &d->v[i], cols_of(d, i), 1);
  int64_t ld = (cols + unit - 1) / unit * unit;
  int64_t step = add_axes(p, &d->v[i], rows_of(d, i), ld);
  int64_t all = add_axes(p, &d->v[i], &d->batch, step);
  bool lacks = all == step; /* or there is one product */
  l->mat[i] = (ZkLtMatrix){rows_of(d, i)->count, cols, ld, lacks ? 0 : step, false};
  l->packed[i] = true;
  l->bytes += zb_round_up((size_t)(all * size), 64);
  int64_t copies = i == ZKD_C && d->add ? 2 : 1; /* there, and back */
  l->cost += copies * zkc_count(&d->v[i]) * (size + (int64_t)zk_plain_bytes((ZkElem)d->v[i].elem));
}

static ZkLtLayout lay_out(const ZkDot *d) {
  ZkLtLayout l = {.d = *d};
  const int64_t other[3] = {d->n.count, d->m.count, 0}; /* times that an element is used */
  for (int i = 0; i < 3; i++) {
    const ZkView *v = &d->v[i];
    bool as_is = see(v, &d->batch, rows_of(d, i), cols_of(d, i), &l.mat[i]) && v->elem == zk_lt_elem(d, i);
    if (as_is && v->elem == ZK_BF16 && other[i] >= WORTH_ALIGNING) as_is = sixteens(v, &l.mat[i]);
    if (!as_is) pack(&l, i);
  }
  return l;
}

/* The cheapest layout over the orders that some operand suggests. */
static ZkLtLayout best_layout(const ZkDot *d) {
  static const uint8_t has[4][2] = {{ZKD_C, ZKD_A}, {ZKD_C, ZKD_B}, {ZKD_A, ZKD_B}, {ZKD_C, ZKD_A}};
  ZkLtLayout best = {.cost = INT64_MAX};
  for (int way = 0; way < 16; way++) {
    ZkDot o = *d;
    o.m = zk_dot_in_order(&d->m, &d->v[has[0][way & 1]]);
    o.n = zk_dot_in_order(&d->n, &d->v[has[1][way >> 1 & 1]]);
    o.k = zk_dot_in_order(&d->k, &d->v[has[2][way >> 2 & 1]]);
    o.batch = zk_dot_in_order(&d->batch, &d->v[has[3][way >> 3 & 1]]);
    ZkLtLayout l = lay_out(&o);
    if (l.cost < best.cost) best = l;
  }
  return best;
}

/* ---- plan ---------------------------------------------------------------------------------------------- */

static bool ok(ZkCuda *cu, const ZkCall *call, const char *what, cublasStatus_t status) {
  if (status != CUBLAS_STATUS_SUCCESS) zk_cuda_fail(cu, call, what, cublasLtGetStatusString(status));
  return status == CUBLAS_STATUS_SUCCESS;
}

/* In columns, the matrix is its own transpose: the dimension with stride 1 comes first. */
static cublasStatus_t describe(ZkLtPlan *p, int i) {
  const ZkLtMatrix *m = &p->layout.mat[i];
  int32_t count = (int32_t)p->layout.d.batch.count;
  cudaDataType_t type = zk_lt_elem(&p->layout.d, i) == ZK_BF16 ? CUDA_R_16BF : CUDA_R_32F;
  cublasStatus_t s = cublasLtMatrixLayoutCreate(&p->mat[i], type, (uint64_t)(m->trans ? m->rows : m->cols),
                                                (uint64_t)(m->trans ? m->cols : m->rows), m->ld);
  if (s) return s;
  s = cublasLtMatrixLayoutSetAttribute(p->mat[i], CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof count);
  if (s) return s;
  return cublasLtMatrixLayoutSetAttribute(p->mat[i], CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &m->step,
                                          sizeof m->step);
}

/* A result with stride 1 along n is, in columns, C' = B' A'; with stride 1 along m it is C = A B. An operand
 * that lies as the result does is then what is wanted, one that does not is wanted transposed. */
static cublasStatus_t describe_all(const ZkCuda *cu, ZkLtPlan *p) {
  const ZkLtMatrix *m = p->layout.mat;
  bool half = zk_lt_elem(&p->layout.d, ZKD_A) == ZK_BF16;
  cublasComputeType_t compute = cu->tf32 && !half ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
  p->left = m[ZKD_C].trans ? ZKD_A : ZKD_B;
  p->right = m[ZKD_C].trans ? ZKD_B : ZKD_A;
  int32_t left = m[p->left].trans == m[ZKD_C].trans ? CUBLAS_OP_N : CUBLAS_OP_T;
  int32_t right = m[p->right].trans == m[ZKD_C].trans ? CUBLAS_OP_N : CUBLAS_OP_T;
  cublasStatus_t s = cublasLtMatmulDescCreate(&p->desc, compute, CUDA_R_32F);
  if (s) return s;
  s = cublasLtMatmulDescSetAttribute(p->desc, CUBLASLT_MATMUL_DESC_TRANSA, &left, sizeof left);
  if (s) return s;
  s = cublasLtMatmulDescSetAttribute(p->desc, CUBLASLT_MATMUL_DESC_TRANSB, &right, sizeof right);
  for (int i = 0; i < 3 && !s; i++) s = describe(p, i);
  return s;
}

/* ---- epilogues ----------------------------------------------------------------------------------------- */
static cublasStatus_t set_attribute(const ZkLtPlan *p, cublasLtMatmulDescAttributes_t what, const void *from,
                                    size_t bytes) {
  return cublasLtMatmulDescSetAttribute(p->desc, what, from, bytes);
}

/* Where vector and aux lie, in this call. */
static cublasStatus_t point(const ZkLtPlan *p, const void *vector, const void *aux) {
  cublasStatus_t s = CUBLAS_STATUS_SUCCESS;
  if (zk_lt_has_vector(&p->epi))
    s = set_attribute(p, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &vector, sizeof vector);
  if (!s && p->epi.aux >= 0)
    s = set_attribute(p, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, &aux, sizeof aux);
  return s;
}

/* B is cuBLASLt's A where the result has stride 1 along n. */
static uint32_t kind_of(const ZkLtPlan *p) {
  const ZkDotEpilogue *e = &p->epi;
  static const uint32_t kinds[4][2] = {{CUBLASLT_EPILOGUE_DEFAULT, CUBLASLT_EPILOGUE_BIAS},
                                       {CUBLASLT_EPILOGUE_GELU, CUBLASLT_EPILOGUE_GELU_BIAS},
                                       {CUBLASLT_EPILOGUE_RELU, CUBLASLT_EPILOGUE_RELU_BIAS},
                                       {CUBLASLT_EPILOGUE_DGELU, CUBLASLT_EPILOGUE_DGELU}};
  if (e->kind == ZKD_GELU && e->aux >= 0)
    return e->bias >= 0 ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS : CUBLASLT_EPILOGUE_GELU_AUX;
  if (e->kind == ZKD_COLUMN_SUMS)
    return p->left == ZKD_B ? CUBLASLT_EPILOGUE_BGRADA : CUBLASLT_EPILOGUE_BGRADB;
  return kinds[e->kind][e->bias >= 0];
}

/* The vector is of the result's type, and aux too, which is what it is unless told otherwise. The heuristics
 * look at how the two are aligned: they are told of addresses that are multiples of 16 and no more. */
static cublasStatus_t describe_epilogue(const ZkLtPlan *p) {
  const ZkLtMatrix *m = &p->layout.mat[ZKD_C];
  uint32_t kind = kind_of(p);
  int32_t type = zk_lt_elem(&p->layout.d, ZKD_C) == ZK_BF16 ? CUDA_R_16BF : CUDA_R_32F;
  cublasStatus_t s = set_attribute(p, CUBLASLT_MATMUL_DESC_EPILOGUE, &kind, sizeof kind);
  if (!s && zk_lt_has_vector(&p->epi))
    s = set_attribute(p, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, &type, sizeof type);
  if (!s && p->vector_step)
    s = set_attribute(p, CUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE, &p->vector_step, sizeof p->vector_step);
  if (!s && p->epi.aux >= 0) s = set_attribute(p, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, &m->ld, sizeof m->ld);
  if (!s && p->epi.aux >= 0)
    s = set_attribute(p, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_BATCH_STRIDE, &m->step, sizeof m->step);
  return s ? s : point(p, (const void *)(uintptr_t)16, (const void *)(uintptr_t)16);
}

static const ZkView *aux_of(const ZkCall *call, const ZkDotEpilogue *e) {
  return e->aux < 0 ? NULL : e->kind == ZKD_GELU_SLOPE ? &call->in[e->aux] : &call->out[e->aux];
}

bool zk_lt_sixteen(const ZkView *v) { return (uintptr_t)v->data % 16 == 0; }

/* Bias or column sums lie as cuBLASLt reads and writes them: every vector at a multiple of 16 bytes. */
static bool may_have_vector(ZkLtPlan *p, const ZkCall *call) {
  const ZkLtLayout *l = &p->layout;
  bool sums = p->epi.kind == ZKD_COLUMN_SUMS;
  const ZkView *v = sums ? &call->out[1] : &call->in[p->epi.bias];
  const ZkDotAxes *axes = sums || !p->epi.bias_along_m ? &l->d.n : &l->d.m;
  int64_t stride, size = (int64_t)zk_plain_bytes((ZkElem)v->elem);
  bool lies =
      zk_dot_one_loop(axes, v, &stride) && stride == 1 && zk_dot_one_loop(&l->d.batch, v, &p->vector_step);
  if (l->d.batch.count == 1) p->vector_step = 0;
  return lies && p->vector_step * size % 16 == 0 && (p->vector_step == 0 || p->vector_step == axes->count) &&
         (zk_lt_sixteen(v) || (sums && call->accumulate)) && v->elem == zk_lt_elem(&l->d, ZKD_C);
}

/* Where B lacks the batch, every product would write the same sums. */
static bool may_sum(ZkLtPlan *p, const ZkCall *call) {
  const ZkLtLayout *l = &p->layout;
  return cublasLtGetVersion() >= OLDEST_SUMS && l->d.k.count > 1 && !l->mat[ZKD_B].trans &&
         may_have_vector(p, call) && (l->d.batch.count == 1 || p->vector_step > 0);
}

/* Whether this GPU gains by the epilogue. */
static bool worth_it(const ZkCuda *cu, const ZkLtPlan *p) {
  if (!zk_debug(&cu->debug, ZK_DEBUG_EPILOGUES)) return false;
  return p->epi.kind == ZKD_SUM || (cu->arch >= OLDEST_ACTIVATIONS && cu->arch <= NEWEST_ACTIVATIONS);
}

/* What cuBLASLt wants of a product with an epilogue. */
static bool may_follow(ZkLtPlan *p, const ZkCall *call) {
  const ZkDotEpilogue *e = &p->epi;
  const ZkLtMatrix *m = &p->layout.mat[ZKD_C];
  const ZkDot *d = &p->layout.d;
  if (p->layout.packed[ZKD_C]) return false;
  if (e->kind == ZKD_COLUMN_SUMS) return may_sum(p, call);
  if (e->bias >= 0 && (m->trans != e->bias_along_m || !may_have_vector(p, call))) return false;
  /* Known to go wrong in versions that are in use: a bias of a single row or column (before 12.8.1, by the
   * release notes of CUDA 12.9.1), and DGELU of sums of a single term (12.4). Neither is worth a look at the
   * version. */
  if (e->bias >= 0 && (d->m.count == 1 || d->n.count == 1)) return false;
  if (e->kind == ZKD_GELU_SLOPE && d->k.count == 1) return false;
  if (e->kind != ZKD_SUM && p->vector_step) return false; /* 12.2 takes the first bias for all */
  return e->aux < 0 || (m->ld % 8 == 0 && m->step % 8 == 0 && zk_lt_sixteen(aux_of(call, e)));
}

/* Bytes of which all addresses that operand i has are multiples. */
static uint32_t alignment(const ZkLtPlan *p, int i) {
  ZkView v = p->layout.packed[i] ? p->layout.pack[i] : p->layout.d.v[i];
  uintptr_t address = p->layout.packed[i] ? 0 : (uintptr_t)v.data; /* scratch is aligned */
  return sixteens(&v, &p->layout.mat[i]) && address % 16 == 0 ? 16 : (uint32_t)zk_plain_bytes((ZkElem)v.elem);
}

/* The same of C, which is the result, or what is added to it. */
static uint32_t alignment_of_c(const ZkLtPlan *p, const ZkCall *call) {
  bool odd = p->epi.full >= 0 && (uintptr_t)call->in[p->epi.full].data % 16 != 0;
  return odd ? (uint32_t)zk_plain_bytes((ZkElem)call->in[p->epi.full].elem) : alignment(p, ZKD_C);
}

static cublasStatus_t prefer(const ZkCuda *cu, const ZkLtPlan *p, const ZkCall *call,
                             cublasLtMatmulPreference_t pref) {
  uint64_t workspace = cu->workspace_bytes;
  uint32_t reduce = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
  const struct {
    cublasLtMatmulPreferenceAttributes_t what;
    uint32_t bytes;
  } align[4] = {{CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment(p, p->left)},
                {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment(p, p->right)},
                {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignment_of_c(p, call)},
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

/* It has nothing for this, however it says so: what is no algorithm to one version are impossible parameters
 * to another. */
static bool refused(cublasStatus_t s) {
  return s == CUBLAS_STATUS_NOT_SUPPORTED || s == CUBLAS_STATUS_INVALID_VALUE ||
         s == CUBLAS_STATUS_ARCH_MISMATCH;
}

/* What cuBLASLt proposes for the plan, best first; none where it has nothing. What can be done as two can do
 * without: whatever it says against an epilogue counts as nothing. */
static int propose(ZkCuda *cu, const ZkCall *call, const ZkLtPlan *p,
                   cublasLtMatmulHeuristicResult_t *found) {
  cublasLtMatmulPreference_t pref;
  int n = 0, kept = 0;
  if (!ok(cu, call, "cublasLtMatmulPreferenceCreate", cublasLtMatmulPreferenceCreate(&pref))) return 0;
  if (ok(cu, call, "cublasLtMatmulPreferenceSetAttribute", prefer(cu, p, call, pref))) {
    cublasStatus_t s =
        cublasLtMatmulAlgoGetHeuristic(cu->blas, p->desc, p->mat[p->left], p->mat[p->right], p->mat[ZKD_C],
                                       p->mat[ZKD_C], pref, PROPOSALS, found, &n);
    if (refused(s) || (s && zk_dot_more(call))) n = 0;
    else if (!ok(cu, call, "cublasLtMatmulAlgoGetHeuristic", s)) n = 0;
  }
  cublasLtMatmulPreferenceDestroy(pref);
  for (int i = 0; i < n; i++)
    if (found[i].state == CUBLAS_STATUS_SUCCESS) found[kept++] = found[i];
  return kept;
}

cublasStatus_t zk_lt_multiply(ZkCuda *cu, const ZkLtPlan *p, const ZkLtPlaces *l, bool add,
                              const cublasLtMatmulAlgo_t *algo, size_t workspace) {
  const float alpha = p->epi.alpha, beta = add ? 1 : p->epi.beta;
  cublasStatus_t s = point(p, l->vector, l->aux);
  if (s) return s;
  return cublasLtMatmul(cu->blas, p->desc, &alpha, l->at[p->left], p->mat[p->left], l->at[p->right],
                        p->mat[p->right], &beta, l->full ? l->full : l->at[ZKD_C], p->mat[ZKD_C],
                        l->at[ZKD_C], p->mat[ZKD_C], algo, cu->workspace, workspace, cu->stream);
}

/* The product of a call; false if its function is no epilogue. */
static bool product_of(const ZkCall *call, ZkDotEpilogue *e, ZkDot *d) {
  if (!zk_dot_epilogue(call, e)) return false;
  ZkCall plain = *call;
  plain.out[0] = call->out[e->out];
  *d = zk_dot_of(&plain);
  return d->batch.count <= INT32_MAX && d->batch.count * d->m.count * d->n.count * d->k.count != 0 &&
         d->m.count * d->n.count > 1;
}

/* Which GPU, which library and which call, but for where a rank's part of an axis begins. */
static uint64_t key_of(const ZkCuda *cu, const ZkCall *call, const ZkDotEpilogue *e) {
  uint64_t h = zb_mix64(cublasLtGetVersion() * 1000 + (uint64_t)cu->arch);
  const int64_t of[] = {call->op,        call->nin, call->accumulate, e->kind,   e->bias, e->full,
                        e->bias_along_m, e->out,    e->aux,           call->nax, cu->sms, cu->tf32};
  for (size_t i = 0; i < sizeof of / sizeof *of; i++) h = zb_mix64(h + (uint64_t)of[i]);
  for (int i = 0; i < call->nax; i++) h = zb_mix64(h + call->ax[i]);
  for (int i = 0; i < call->nin + call->nout; i++) {
    const ZkView *v = i < call->nin ? &call->in[i] : &call->out[i - call->nin];
    h = zb_mix64(h + v->elem * 2u + zk_lt_sixteen(v));
    for (int a = 0; a < v->rank; a++)
      h = zb_mix64(zb_mix64(zb_mix64(h + v->axis[a]) + (uint64_t)v->size[a]) + (uint64_t)v->stride[a]);
  }
  uint32_t factor[2];
  memcpy(&factor[0], &e->alpha, 4), memcpy(&factor[1], &e->beta, 4);
  return zb_mix64(zb_mix64(h + factor[0]) + factor[1]);
}

/* From what cuBLASLt proposes; the context's list has the plan, since others may choose for it. */
static void choose(ZkCuda *cu, ZkLtPlan *p, const ZkCall *call, int n,
                   const cublasLtMatmulHeuristicResult_t *found) {
  p->key = key_of(cu, call, &p->epi);
  p->next = cu->products, cu->products = p;
  int use = zk_lt_try(cu, p, call, n, found);
  if (use < 0) return; /* as two, then, or by our own kernels */
  p->why = NULL;
  p->algo = found[use].algo;
  p->workspace = found[use].workspaceSize;
  p->usable = true;
}

static void make_plan(ZkCuda *cu, const ZkCall *call, void *memo) {
  ZkLtPlan *p = memo;
  ZkDot d;
  cublasLtMatmulHeuristicResult_t found[PROPOSALS];
  if (!product_of(call, &p->epi, &d)) return;
  p->layout = best_layout(&d);
  if (zk_dot_more(call) && !worth_it(cu, p)) return;
  p->why = "cuBLASLt is not asked: its operands lie in another way, or some versions are wrong there";
  if (zk_dot_more(call) && !may_follow(p, call)) return;
  p->why = NULL;
  if (cu->pretend) return;
  p->why = "cuBLASLt refuses it";
  if (!ok(cu, call, "describing the product to cuBLASLt", describe_all(cu, p))) return;
  if (zk_dot_more(call) && describe_epilogue(p)) return; /* a version without it */
  int n = propose(cu, call, p, found);
  if (n > 0) choose(cu, p, call, n, found);
}

static void drop_plan(void *memo) {
  ZkLtPlan *p = memo;
  if (p->desc) cublasLtMatmulDescDestroy(p->desc);
  for (int i = 0; i < 3; i++)
    if (p->mat[i]) cublasLtMatrixLayoutDestroy(p->mat[i]);
}

const char *zk_dot_lt_why(ZkCuda *cu, const ZkCall *call) {
  if (!cu->blas && !cu->pretend) return "there is no cuBLASLt";
  return ((const ZkLtPlan *)zk_cuda_memo(cu, call, sizeof(ZkLtPlan), make_plan, drop_plan))->why;
}

const char *zk_dot_lt_untried(ZkCuda *cu, const ZkCall *call) {
  const ZkLtPlan *p = cu->blas ? zk_cuda_memo(cu, call, sizeof *p, make_plan, drop_plan) : NULL;
  return p && p->usable ? p->untried : NULL;
}

bool zk_dot_lt_prepare(ZkCuda *cu, const ZkCall *call) {
  return cu->blas &&
         ((const ZkLtPlan *)zk_cuda_memo(cu, call, sizeof(ZkLtPlan), make_plan, drop_plan))->usable;
}

/* ---- what ranks choose alike --------------------------------------------------------------------------- */
_Static_assert(sizeof(cublasLtMatmulAlgo_t) <= sizeof((ZkCudaChoice){0}).algorithm, "an algorithm is copied");

uint32_t zk_cuda_choices(ZkCuda *cu, ZkCudaChoice *out, uint32_t most) {
  uint32_t n = 0;
  for (const ZkLtPlan *p = cu->products; p; p = p->next) {
    if (p->settled) continue;
    if (n < most) {
      out[n] = (ZkCudaChoice){
          .call = p->key, .usable = p->usable, .tried = !p->untried, .workspace = p->workspace};
      memcpy(out[n].algorithm, &p->algo, sizeof p->algo);
    }
    n++;
  }
  return n;
}

void zk_cuda_choose(ZkCuda *cu, const ZkCudaChoice *choice, uint32_t n) {
  for (ZkLtPlan *p = cu->products; p; p = p->next)
    for (uint32_t i = 0; i < n && !p->settled; i++) {
      const ZkCudaChoice *c = &choice[i];
      if (c->call != p->key) continue;
      p->settled = true;
      if (p->usable && !c->usable) p->why = "another rank cannot, and all are to have the same bits";
      p->usable = p->usable && c->usable; /* what this rank found wrong it does not do */
      if (!p->usable || c->workspace > cu->workspace_bytes) continue;
      memcpy(&p->algo, c->algorithm, sizeof p->algo);
      p->workspace = c->workspace;
      if (c->tried) p->untried = NULL;
    }
}

/* ---- run ----------------------------------------------------------------------------------------------- */
static void copy(const ZkEnv *env, const ZkView *to, const ZkView *from) {
  ZkCall c = {.op = ZG_OP_COPY, .nin = 1, .nout = 1, .in = {*from}, .out = {*to}};
  zk_cuda_copy(env, &c);
}

/* Column sums that are added to what is there have scratch behind that of packed operands. */
static void *vector_of(const ZkCall *call, const ZkLtPlan *p) {
  if (p->epi.bias >= 0) return call->in[p->epi.bias].data;
  if (p->epi.kind != ZKD_COLUMN_SUMS) return NULL;
  return call->accumulate ? (char *)call->scratch + p->layout.bytes : call->out[1].data;
}

bool zk_dot_lt(const ZkEnv *env, const ZkCall *call) {
  ZkCuda *cu = env->device;
  if (!cu->blas || cu->failed) return false;
  ZkLtPlan *p = zk_cuda_memo(cu, call, sizeof *p, make_plan, drop_plan);
  if (!p->usable) return false;
  const ZkDotEpilogue *e = &p->epi;
  const ZkView *whole[3] = {&call->in[ZKD_A], &call->in[ZKD_B], &call->out[e->out]};
  ZkView v[3];
  ZkLtPlaces l = {.full = e->full < 0 ? NULL : call->in[e->full].data, .vector = vector_of(call, p)};
  if (e->aux >= 0) l.aux = aux_of(call, e)->data;
  for (int i = 0; i < 3; i++) {
    v[i] = p->layout.packed[i] ? p->layout.pack[i] : *whole[i];
    if (p->layout.packed[i]) {
      v[i].data = (char *)call->scratch + (size_t)p->layout.pack[i].data;
      if (i != ZKD_C || call->accumulate) copy(env, &v[i], whole[i]);
    }
    l.at[i] = v[i].data;
  }
  cublasStatus_t s = cu->failed ? CUBLAS_STATUS_SUCCESS
                                : zk_lt_multiply(cu, p, &l, call->accumulate, &p->algo, p->workspace);
  if (refused(s)) { /* what it did in a trial */
    p->usable = false, p->why = "cuBLASLt refused it in a step";
    return zk_cuda_refused(cu, call, "cuBLASLt", zk_dot_more(call) ? "in parts" : "by our own kernels",
                           cublasLtGetStatusString(s));
  }
  ok(cu, call, "cublasLtMatmul", s);
  if (p->layout.packed[ZKD_C]) copy(env, whole[ZKD_C], &v[ZKD_C]);
  if (e->kind == ZKD_COLUMN_SUMS && call->accumulate)
    zk_cuda_axpy(env, zkc_count(&call->out[1]), 1, l.vector, call->out[1].data);
  return true;
}

size_t zk_dot_lt_scratch(const ZkCall *call) {
  ZkDotEpilogue e;
  ZkDot d;
  if (!product_of(call, &e, &d)) return 0;
  size_t sums = e.kind == ZKD_COLUMN_SUMS ? (size_t)(d.n.count * d.batch.count) * sizeof(float) : 0;
  return best_layout(&d).bytes + zb_round_up(sums, 64);
}

#else
uint32_t zk_cuda_choices(ZkCuda *cu, ZkCudaChoice *out, uint32_t most) {
  (void)cu, (void)out, (void)most;
  return 0;
}
void zk_cuda_choose(ZkCuda *cu, const ZkCudaChoice *choice, uint32_t n) { (void)cu, (void)choice, (void)n; }
bool zk_dot_lt(const ZkEnv *env, const ZkCall *call) {
  (void)env, (void)call;
  return false;
}
bool zk_dot_lt_prepare(ZkCuda *cu, const ZkCall *call) {
  (void)cu, (void)call;
  return false;
}
const char *zk_dot_lt_why(ZkCuda *cu, const ZkCall *call) {
  (void)cu, (void)call;
  return "this build has no cuBLASLt";
}
const char *zk_dot_lt_untried(ZkCuda *cu, const ZkCall *call) {
  (void)cu, (void)call;
  return NULL;
}
size_t zk_dot_lt_scratch(const ZkCall *call) {
  (void)call;
  return 0;
}
#endif
