/* What the kernels of attention share: a call on the device, what is seen of it, scores and their gradients. */
#ifndef ZUG_KERNELS_CUDA_ATTEND_CUH
#define ZUG_KERNELS_CUDA_ATTEND_CUH

#include "kernels/cuda/common.cuh"
extern "C" {
#include "kernels/cuda/attend.h"
}

#define LOG2E 1.44269504f
#define LN2 0.69314718f

/* As ZkcAttend, on the device. */
typedef struct {
  void *p[ZKA_VIEWS];
  int elem[ZKA_VIEWS];
  bool wide[ZKA_VIEWS]; /* rows can be loaded 16 bytes a time */
  long long ss[ZKA_VIEWS], hs[ZKA_VIEWS];
  ZkcNest heads, groups;
  int S, K, H, W, tiles;
  bool causal, more, has[ZKA_VIEWS];
  float scale, cap;
  int window, first, ahead;
  bool on;
  float *delta; /* D, [head, group, s] */
} Attend;

/* Rows of view v, and elements of a row. */
ZK_DEVICE int rows_of(const Attend &a, int v) { return ZKA_OF_KEYS(v) ? a.K : a.S; }
ZK_DEVICE int width_of(const Attend &a, int v) { return ZKA_OF_VALUES(v) ? a.W : a.H; }

/* Which head, group and row a delta belongs to. */
ZK_DEVICE long long delta_at(const Attend &a, unsigned head, unsigned group) {
  return ((long long)head * a.groups.count + group) * a.S;
}
ZK_DEVICE void seek_head(const Attend &a, unsigned head, unsigned group, long long (&off)[ZKA_VIEWS]) {
  long long g[ZKA_VIEWS];
  zkc_seek(a.heads, head, off);
  zkc_seek(a.groups, group, g);
#pragma unroll
  for (int v = 0; v < ZKA_VIEWS; v++) off[v] += g[v];
}

/* ---- what is seen, and scores -------------------------------------------------------------------------- */
typedef struct {
  int from, to;
} Span;
ZK_DEVICE int id_at(const Attend &a, int v, long long off, int i) {
  return ((const int *)a.p[v])[off + i * a.ss[v]];
}

/* Keys before it are seen in spite of a causal mask; counted from the first key that is here. */
ZK_DEVICE int prefix_of(const Attend &a, const long long (&off)[ZKA_VIEWS]) {
  return a.has[ZKA_PREFIX] ? id_at(a, ZKA_PREFIX, off[ZKA_PREFIX], 0) - a.first : 0;
}
/* Keys that some query of [from, from + n) sees, from a multiple of n; documents apart. */
template <bool MORE>
ZK_DEVICE Span keys_of(const Attend &a, const long long (&off)[ZKA_VIEWS], int from, int n) {
  int at = from + a.ahead;
  Span s = {0, a.causal ? max(0, min(at + n, a.K)) : a.K};
  if (!MORE) return s;
  if (a.causal) s.to = min(a.K, max(s.to, prefix_of(a, off)));
  if (a.window) {
    s.from = max(0, at - a.window + 1) / n * n;
    if (s.to - a.window > at + n - 1) s.to = at + n - 1 + a.window;
  }
  return s;
}
/* Queries that see some key of [from, from + n), likewise. */
template <bool MORE>
ZK_DEVICE Span queries_of(const Attend &a, const long long (&off)[ZKA_VIEWS], int from, int n) {
  int at = from - a.ahead;
  Span s = {a.causal ? max(0, at) / n * n : 0, a.S};
  if (!MORE) return s;
  if (prefix_of(a, off) > from) s.from = 0;
  if (a.window) {
    s.from = max(s.from, max(0, at - a.window + 1) / n * n);
    if (a.S - a.window > at + n - 1) s.to = at + n - 1 + a.window;
  }
  return s;
}

