/* Products of few rows by weights, as steps of generation have them: bound by reading the weights, which is done 16 bytes
 * an access, each once for up to ROWS rows, which lie in shared memory.
 *
 * along   Weights of a column lie side by side along k: a warp has one or four columns, and its threads eight steps of
 *         k each; their sums are added up by shuffles.
 * across  Neighbouring columns lie side by side: a thread has eight of them and every so many'th step of k; the block
 *         adds up what its threads have.
 *
 * Sums are f32, in an order that depends on K, and of `across` on N, alone. What may follow a product in one call with it
 * (dot_epilogue.c) is done before the result is stored. */
#include "kernels/cuda/common.cuh"
extern "C" {
#include "kernels/cuda/dot.h"
}

#define THREADS 256
#define WARPS (THREADS / 32)
#define ROWS 8     /* of a pass; more take several */
#define MOST 16    /* rows */
#define CHUNK 1024 /* steps of k in shared memory */
#define ENOUGH 256 /* blocks that fill a device */

typedef struct {
  const void *x, *w, *bias, *full;
  void *c, *aux;
  int xelem, welem, celem;
  unsigned M, N, K, pieces, total;                      /* pieces: of columns; total: of all products */
  long long xb, xm, xk, wb, wn, wk, cb, cm, cn, bias_b; /* strides: of products, rows, columns, k */
  ZkDotEpilogueKind kind;
  bool bias_along_m, add;
  float alpha, beta;
} FewRows;

/* ---- rows in shared memory ----------------------------------------------------------------------------- */
/* Where number k of a row is: fours of eights apart, so that threads that have neighbouring eights read other banks. */
ZK_DEVICE int place(int k) { return (k % 8 / 4) * (CHUNK / 2) + k / 8 * 4 + k % 4; }

/* Loads rows [m, m + R), zeros where there are none, of k from `first` on. */
template <int R, bool EIGHTS>
ZK_DEVICE void load_rows(const FewRows &p, long long base, unsigned m, unsigned first, int n, float *x) {
  for (int i = threadIdx.x; i < R * n; i += THREADS) {
    int r = i / n, k = i - r * n;
    x[r * CHUNK + (EIGHTS ? place(k) : k)] =
        m + r < p.M ? zk_load(p.x, p.xelem, base + (m + r) * p.xm + (first + k) * p.xk) : 0;
  }
}

/* ---- results ------------------------------------------------------------------------------------------- */
ZK_DEVICE void keep(const FewRows &p, long long product, unsigned m, unsigned n, float sum) {
  long long at = product * p.cb + m * p.cm + n * p.cn;
  float y = p.alpha * sum;
  if (p.full) y += p.beta * zk_load(p.full, p.celem, at);
  if (p.bias) y += zk_load(p.bias, p.celem, product * p.bias_b + (p.bias_along_m ? m : n));
  if (p.add) y += zk_load(p.c, p.celem, at);
  if (p.kind == ZKD_GELU) {
    if (p.aux) zk_store(p.aux, p.celem, at, y);
    y = 0.5f * y * (1 + tanhf(0.79788456f * (y + 0.044715f * y * y * y)));
  }
  if (p.kind == ZKD_RELU) y = fmaxf(y, 0);
  zk_store(p.c, p.celem, at, y);
}

/* ---- kernels ------------------------------------------------------------------------------------------- */
/* R rows at a time by C columns a warp. */
template <int R, int C>
static __global__ void __launch_bounds__(THREADS) along(const __grid_constant__ FewRows p) {
  ZK_SHARED(float, x, [R * CHUNK]);
  int lane = threadIdx.x % 32;
  for (unsigned u = blockIdx.x; u < p.total; u += gridDim.x) {
    unsigned product = u / p.pieces, column = ((u - product * p.pieces) * WARPS + threadIdx.x / 32) * C;
    for (unsigned m = 0; m < p.M; m += R) {
      float sum[R][C] = {};
      for (unsigned first = 0; first < p.K; first += CHUNK) {
        int n = (int)min((unsigned)CHUNK, p.K - first);
        __syncthreads(); /* the chunk before is in use until here */
        load_rows<R, true>(p, product * p.xb, m, first, n, x);
        __syncthreads();
        for (int k = lane * 8; k < n; k += 32 * 8) {
          float w[C][8];
#pragma unroll
          for (int c = 0; c < C; c++) /* columns that are not there are the last one */
            zk_load8(p.w, p.welem, product * p.wb + min(column + c, p.N - 1) * p.wn + first + k, w[c]);
#pragma unroll
          for (int r = 0; r < R; r++)
#pragma unroll
            for (int h = 0; h < 2; h++) {
              float4 a = *(const float4 *)&x[r * CHUNK + h * (CHUNK / 2) + k / 2];
#pragma unroll
              for (int c = 0; c < C; c++) {
                sum[r][c] = fmaf(a.x, w[c][4 * h], sum[r][c]);
                sum[r][c] = fmaf(a.y, w[c][4 * h + 1], sum[r][c]);
                sum[r][c] = fmaf(a.z, w[c][4 * h + 2], sum[r][c]);
                sum[r][c] = fmaf(a.w, w[c][4 * h + 3], sum[r][c]);
              }
            }
        }
      }
#pragma unroll
      for (int r = 0; r < R; r++)
#pragma unroll
        for (int c = 0; c < C; c++) {
          float all = zk_warp(sum[r][c], ZkSum());
          if (lane == (r * C + c) % 32 && m + r < p.M && column + c < p.N)
            keep(p, product, m + r, column + c, all);
        }
    }
  }
}

