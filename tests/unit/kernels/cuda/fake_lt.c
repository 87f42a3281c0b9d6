/* See fake_lt.h. It refuses what cuBLASLt refuses: types that it does not multiply, dimensions that do not
 * fit, addresses that are not aligned as was said when the algorithm was asked for, algorithms that were
 * asked for something else, workspaces that are too small or not at a multiple of 256 (enforced since CUDA
 * 12.9.1), a result that is also added but described twice (since 13.0.2), and what cublasLt.h and the
 * release notes say of epilogues. */
#ifdef HAVE_CUBLASLT
#include "tests/unit/kernels/cuda/fake_lt.h"

#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

extern void (*zk_emu_queue)(struct CUstream_st *stream, void (*run)(void *arg), void (*drop)(void *arg),
                            void *arg); /* kernels/cuda/emu.h */

FakeLt fake_lt;
struct cublasLtContext *fake_lt_handle(void) {
  return (struct cublasLtContext *)&fake_lt;
}

void fake_lt_open(ZkCuda *cu) {
  static _Alignas(256) char workspace[4096];
  cu->blas = fake_lt_handle(), cu->workspace = workspace, cu->workspace_bytes = sizeof workspace;
  cu->l2 = FAKE_LT_CACHE;
}

/* ---- descriptors --------------------------------------------------------------------------------------- */
typedef struct {
  cudaDataType type;
  int64_t rows, cols, ld, step;
  int32_t count;
} Layout;
typedef struct {
  int32_t op[2]; /* of A and B */
  uint32_t epilogue;
  int32_t bias_type; /* -1: D's */
  const void *bias;
  void *aux;
  int64_t aux_ld, aux_step, bias_step;
} Desc;
typedef struct {
  uint32_t align[4]; /* of A, B, C, D */
  uint32_t reduce;
  uint64_t workspace;
} Pref;
typedef struct {
  uint32_t number, align[4], bias_align, aux_align;
  uint64_t asked; /* what for: see sum_of */
} Algo;
_Static_assert(sizeof(Algo) <= sizeof(cublasLtMatmulAlgo_t), "an algorithm is copied as one of cuBLASLt's");

