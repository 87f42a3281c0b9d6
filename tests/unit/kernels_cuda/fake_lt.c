/* See fake_lt.h. It refuses what cuBLASLt refuses: types that it does not multiply, dimensions that do not fit,
 * addresses that are not aligned as was said when the algorithm was asked for, and what cublasLt.h says of epilogues. */
#ifdef HAVE_CUBLASLT
#include "tests/unit/kernels_cuda/fake_lt.h"

#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

FakeLt fake_lt;
struct cublasLtContext *fake_lt_handle(void) {
  return (struct cublasLtContext *)&fake_lt;
}

/* ---- the runtime: time passes only while products are computed ------------------------------------------- */
static int64_t now;

cudaError_t cudaMalloc(void **p, size_t bytes) {
  *p = fake_lt.no_memory ? NULL : malloc(bytes);
  return *p ? cudaSuccess : cudaErrorMemoryAllocation;
}
cudaError_t cudaFree(void *p) { return free(p), cudaSuccess; }
cudaError_t cudaGetLastError(void) { return cudaSuccess; }
cudaError_t cudaMemsetAsync(void *p, int byte, size_t n, cudaStream_t s) {
  return (void)s, memset(p, byte, n), cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t n, enum cudaMemcpyKind kind, cudaStream_t s) {
  return (void)s, (void)kind, memcpy(to, from, n), cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t s) { return (void)s, cudaSuccess; }
cudaError_t cudaEventCreate(cudaEvent_t *e) { return *e = malloc(sizeof now), cudaSuccess; }
cudaError_t cudaEventDestroy(cudaEvent_t e) { return free(e), cudaSuccess; }
cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s) {
  return (void)s, *(int64_t *)e = now, cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t e) { return (void)e, cudaSuccess; }
cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t from, cudaEvent_t to) {
  return *ms = (float)(*(int64_t *)to - *(int64_t *)from), cudaSuccess;
}

/* ---- descriptors ------------------------------------------------------------------------------------------- */
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
} Pref;
typedef struct {
  uint32_t number, align[4], bias_align, aux_align, epilogue;
} Algo;

const char *cublasLtGetStatusString(cublasStatus_t s) {
  return s == CUBLAS_STATUS_NOT_SUPPORTED ? "not supported" : "wrong";
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *to, cublasComputeType_t compute,
                                        cudaDataType_t scale) {
  if (compute != CUBLAS_COMPUTE_32F || scale != CUDA_R_32F) return CUBLAS_STATUS_NOT_SUPPORTED;
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
  for (size_t i = 0; i < sizeof known / sizeof *known; i++)
    if (known[i].what == what && known[i].bytes == bytes)
      return memcpy(known[i].at, from, bytes), CUBLAS_STATUS_SUCCESS;
  return CUBLAS_STATUS_INVALID_VALUE;
}
cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *to, cudaDataType type, uint64_t rows,
                                          uint64_t cols, int64_t ld) {
  if (ld < (int64_t)rows) return CUBLAS_STATUS_INVALID_VALUE;
  Layout *l = malloc(sizeof *l);
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
  *p = (Pref){{256, 256, 256, 256}};
  *to = (cublasLtMatmulPreference_t)(void *)p;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t p) {
  return free(p), CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t to,
                                                    cublasLtMatmulPreferenceAttributes_t what,
                                                    const void *from, size_t bytes) {
  int i = (int)what - (int)CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES;
  if (bytes != (what == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES ? 8 : 4)) return CUBLAS_STATUS_INVALID_VALUE;
  if (i >= 0 && i < 4) memcpy(&((Pref *)(void *)to)->align[i], from, bytes);
  return CUBLAS_STATUS_SUCCESS;
}

/* ---- products ---------------------------------------------------------------------------------------------- */
typedef struct {
  int64_t m, n, k;
} Size;

static bool multiplies(const Desc *d, const Layout *a, const Layout *b, const Layout *c, Size *s) {
  bool half = a->type == CUDA_R_16BF && (c->type == CUDA_R_16BF || c->type == CUDA_R_32F);
  if (a->type != b->type || !(half || (a->type == CUDA_R_32F && c->type == CUDA_R_32F))) return false;
  *s = (Size){c->rows, c->cols, d->op[0] == CUBLAS_OP_N ? a->cols : a->rows};
  return (d->op[0] == CUBLAS_OP_N ? a->rows : a->cols) == s->m &&
         (d->op[1] == CUBLAS_OP_N ? b->cols : b->rows) == s->n &&
         (d->op[1] == CUBLAS_OP_N ? b->rows : b->cols) == s->k && a->count == c->count &&
         b->count == c->count;
}

/* ---- epilogues: what cublasLt.h says of them ---- */
#define BIAS 4
#define AUX 128

static bool follows(const Desc *d, const Layout *c) {
  switch (d->epilogue) {
  case CUBLASLT_EPILOGUE_DEFAULT:
  case CUBLASLT_EPILOGUE_BIAS:
  case CUBLASLT_EPILOGUE_RELU:
  case CUBLASLT_EPILOGUE_RELU_BIAS:
  case CUBLASLT_EPILOGUE_GELU:
  case CUBLASLT_EPILOGUE_GELU_BIAS:
  case CUBLASLT_EPILOGUE_GELU_AUX:
  case CUBLASLT_EPILOGUE_GELU_AUX_BIAS:
  case CUBLASLT_EPILOGUE_DGELU: break;
  default: return false;
  }
  if (d->epilogue & BIAS && d->bias_type != -1 && d->bias_type != (int32_t)c->type) return false;
  return !(d->epilogue & AUX) || (d->aux_ld % 8 == 0 && d->aux_ld >= c->rows && d->aux_step % 8 == 0);
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
  if (d->epilogue & BIAS && (!d->bias || (uintptr_t)d->bias % how->bias_align)) return false;
  if (d->epilogue & AUX && (!d->aux || (uintptr_t)d->aux % how->aux_align)) return false;
  return d->epilogue == how->epilogue;
}