/* R rows at a time by eight columns for each of L threads beside each other. */
template <int R, int L>
static __global__ void __launch_bounds__(THREADS) across(const __grid_constant__ FewRows p) {
  ZK_SHARED(float, x, [R * CHUNK]);
  const int WIDE = 8 * L;
  int lane = threadIdx.x % L, group = threadIdx.x / L, warp = threadIdx.x / 32;
  for (unsigned u = blockIdx.x; u < p.total; u += gridDim.x) {
    unsigned product = u / p.pieces, begin = (u - product * p.pieces) * WIDE, column = begin + 8 * lane;
    bool there = column < p.N; /* N is a multiple of eight */
    for (unsigned m = 0; m < p.M; m += R) {
      float sum[R][8] = {};
      for (unsigned first = 0; first < p.K; first += CHUNK) {
        int n = (int)min((unsigned)CHUNK, p.K - first);
        __syncthreads(); /* the chunk, or the sums before, are in use until here */
        load_rows<R, false>(p, product * p.xb, m, first, n, x);
        __syncthreads();
#pragma unroll 4
        for (int k = group; k < n; k += THREADS / L) {
          float w[8];
          if (there) zk_load8(p.w, p.welem, product * p.wb + (first + k) * p.wk + column, w);
#pragma unroll
          for (int r = 0; r < R; r++) {
            float a = x[r * CHUNK + k];
#pragma unroll
            for (int i = 0; i < 8; i++) sum[r][i] = fmaf(a, there ? w[i] : 0, sum[r][i]);
          }
        }
      }
      __syncthreads();
#pragma unroll
      for (int r = 0; r < R; r++)
#pragma unroll
        for (int i = 0; i < 8; i++) {
          float y = sum[r][i];
          for (int d = L; d < 32; d <<= 1) y += __shfl_xor_sync(0xffffffffu, y, d);
          if (threadIdx.x % 32 < L) x[(warp * R + r) * WIDE + 8 * lane + i] = y;
        }
      __syncthreads();
      for (int i = threadIdx.x; i < R * WIDE; i += THREADS) {
        unsigned r = i / WIDE, n = begin + i % WIDE;
        float y = x[i];
        for (int w = 1; w < WARPS; w++) y += x[w * R * WIDE + i];
        if (m + r < p.M && n < p.N) keep(p, product, m + r, n, y);
      }
    }
  }
}

/* ---- which calls, and how ------------------------------------------------------------------------------ */
/* Is a class one loop of a view, in the order that it has? */
static bool strides(const ZkDotAxes *axes, const ZkView *v, long long *stride) {
  int64_t s;
  bool one = zk_dot_one_loop(axes, v, &s);
  *stride = axes->count == 1 ? 0 : s;
  return one;
}

/* Can eights of weights be loaded 16 bytes a time? */
static bool wide(const FewRows *p, int64_t bytes, bool along_k) {
  long long next = along_k ? p->wn : p->wk;
  return (along_k ? p->wk == 1 && p->K % 8 == 0 : p->wn == 1 && p->N % 8 == 0) && (uintptr_t)p->w % 16 == 0 &&
         next * bytes % 16 == 0 && p->wb * bytes % 16 == 0;
}