size_t cublasLtGetVersion(void) { return fake_lt.version ? fake_lt.version : 130000; }
const char *cublasLtGetStatusString(cublasStatus_t s) {
  return s == CUBLAS_STATUS_NOT_SUPPORTED ? "not supported" : "wrong";
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *to, cublasComputeType_t compute,
                                        cudaDataType_t scale) {
  fake_lt.tf32 += compute == CUBLAS_COMPUTE_32F_FAST_TF32;
  if ((compute != CUBLAS_COMPUTE_32F && compute != CUBLAS_COMPUTE_32F_FAST_TF32) || scale != CUDA_R_32F)
    return CUBLAS_STATUS_NOT_SUPPORTED;
  Desc *d = calloc(1, sizeof(Desc));
  d->epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  d->bias_type = -1;
  *to = (cublasLtMatmulDesc_t)(void *)d;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t d) { return free(d), CUBLAS_STATUS_SUCCESS; }
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t d, cublasLtMatmulDescAttributes_t what,
                                              const void *from, size_t bytes) {
  Desc *to = (void *)d;
  const struct {
    cublasLtMatmulDescAttributes_t what;
    void *at;
    size_t bytes;
  } known[] = {{CUBLASLT_MATMUL_DESC_TRANSA, &to->op[0], 4},
               {CUBLASLT_MATMUL_DESC_TRANSB, &to->op[1], 4},
               {CUBLASLT_MATMUL_DESC_EPILOGUE, &to->epilogue, 4},
               {CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, &to->bias_type, 4},
               {CUBLASLT_MATMUL_DESC_BIAS_POINTER, &to->bias, 8},
               {CUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE, &to->bias_step, 8},
               {CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, &to->aux, 8},
               {CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, &to->aux_ld, 8},
               {CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_BATCH_STRIDE, &to->aux_step, 8}};
  if (fake_lt.has_no_epilogue && what >= CUBLASLT_MATMUL_DESC_EPILOGUE) return CUBLAS_STATUS_INVALID_VALUE;
  for (size_t i = 0; i < sizeof known / sizeof *known; i++)
    if (known[i].what == what && known[i].bytes == bytes)
      return memcpy(known[i].at, from, bytes), CUBLAS_STATUS_SUCCESS;
  return CUBLAS_STATUS_INVALID_VALUE;
}
cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *to, cudaDataType type, uint64_t rows,
                                          uint64_t cols, int64_t ld) {
  if (ld < (int64_t)rows) return CUBLAS_STATUS_INVALID_VALUE;
  if (rows == 0 || cols == 0) return CUBLAS_STATUS_INVALID_VALUE;
  Layout *l = calloc(1, sizeof *l);
  *l = (Layout){type, (int64_t)rows, (int64_t)cols, ld, 0, 1};
  *to = (cublasLtMatrixLayout_t)(void *)l;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t l) {
  return free(l), CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t to,
                                                cublasLtMatrixLayoutAttribute_t what, const void *from,
                                                size_t bytes) {
  Layout *l = (void *)to;
  bool count = what == CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT;
  if (!count && what != CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET) return CUBLAS_STATUS_INVALID_VALUE;
  if (bytes != (count ? sizeof l->count : sizeof l->step)) return CUBLAS_STATUS_INVALID_VALUE;
  memcpy(count ? (void *)&l->count : (void *)&l->step, from, bytes);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *to) {
  Pref *p = malloc(sizeof *p);
  *p = (Pref){{256, 256, 256, 256}, CUBLASLT_REDUCTION_SCHEME_MASK, 0};
  *to = (cublasLtMatmulPreference_t)(void *)p;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t p) {
  return free(p), CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t to,
                                                    cublasLtMatmulPreferenceAttributes_t what,
                                                    const void *from, size_t bytes) {
  Pref *p = (void *)to;
  int i = (int)what - (int)CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES;
  void *at = what == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES     ? (void *)&p->workspace
             : what == CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK ? &p->reduce
             : i >= 0 && i < 4                                    ? &p->align[i]
                                                                  : NULL;
  if (!at || bytes != (at == &p->workspace ? 8 : 4)) return CUBLAS_STATUS_INVALID_VALUE;
  memcpy(at, from, bytes);
  return i < 0 || i > 3 || (p->align[i] && !(p->align[i] & (p->align[i] - 1))) ? CUBLAS_STATUS_SUCCESS
                                                                               : CUBLAS_STATUS_INVALID_VALUE;
}

/* ---- products ------------------------------------------------------------------------------------------ */
typedef struct {
  int64_t m, n, k;
} Size;

/* D's matrices must not overlap, but may interleave; A's and B's may be one. */
static bool batched(const Layout *l, bool is_result) {
  int64_t extent = (l->cols - 1) * l->ld + l->rows;
  bool interleave = l->step >= l->rows && l->ld >= (l->count - 1) * l->step + l->rows;
  return l->count >= 1 && l->step >= 0 && (!is_result || l->count == 1 || l->step >= extent || interleave);
}

static bool multiplies(const Desc *d, const Layout *a, const Layout *b, const Layout *c, Size *s) {
  bool half = a->type == CUDA_R_16BF && (c->type == CUDA_R_16BF || c->type == CUDA_R_32F);
  if (a->type != b->type || !(half || (a->type == CUDA_R_32F && c->type == CUDA_R_32F))) return false;
  *s = (Size){c->rows, c->cols, d->op[0] == CUBLAS_OP_N ? a->cols : a->rows};
  return (d->op[0] == CUBLAS_OP_N ? a->rows : a->cols) == s->m &&
         (d->op[1] == CUBLAS_OP_N ? b->cols : b->rows) == s->n &&
         (d->op[1] == CUBLAS_OP_N ? b->rows : b->cols) == s->k && a->count == c->count &&
         b->count == c->count && batched(a, false) && batched(b, false) && batched(c, true);
}