template <bool MORE>
ZK_DEVICE bool visible(const Attend &a, const long long (&off)[ZKA_VIEWS], int q, int k) {
  int far = q + a.ahead - k;
  bool seen = k < a.K && (!a.causal || far >= 0 || (MORE && k < prefix_of(a, off)));
  if (!MORE || !seen || q >= a.S) return seen;
  if (a.window && (far >= a.window || -far >= a.window)) return false;
  if (!a.has[ZKA_DOCS_K]) return true;
  int id = id_at(a, ZKA_DOCS_K, off[ZKA_DOCS_K], k);
  return id >= 0 && (!a.has[ZKA_DOCS_Q] || id_at(a, ZKA_DOCS_Q, off[ZKA_DOCS_Q], q) == id);
}

/* q.k to the score in powers of two, and its slope by scale q.k. */
template <bool MORE>
ZK_DEVICE float score_of(const Attend &a, const long long (&off)[ZKA_VIEWS], int q, int k, float s,
                         float *slope) {
  *slope = 1;
  if (!MORE) return s * (a.scale * LOG2E);
  s *= a.scale;
  if (a.cap > 0) {
    float t = tanhf(s / a.cap);
    s = a.cap * t;
    *slope = 1 - t * t;
  }
  if (a.has[ZKA_BIAS] && q < a.S)
    s += zk_load(a.p[ZKA_BIAS], a.elem[ZKA_BIAS], off[ZKA_BIAS] + q * a.ss[ZKA_BIAS] + k * a.hs[ZKA_BIAS]);
  return s * LOG2E;
}

/* May some of the n queries from q on see some of the n keys from k on, as far as the least and the
 * greatest of their documents tell? Every warp finds the same. */
template <bool MORE>
ZK_DEVICE bool share_documents(const Attend &a, const long long (&off)[ZKA_VIEWS], int q, int k, int n) {
  if (!MORE || !a.has[ZKA_DOCS_K]) return true;
  float least[2] = {INFINITY, INFINITY}, most[2] = {-1, -1};
  for (int side = 0; side < 2; side++) {
    int v = side ? ZKA_DOCS_K : ZKA_DOCS_Q, from = side ? k : q;
    if (!a.has[v]) {
      least[side] = 0, most[side] = INFINITY;
      continue;
    }
    for (int i = from + threadIdx.x % 32; i < min(from + n, rows_of(a, v)); i += 32) {
      int id = id_at(a, v, off[v], i);
      if (id < 0) continue;
      least[side] = fminf(least[side], (float)id);
      most[side] = fmaxf(most[side], (float)id);
    }
    least[side] = -zk_warp(-least[side], ZkMax());
    most[side] = zk_warp(most[side], ZkMax());
  }
  return least[0] <= most[1] && least[1] <= most[0];
}

/* ---- gradients --------------------------------------------------------------------------------------- */
/* To element `at` of a gradient, which may go on from what it is. */
ZK_DEVICE void put_grad(const Attend &a, int v, long long at, float x) {
  if (a.on && v != ZKA_O) x += zk_load(a.p[v], a.elem[v], at);
  zk_store(a.p[v], a.elem[v], at, x);
}

/* What the gradients need to know of a query. */
typedef struct {
  float l, delta;
} Query;
ZK_DEVICE Query query_at(const Attend &a, long long loff, long long doff, int q) {
  if (q >= a.S) return {0, 0};
  return {zk_load(a.p[ZKA_L], a.elem[ZKA_L], loff + q * a.ss[ZKA_L]) * LOG2E, a.delta[doff + q]};
}
/* s, d to p = exp(score - l), ds = p (d - D); the slope of the score */
template <bool MORE>
ZK_DEVICE float score_grad(const Attend &a, const long long (&off)[ZKA_VIEWS], int q, int k,
                           const Query &about, float &s, float &d) {
  float slope = 1;
  bool seen = q < a.S && visible<MORE>(a, off, q, k);
  s = seen ? zk_exp2(score_of<MORE>(a, off, q, k, s, &slope) - about.l) : 0;
  d = s * (d - about.delta);
  return slope;
}

/* ---- attend_mma.cu ------------------------------------------------------------------------------------- */
/* Attention's gradient on tensor cores: of bf16, with heads of up to 128 elements that lie 16 bytes at a time.
 * False if the call is none of these; then nothing was done. */
bool zk_attend_mma(ZkCuda *cu, const ZkCall *call, const ZkcAttend *from, const Attend &a);

#endif