/* Fills p with what a product is, apart from what follows it; false if it is none of these. */
static bool find(const ZkCall *call, const ZkView *out, bool *swapped, FewRows *p) {
  ZkCall plain = *call;
  plain.op = ZG_OP_DOT, plain.out[0] = *out;
  if (!call->invariant || (call->op != ZG_OP_DOT) || call->in[0].rank == 0 || call->in[1].rank == 0)
    return false;
  ZkDot d = zk_dot_of(&plain);
  bool swap = *swapped = d.n.count <= MOST && d.n.count < d.m.count;
  const ZkDotAxes *rows = swap ? &d.n : &d.m, *columns = swap ? &d.m : &d.n;
  const ZkView *x = &d.v[swap ? ZKD_B : ZKD_A], *w = &d.v[swap ? ZKD_A : ZKD_B], *c = &d.v[ZKD_C];
  ZkDotAxes m = zk_dot_in_order(rows, c), n = zk_dot_in_order(columns, w), k = zk_dot_in_order(&d.k, w);
  if (m.count > MOST || n.count < MOST || d.batch.n > 1 || k.count == 0 || m.count * d.batch.count == 0 ||
      n.count * k.count >= (int64_t)1 << 40 || n.count >= INT32_MAX || k.count >= INT32_MAX)
    return false;
  p->x = x->data, p->w = w->data, p->c = c->data;
  p->xelem = x->elem, p->welem = w->elem, p->celem = c->elem;
  p->M = (unsigned)m.count, p->N = (unsigned)n.count, p->K = (unsigned)k.count;
  if (!strides(&m, x, &p->xm) || !strides(&m, c, &p->cm) || !strides(&n, w, &p->wn) ||
      !strides(&n, c, &p->cn) || !strides(&k, w, &p->wk) || !strides(&k, x, &p->xk))
    return false;
  uint16_t batch = d.batch.n ? d.batch.ax[0] : 0;
  p->xb = d.batch.n ? zkc_stride(x, batch) : 0, p->wb = d.batch.n ? zkc_stride(w, batch) : 0;
  p->cb = d.batch.n ? zkc_stride(c, batch) : 0;
  p->alpha = 1, p->kind = ZKD_SUM, p->add = call->accumulate;
  int64_t bytes = (int64_t)zk_plain_bytes((ZkElem)w->elem);
  if ((w->elem != ZK_F32 && w->elem != ZK_BF16) || (!wide(p, bytes, true) && !wide(p, bytes, false)))
    return false;
  p->total = (unsigned)d.batch.count;
  return true;
}

/* What is known of a call without its pointers. */
typedef struct {
  ZkDotEpilogue after;
  bool fits; /* what follows the product is one of those that are done in one */
} Known;

static void learn(ZkCuda *cu, const ZkCall *call, void *memo) {
  Known *k = (Known *)memo;
  (void)cu;
  k->fits = zk_dot_epilogue(call, &k->after) && k->after.kind <= ZKD_RELU;
}

extern "C" bool zk_dot_is_few(const ZkCall *call) {
  FewRows p = {};
  bool swapped;
  return find(call, &call->out[0], &swapped, &p);
}

template <int R> static void launch(ZkCuda *cu, const ZkCall *call, FewRows p) {
  unsigned products = p.total;
  bool along_k = wide(&p, (int64_t)zk_plain_bytes((ZkElem)p.welem), true);
  int columns = along_k ? 4 * WARPS : 64; /* of a block: fewer where there would be too few blocks */
  while (columns > (along_k ? WARPS : 16) && zk_ceil_of(p.N, columns) * products < ENOUGH)
    columns = along_k ? WARPS : columns / 2;
  p.pieces = (unsigned)zk_ceil_of(p.N, columns);
  ZB_ASSERT((int64_t)products * p.pieces < (int64_t)1 << 32);
  p.total = products * p.pieces;
  unsigned blocks = zk_blocks(cu, p.total);
  if (along_k && columns == WARPS) ZK_LAUNCH(cu, call, (along<R, 1>), blocks, THREADS, 0, p);
  else if (along_k) ZK_LAUNCH(cu, call, (along<R, 4>), blocks, THREADS, 0, p);
  else if (columns == 64) ZK_LAUNCH(cu, call, (across<R, 8>), blocks, THREADS, 0, p);
  else if (columns == 32) ZK_LAUNCH(cu, call, (across<R, 4>), blocks, THREADS, 0, p);
  else ZK_LAUNCH(cu, call, (across<R, 2>), blocks, THREADS, 0, p);
}

extern "C" void zk_dot_few(const ZkEnv *env, const ZkCall *call) {
  ZkCuda *cu = zk_cu(env);
  const Known *known = (const Known *)zk_cuda_memo(cu, call, sizeof(Known), learn, NULL);
  if (!known->fits) {
    zk_cuda_run_unfused(env, call);
    return;
  }
  const ZkDotEpilogue *after = &known->after;
  FewRows p = {};
  bool swapped, found = find(call, &call->out[after->out], &swapped, &p);
  ZB_ASSERT(found);
  p.kind = after->kind, p.alpha = after->alpha, p.beta = after->beta;
  if (after->full >= 0) p.full = call->in[after->full].data;
  if (after->aux >= 0) p.aux = call->out[after->aux].data;
  if (after->bias >= 0) {
    const ZkView *bias = &call->in[after->bias];
    ZkCall plain = *call;
    plain.out[0] = call->out[after->out];
    ZkDot d = zk_dot_of(&plain);
    p.bias = bias->data, p.bias_along_m = after->bias_along_m != swapped;
    p.bias_b = d.batch.n ? zkc_stride(bias, d.batch.ax[0]) : 0;
  }
  if (p.M == 1) launch<1>(cu, call, p);
  else if (p.M == 2) launch<2>(cu, call, p);
  else if (p.M <= 4) launch<4>(cu, call, p);
  else launch<ROWS>(cu, call, p);
}

extern "C" void zk_dot_few_prepare(const ZkEnv *env, const ZkCall *call) {
  const Known *known = (const Known *)zk_cuda_memo(zk_cu(env), call, sizeof(Known), learn, NULL);
  if (!known->fits) zk_cuda_prepare_unfused(env, call);
}