static uint64_t mix(uint64_t sum, uint64_t x) { return (sum ^ x) * 0x9e3779b97f4a7c15u + (sum >> 29); }

/* Everything about a product but the addresses: an algorithm is for that only. */
static uint64_t sum_of(const Desc *d, const Layout *a, const Layout *b, const Layout *c) {
  const Layout *l[3] = {a, b, c};
  uint64_t sum = mix(mix(mix((uint64_t)d->op[0], (uint64_t)d->op[1]), d->epilogue), (uint64_t)d->bias_type);
  sum = mix(mix(mix(sum, (uint64_t)d->aux_ld), (uint64_t)d->aux_step), (uint64_t)d->bias_step);
  for (int i = 0; i < 3; i++) {
    const int64_t of[6] = {l[i]->type, l[i]->rows, l[i]->cols, l[i]->ld, l[i]->step, l[i]->count};
    for (int k = 0; k < 6; k++) sum = mix(sum, (uint64_t)of[k]);
  }
  return sum;
}

/* ---- epilogues ----------------------------------------------------------------------------------------- */
#define BIAS 4
#define AUX 128
#define VECTOR (BIAS | CUBLASLT_EPILOGUE_BGRADA | CUBLASLT_EPILOGUE_BGRADB) /* what reads or writes one */

/* What cublasLt.h says of them; BGRADA wants its operand as it is, BGRADB turned (else NOT_SUPPORTED:
 * measured by others on
 * a GPU). Where release notes say that results are wrong in versions that are in use, we do not ask: single
 * rows and columns (before 12.8.1), single terms (12.4; bias gradients, before 12.3.1). */