/* C may be D, or lie apart from it. */
static bool apart(const void *c, const void *d, const Layout *l) {
  int64_t n = ((l->count - 1) * l->step + (l->cols - 1) * l->ld + l->rows) * (l->type == CUDA_R_32F ? 4 : 2);
  return c == d || (const char *)c + n <= (const char *)d || (const char *)d + n <= (const char *)c;
}

static bool aligned(const void *p, const Layout *l, uint32_t to) {
  uint64_t size = l->type == CUDA_R_32F ? 4 : 2;
  return (uintptr_t)p % to == 0 && (uint64_t)l->ld * size % to == 0 && (uint64_t)l->step * size % to == 0;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, const void *alpha,
                              const void *A, cublasLtMatrixLayout_t Adesc, const void *B,
                              cublasLtMatrixLayout_t Bdesc, const void *beta, const void *C,
                              cublasLtMatrixLayout_t Cdesc, void *D, cublasLtMatrixLayout_t Ddesc,
                              const cublasLtMatmulAlgo_t *algo, void *workspace, size_t bytes,
                              cudaStream_t stream) {
  (void)handle, (void)workspace, (void)bytes, (void)stream;
  const Desc *d = (void *)desc;
  const Layout *a = (void *)Adesc, *b = (void *)Bdesc, *c = (void *)Cdesc;
  const Algo *how = (const void *)algo;
  float scale = *(const float *)alpha, keep = *(const float *)beta;
  Size s;
  if (how->number == 3) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (fake_lt.runs_no_epilogue && d->epilogue != CUBLASLT_EPILOGUE_DEFAULT)
    return CUBLAS_STATUS_NOT_SUPPORTED;
  if (Cdesc != Ddesc || !apart(C, D, c) || !multiplies(d, a, b, c, &s) || !follows(d, c) ||
      !pointers_fit(d, how))
    return CUBLAS_STATUS_INVALID_VALUE;
  if (!aligned(A, a, how->align[0]) || !aligned(B, b, how->align[1]) || !aligned(C, c, how->align[2]) ||
      !aligned(D, c, how->align[3]))
    return CUBLAS_STATUS_INVALID_VALUE;
  for (int64_t i = 0; i < c->count; i++)
    for (int64_t m = 0; m < s.m; m++)
      for (int64_t n = 0; n < s.n; n++) {
        float sum = 0;
        for (int64_t step = 0; step < s.k; step++) {
          int64_t k = how->number == 2 ? s.k - 1 - step : step;
          sum += get(A, a->type, at(a, i, m, k, d->op[0] != CUBLAS_OP_N)) *
                 get(B, b->type, at(b, i, k, n, d->op[1] != CUBLAS_OP_N));
        }
        int64_t to = at(c, i, m, n, false);
        float x = keep == 0 ? scale * sum : scale * sum + keep * get(C, c->type, to);
        put(D, c->type, to, after(d, c, i, m, n, x));
      }
  static const int cost[] = {10, 5, 2};
  now += cost[how->number];
  fake_lt.products++;
  fake_lt.with[d->epilogue]++;
  fake_lt.added += keep != 0 && C != D;
  fake_lt.scaled += scale != 1;
  fake_lt.last = (int)how->number;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
                                              cublasLtMatrixLayout_t A, cublasLtMatrixLayout_t B,
                                              cublasLtMatrixLayout_t C, cublasLtMatrixLayout_t D,
                                              cublasLtMatmulPreference_t pref, int wanted,
                                              cublasLtMatmulHeuristicResult_t result[], int *found) {
  (void)handle, (void)D;
  Size s;
  *found = 0;
  if (fake_lt.knows_nothing) return CUBLAS_STATUS_NOT_SUPPORTED;
  const Desc *d = (void *)desc;
  if (!multiplies(d, (void *)A, (void *)B, (void *)C, &s)) return CUBLAS_STATUS_INVALID_VALUE;
  if (!follows(d, (void *)C)) return CUBLAS_STATUS_INVALID_VALUE;
  if (fake_lt.knows_no_epilogue && d->epilogue != CUBLASLT_EPILOGUE_DEFAULT)
    return CUBLAS_STATUS_NOT_SUPPORTED;
  for (int i = 0; i < 4 && i < wanted; i++) {
    result[i] = (cublasLtMatmulHeuristicResult_t){.state = CUBLAS_STATUS_SUCCESS};
    Algo algo = {.number = (uint32_t)i, .epilogue = d->epilogue};
    algo.bias_align = alignment_of(d->bias), algo.aux_align = alignment_of(d->aux);
    memcpy(algo.align, ((Pref *)(void *)pref)->align, sizeof algo.align);
    memcpy(&result[i].algo, &algo, sizeof algo);
    *found = i + 1;
  }
  return CUBLAS_STATUS_SUCCESS;
}
#endif