static cublasStatus_t follows(const Desc *d, const Layout *c, const Size *s) {
  bool wrong = d->epilogue & BIAS && (s->m == 1 || s->n == 1);
  switch (d->epilogue) {
  case CUBLASLT_EPILOGUE_DEFAULT:
  case CUBLASLT_EPILOGUE_BIAS:
  case CUBLASLT_EPILOGUE_RELU:
  case CUBLASLT_EPILOGUE_RELU_BIAS:
  case CUBLASLT_EPILOGUE_GELU:
  case CUBLASLT_EPILOGUE_GELU_BIAS:
  case CUBLASLT_EPILOGUE_GELU_AUX:
  case CUBLASLT_EPILOGUE_GELU_AUX_BIAS: break;
  case CUBLASLT_EPILOGUE_DGELU: wrong |= s->k == 1; break;
  case CUBLASLT_EPILOGUE_BGRADA:
  case CUBLASLT_EPILOGUE_BGRADB:
    if (d->epilogue == CUBLASLT_EPILOGUE_BGRADA ? d->op[0] != CUBLAS_OP_N : d->op[1] != CUBLAS_OP_T)
      return CUBLAS_STATUS_NOT_SUPPORTED;
    wrong |=
        s->k == 1 || (c->count > 1 && d->bias_step < (d->epilogue == CUBLASLT_EPILOGUE_BGRADA ? s->m : s->n));
    break;
  default: return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  if (wrong) fake_lt.wrong++;
  if (wrong || (d->epilogue & VECTOR && d->bias_type != -1 && d->bias_type != (int32_t)c->type))
    return CUBLAS_STATUS_INVALID_VALUE;
  bool fits = d->aux_ld % 8 == 0 && d->aux_ld >= c->rows && d->aux_step % 8 == 0;
  return d->epilogue & AUX && !fits ? CUBLAS_STATUS_INVALID_VALUE : CUBLAS_STATUS_SUCCESS;
}

static uint32_t alignment_of(const void *p) {
  uintptr_t a = (uintptr_t)p;
  return a == 0 || a % 256 == 0 ? 256 : (uint32_t)(a & -a);
}

static double gelu(double x) { return 0.5 * x * (1 + tanh(0.7978845608028654 * (x + 0.044715 * x * x * x))); }
static double gelu_slope(double x) { return (gelu(x + 1e-5) - gelu(x - 1e-5)) / 2e-5; }

static float get(const void *p, cudaDataType type, int64_t at) {
  if (type == CUDA_R_32F) return ((const float *)p)[at];
  uint32_t u = (uint32_t)((const uint16_t *)p)[at] << 16;
  float x;
  memcpy(&x, &u, 4);
  return x;
}
static void put(void *p, cudaDataType type, int64_t at, float x) {
  uint32_t u;
  memcpy(&u, &x, 4);
  if (type == CUDA_R_32F) ((float *)p)[at] = x;
  else ((uint16_t *)p)[at] = (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}
static int64_t at(const Layout *l, int64_t i, int64_t row, int64_t col, bool trans) {
  return i * l->step + (trans ? col + row * l->ld : row + col * l->ld);
}

/* What becomes of the sum x at (row, col) of product i; AUX is written or read. */
static float after(const Desc *d, const Layout *c, int64_t i, int64_t row, int64_t col, float x) {
  int64_t aux = i * d->aux_step + row + col * d->aux_ld;
  if (fake_lt.lies && fake_lt.lies == d->epilogue) return d->epilogue & BIAS ? x : x / 2;
  if (d->epilogue & BIAS) x += get(d->bias, c->type, i * d->bias_step + row);
  switch (d->epilogue & ~(uint32_t)BIAS) {
  case CUBLASLT_EPILOGUE_RELU: return x > 0 ? x : 0;
  case CUBLASLT_EPILOGUE_GELU_AUX: put(d->aux, c->type, aux, x); return (float)gelu(x);
  case CUBLASLT_EPILOGUE_GELU: return (float)gelu(x);
  case CUBLASLT_EPILOGUE_DGELU: return x * (float)gelu_slope(get(d->aux, c->type, aux));
  default: return x;
  }
}

static bool pointers_fit(const Desc *d, const Algo *how) {
  uint64_t step = (uint64_t)d->bias_step * (d->bias_type == CUDA_R_16BF ? 2 : 4);
  if (d->epilogue & VECTOR && (!d->bias || ((uintptr_t)d->bias | step) % how->bias_align)) return false;
  return !(d->epilogue & AUX && (!d->aux || (uintptr_t)d->aux % how->aux_align));
}

/* C may be D, and is then described by what D is; or lie apart from it. */
static bool apart(const void *c, const Layout *lc, const void *d, const Layout *l) {
  int64_t n = ((l->count - 1) * l->step + (l->cols - 1) * l->ld + l->rows) * (l->type == CUDA_R_32F ? 4 : 2);
  return c == d ? lc == l : (const char *)c + n <= (const char *)d || (const char *)d + n <= (const char *)c;
}

static bool same(const Layout *x, const Layout *y) {
  return x->type == y->type && x->rows == y->rows && x->cols == y->cols && x->count == y->count;
}

static bool aligned(const void *p, const Layout *l, uint32_t to) {
  uint64_t size = l->type == CUDA_R_32F ? 4 : 2;
  return (uintptr_t)p % to == 0 && (uint64_t)l->ld * size % to == 0 && (uint64_t)l->step * size % to == 0;
}

/* BGRADA, BGRADB: the sums of A's or B's part of each term, neither scaled nor added to what was there. */
static void put_sums(const Desc *d, const Layout *a, const void *A, const Layout *b, const void *B,
                     const Layout *c, const Size *s) {
  bool of_a = d->epilogue == CUBLASLT_EPILOGUE_BGRADA;
  for (int64_t i = 0; i < c->count; i++)
    for (int64_t x = 0; x < (of_a ? s->m : s->n); x++) {
      float sum = 0;
      for (int64_t k = 0; k < s->k; k++)
        sum += of_a ? get(A, a->type, at(a, i, x, k, d->op[0] != CUBLAS_OP_N))
                    : get(B, b->type, at(b, i, k, x, d->op[1] != CUBLAS_OP_N));
      if (fake_lt.lies == d->epilogue) sum /= 2;
      put((void *)(uintptr_t)d->bias, c->type, i * d->bias_step + x, sum);
    }
}

static size_t workspace_of(uint32_t number) { return number * (size_t)1024; }

/* What was asked, for whenever the stream comes to it. */
typedef struct {
  Desc d;
  Layout a, b, c;
  Size s;
  uint32_t number;
  float scale, keep;
  const void *A, *B, *C;
  void *D, *workspace;
  size_t bytes;
} Product;

static void compute(void *product) {
  const Product *p = product;
  const Layout *a = &p->a, *b = &p->b, *c = &p->c;
  const Desc *d = &p->d;
  if (p->bytes > 0) memset(p->workspace, 0x5a, p->bytes); /* it is the product's */
  for (int64_t i = 0; i < c->count; i++)
    for (int64_t m = 0; m < p->s.m; m++)
      for (int64_t n = 0; n < p->s.n; n++) {
        float sum = 0;
        for (int64_t step = 0; step < p->s.k; step++) {
          int64_t k = p->number == 2 ? p->s.k - 1 - step : step;
          sum += get(p->A, a->type, at(a, i, m, k, d->op[0] != CUBLAS_OP_N)) *
                 get(p->B, b->type, at(b, i, k, n, d->op[1] != CUBLAS_OP_N));
        }
        int64_t to = at(c, i, m, n, false);
        float x = p->keep == 0 ? p->scale * sum : p->scale * sum + p->keep * get(p->C, c->type, to);
        put(p->D, c->type, to, after(d, c, i, m, n, x));
      }
  if (d->epilogue & (CUBLASLT_EPILOGUE_BGRADA | CUBLASLT_EPILOGUE_BGRADB))
    put_sums(d, a, p->A, b, p->B, c, &p->s);
}

static void queue_product(const Product *p, cudaStream_t stream) {
  Product *kept = malloc(sizeof *p);
  *kept = *p;
  if (zk_emu_queue) {
    zk_emu_queue(stream, compute, free, kept);
    return;
  }
  compute(kept);
  free(kept);
}

static void count(const Product *p) {
  static const int cost[] = {10, 5, 2};
  fake_lt.now += fake_lt.cold && fake_lt.last_is_slow_cold && p->number == 2 ? 20 : cost[p->number];
  fake_lt.cold = false;
  fake_lt.products++;
  fake_lt.batched += p->c.count > 1;
  fake_lt.odd += ((uintptr_t)p->A | (uintptr_t)p->B | (uintptr_t)p->C | (uintptr_t)p->D) % 16 != 0;
  fake_lt.with[p->d.epilogue]++;
  fake_lt.added += p->keep != 0 && p->C != p->D;
  fake_lt.scaled += p->scale != 1;
  fake_lt.last = (int)p->number;
}

static bool refuses(const Desc *d, const Algo *how, bool adds, cudaStream_t stream) {
  enum cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  if (how->number == 3 || fake_lt.runs_nothing || (fake_lt.first_does_not_run && how->number == 0))
    return true;
  if (fake_lt.runs_no_epilogue && d->epilogue != CUBLASLT_EPILOGUE_DEFAULT) return true;
  if (fake_lt.refuses_from && fake_lt.products >= fake_lt.refuses_from) return true;
  if (fake_lt.refuses_captured) cudaStreamIsCapturing(stream, &status);
  return status != cudaStreamCaptureStatusNone || (adds && fake_lt.adds_not >> how->number & 1);
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, const void *alpha,
                              const void *A, cublasLtMatrixLayout_t Adesc, const void *B,
                              cublasLtMatrixLayout_t Bdesc, const void *beta, const void *C,
                              cublasLtMatrixLayout_t Cdesc, void *D, cublasLtMatrixLayout_t Ddesc,
                              const cublasLtMatmulAlgo_t *algo, void *workspace, size_t bytes,
                              cudaStream_t stream) {
  (void)handle;
  const Desc *d = (void *)desc;
  const Layout *a = (void *)Adesc, *b = (void *)Bdesc, *c = (void *)Ddesc;
  const Algo *how = (const void *)algo;
  float keep = *(const float *)beta;
  Product p = {*d, *a, *b, *c, .number = how->number, .scale = *(const float *)alpha, .keep = keep};
  p.A = A, p.B = B, p.C = C, p.D = D, p.workspace = workspace, p.bytes = bytes;
  if (refuses(d, how, keep != 0 && C == D, stream)) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (!same((void *)Cdesc, c) || !apart(C, (void *)Cdesc, D, c) || !multiplies(d, a, b, c, &p.s) ||
      follows(d, c, &p.s) || !pointers_fit(d, how) || how->asked != sum_of(d, a, b, c))
    return fake_lt.misuses++, CUBLAS_STATUS_INVALID_VALUE;
  if (bytes < workspace_of(how->number) || (bytes > 0 && (!workspace || (uintptr_t)workspace % 256 != 0)))
    return fake_lt.misuses++, CUBLAS_STATUS_INVALID_VALUE;
  if (!aligned(A, a, how->align[0]) || !aligned(B, b, how->align[1]) || !aligned(C, c, how->align[2]) ||
      !aligned(D, c, how->align[3]))
    return fake_lt.misuses++, CUBLAS_STATUS_INVALID_VALUE;
  queue_product(&p, stream);
  count(&p);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
                                              cublasLtMatrixLayout_t A, cublasLtMatrixLayout_t B,
                                              cublasLtMatrixLayout_t C, cublasLtMatrixLayout_t D,
                                              cublasLtMatmulPreference_t pref, int wanted,
                                              cublasLtMatmulHeuristicResult_t result[], int *found) {
  (void)handle;
  Size s;
  *found = 0;
  if (fake_lt.knows_nothing) return fake_lt.says ? fake_lt.says : CUBLAS_STATUS_NOT_SUPPORTED;
  const Desc *d = (void *)desc;
  const Pref *p = (void *)pref;
  if (!same((void *)C, (void *)D) || !multiplies(d, (void *)A, (void *)B, (void *)D, &s))
    return fake_lt.misuses++, CUBLAS_STATUS_INVALID_VALUE;
  cublasStatus_t status = follows(d, (void *)D, &s);
  if (status) return fake_lt.misuses += status == CUBLAS_STATUS_INVALID_VALUE, status;
  if (fake_lt.knows_no_epilogue && d->epilogue != CUBLASLT_EPILOGUE_DEFAULT)
    return CUBLAS_STATUS_NOT_SUPPORTED;
  for (uint32_t i = 0; i < 4 && *found < wanted; i++) {
    if (workspace_of(i) > p->workspace) continue;
    cublasLtMatmulHeuristicResult_t r = {.state = CUBLAS_STATUS_SUCCESS, .workspaceSize = workspace_of(i)};
    Algo algo = {.number = i, .asked = sum_of(d, (void *)A, (void *)B, (void *)D)};
    algo.bias_align = alignment_of(d->bias), algo.aux_align = alignment_of(d->aux);
    memcpy(algo.align, p->align, sizeof algo.align);
    memcpy(&r.algo, &algo, sizeof algo);
    result[(*found)++] = r;
  }
  return CUBLAS_STATUS_SUCCESS;
}
#endif
