/* One chunk of tokens of one row of linear_attend, forward and backward, by one block of threads. The
 * formulas, names and traps are those of kernels/cpu/linear.h; only the memory is another: operands are read
 * where they lie and decayed as they are read, so that a chunk keeps no more than its scores, what feedback
 * makes of its values and, backward, its gradients. That is in scratch, which the L2 cache holds. */
#ifndef ZUG_KERNELS_CUDA_LINEAR_CUH
#define ZUG_KERNELS_CUDA_LINEAR_CUH

extern "C" {
#include "graph/linear.h"
}
#include "kernels/cuda/common.cuh"
#include "kernels/cuda/products.cuh"

#define LINEAR_TILE 16      /* tokens, of scores with a decay for each feature, and of the solution */
#define LINEAR_RESET -100.0 /* exp of it is nothing beside 1; of an infinite log, differences would be NaN */

/* Views by role: the result or its cotangent, operands, their gradients, and each row's share of the gradient
 * of decays that all tokens have. */
enum { O, Q, K, V, G, A, K2, V2, ROLES, D = ROLES - Q, SHARES = D + ROLES, VIEWS };

template <int N> struct LinearNest { /* a ZkcNest of N views */
  int nloops;
  unsigned count;
  ZkcDiv div[ZKC_LOOPS];
  long long stride[ZKC_LOOPS][N];
};

typedef struct {
  char *data[VIEWS];
  int elem[VIEWS];
  long long token[VIEWS], feature[VIEWS]; /* strides */
  int C, K, V, D;                         /* most tokens of a chunk; features; decays of a token: 0, 1 or K */
  int sides, keys, chunks, tokens;
  unsigned given, shared;         /* roles: that are there, whose gradients rows share */
  bool apart;                     /* all tokens have one decay */
  LinearNest<VIEWS> outer, inner; /* rows: axes that all operands have; others */
  LinearNest<ROLES> own;          /* inner again. Views: O, and by role its sums */
  int parts;                      /* tasks of a point of outer, each with a share of inner's rows */
  long long tasks, teams, sums[ROLES], sum_floats; /* where a task has its sums of what rows share */
  long long per_team, shares; /* bytes of a team's memory; before that, of the rows' shares */
  char *scratch;
} Linear;

/* A block and the chunk that it works on; in shared memory. */
typedef struct {
  ZkTiles *tiles;
  double *part;             /* of reductions, in shared memory */
  const long long *off;     /* of the row, by view */
  const long long *own;     /* in the task's sums, by role */
  int m, from;              /* tokens */
  double *G, *dG;           /* [m][D] */
  float *up, *down;         /* [m][D]: e^G, e^(G_last - G) */
  float *u;                 /* [m][V] */
  float *scores, *dA;       /* [side][key][m][m], [m][m] */
  float *dx, *dy, *dw, *dS; /* [side][C][K], [key][C][K], [key][C][V], [K][V] */
  float *S;                 /* [K][V], or such at the start of each chunk */
} Chunk;

/* ---- memory -------------------------------------------------------------------------------------------- */
/* Places c's arrays from `at` on (NULL: only counts) and returns how many bytes they take. */
static __host__ __device__ inline long long linear_place(const Linear &p, bool grad, char *at, Chunk &c) {
  long long bytes = 0, C = p.C, pairs = (long long)p.sides * p.keys;
  auto take = [&](long long n, int size) {
    char *it = at + bytes;
    bytes += (n * size + 63) / 64 * 64;
    return it;
  };
  c.G = (double *)take(C * p.D, 8), c.dG = (double *)take(grad * C * p.D, 8);
  c.up = (float *)take(C * p.D, 4), c.down = (float *)take(C * p.D, 4);
  c.u = (float *)take((p.sides > 1) * C * p.V, 4);
  c.scores = (float *)take(pairs * C * C, 4), c.dA = (float *)take(grad * C * C, 4);
  c.dx = (float *)take(grad * p.sides * C * p.K, 4), c.dy = (float *)take(grad * p.keys * C * p.K, 4);
  c.dw = (float *)take(grad * p.keys * C * p.V, 4), c.dS = (float *)take(grad * (long long)p.K * p.V, 4);
  c.S = (float *)take((grad ? p.chunks : 1) * (long long)p.K * p.V, 4);
  return bytes;
}

/* ---- what a chunk reads -------------------------------------------------------------------------------- */
ZK_DEVICE float linear_at(const Linear &p, const Chunk &c, int view, int t, int i) {
  return zk_load(p.data[view], p.elem[view],
                 c.off[view] + (long long)(c.from + t) * p.token[view] + i * p.feature[view]);
}
ZK_DEVICE float linear_x(const Linear &p, const Chunk &c, int side, int t, int k) {
  return linear_at(p, c, side ? A : Q, t, k);
}
ZK_DEVICE float linear_y(const Linear &p, const Chunk &c, int key, int t, int k) {
  return linear_at(p, c, key ? K2 : K, t, k);
}
/* What is written with key `key`. */
ZK_DEVICE float linear_w(const Linear &p, const Chunk &c, int key, int t, int v) {
  return key == 0 && p.sides > 1 ? c.u[t * p.V + v] : linear_at(p, c, key ? V2 : V, t, v);
}
/* Cotangent of what a side reads. */
ZK_DEVICE float linear_d(const Linear &p, const Chunk &c, int side, int t, int v) {
  return side ? c.dw[t * p.V + v] : linear_at(p, c, O, t, v);
}
ZK_DEVICE float linear_decay(const Linear &p, const float *f, int t, int k) {
  return p.D == 0 ? 1 : p.D == 1 ? f[t] : f[t * p.D + k];
}
ZK_DEVICE float *linear_scores_of(const Linear &p, const Chunk &c, int side, int key) {
  return c.scores + (long long)(side * p.keys + key) * p.C * p.C;
}
/* A decay for each feature lies inside the sum over features. */
ZK_DEVICE bool linear_each(const Linear &p) { return p.D > 1; }
ZK_DEVICE float linear_between(const Linear &p, const Chunk &c, int from, int to, int k) {
  return zk_exp((float)(c.G[to * p.D + k] - c.G[from * p.D + k]));
}

/* ---- decays -------------------------------------------------------------------------------------------- */
/* Running sums of x[m][D] from the first token on, or from the last. */
ZK_DEVICE void linear_run(double *x, int m, int D, bool reverse) {
  int t = (int)threadIdx.x;
  __syncthreads();
  if (D > 1) {
    for (int d = t; d < D; d += ZKC_TEAM) {
      double sum = 0;
      for (int i = 0; i < m; i++) {
        double *at = x + (reverse ? m - 1 - i : i) * D + d;
        *at = sum += *at;
      }
    }
  } else if (t < 32) {
    double before = 0;
    for (int first = 0; first < m; first += 32) {
      int i = first + t, at = reverse ? m - 1 - i : i;
      double sum = i < m ? x[at] : 0;
#pragma unroll
      for (int d = 1; d < 32; d <<= 1) {
        double other = __shfl_up_sync(0xffffffffu, sum, d);
        if (t >= d) sum += other;
      }
      sum += before;
      if (i < m) x[at] = sum;
      before = __shfl_sync(0xffffffffu, sum, 31);
    }
  }
  __syncthreads();
}

ZK_DEVICE void linear_decays(const Linear &p, const Chunk &c) {
  int n = c.m * p.D;
  if (!p.D) return;
  for (int u = (int)threadIdx.x; u < n; u += ZKC_TEAM) {
    double g = linear_at(p, c, G, u / p.D, u % p.D);
    c.G[u] = g < LINEAR_RESET ? LINEAR_RESET : g;
  }
  linear_run(c.G, c.m, p.D, false);
  for (int u = (int)threadIdx.x; u < n; u += ZKC_TEAM) {
    c.up[u] = zk_exp((float)c.G[u]);
    c.down[u] = zk_exp((float)(c.G[(c.m - 1) * p.D + u % p.D] - c.G[u]));
  }
  __syncthreads();
}

/* ---- scores -------------------------------------------------------------------------------------------- */
/* Of token t, which a score lets see itself or not, and j. */
ZK_DEVICE bool linear_sees(int t, int j, bool strict) { return strict ? j < t : j <= t; }
ZK_DEVICE float linear_mask(const Linear &p, const Chunk &c, int t, int j) {
  return p.D == 1 ? zk_exp((float)(c.G[t] - c.G[j])) : 1;
}

/* A tile of tokens with those before it meets by a reference between the two, where no exponent is positive;
 * within the tile, pair by pair. */
ZK_DEVICE void linear_scores_each(const Linear &p, const Chunk &c, int side, int key, bool strict,
                                  float *to) {
  int m = c.m, i = (int)threadIdx.x / LINEAR_TILE, j = (int)threadIdx.x % LINEAR_TILE;
  for (int r = 0; r < m; r += LINEAR_TILE) {
    int n = min(LINEAR_TILE, m - r), ref = r - 1;
    zk_product<1, false, false>(
        *c.tiles, n, r, r ? p.K : 0,
        [&](int t, int k) { return linear_x(p, c, side, r + t, k) * linear_between(p, c, ref, r + t, k); },
        [&](int k, int o) { return linear_y(p, c, key, o, k) * linear_between(p, c, o, ref, k); },
        [](int, int) { return 0.0f; }, [&](int t, int o, float x) { to[(r + t) * m + o] = x; });
    float sum = 0;
    if (i < n && j < n && linear_sees(i, j, strict))
      for (int k = 0; k < p.K; k++)
        sum += linear_x(p, c, side, r + i, k) * linear_y(p, c, key, r + j, k) *
               linear_between(p, c, r + j, r + i, k);
    if (i < n && j < n) to[(r + i) * m + r + j] = sum;
    for (int o = r + n + j; i < n && o < m; o += LINEAR_TILE) to[(r + i) * m + o] = 0;
  }
  __syncthreads();
}

ZK_DEVICE void linear_scores(const Linear &p, const Chunk &c, int side, int key) {
  bool strict = side > 0;
  float *to = linear_scores_of(p, c, side, key);
  if (linear_each(p)) {
    linear_scores_each(p, c, side, key, strict, to);
    return;
  }
  zk_product<4, false, false>(
      *c.tiles, c.m, c.m, p.K, [&](int t, int k) { return linear_x(p, c, side, t, k); },
      [&](int k, int j) { return linear_y(p, c, key, j, k); }, [](int, int) { return 0.0f; },
      [&](int t, int j, float x) {
        to[t * c.m + j] = linear_sees(t, j, strict) ? x * linear_mask(p, c, t, j) : 0;
      });
}

/* dx and dy grow by what the cotangent dA of scores gives, feature by feature. */
ZK_DEVICE void linear_scores_grad_each(const Linear &p, const Chunk &c, int side, int key) {
  int m = c.m, size = p.K;
  bool strict = side > 0;
  float *dx = c.dx + (long long)side * p.C * size, *dy = c.dy + (long long)key * p.C * size;
  const float *dA = c.dA;
  for (int r = 0; r < m; r += LINEAR_TILE) {
    int n = min(LINEAR_TILE, m - r), ref = r - 1;
    for (int u = (int)threadIdx.x; u < n * size; u += ZKC_TEAM) {
      int t = r + u / size, k = u % size;
      float x = 0, y = 0;
      for (int o = r; o < r + n; o++) {
        if (linear_sees(t, o, strict))
          x += dA[t * m + o] * linear_between(p, c, o, t, k) * linear_y(p, c, key, o, k);
        if (linear_sees(o, t, strict))
          y += dA[o * m + t] * linear_between(p, c, t, o, k) * linear_x(p, c, side, o, k);
      }
      dx[t * size + k] += x;
      dy[t * size + k] += y;
    }
    __syncthreads();
    zk_product<1, false, true>(
        *c.tiles, r ? n : 0, size, r, [&](int t, int o) { return dA[(r + t) * m + o]; },
        [&](int o, int k) { return linear_y(p, c, key, o, k) * linear_between(p, c, o, ref, k); },
        [](int, int) { return 0.0f; },
        [&](int t, int k, float x) { dx[(r + t) * size + k] += x * linear_between(p, c, ref, r + t, k); });
    zk_product<4, true, true>(
        *c.tiles, r, size, n, [&](int o, int t) { return dA[(r + t) * m + o]; },
        [&](int t, int k) { return linear_x(p, c, side, r + t, k) * linear_between(p, c, ref, r + t, k); },
        [](int, int) { return 0.0f; },
        [&](int o, int k, float x) { dy[o * size + k] += x * linear_between(p, c, o, ref, k); });
  }
}

ZK_DEVICE void linear_scores_grad(const Linear &p, const Chunk &c, int side, int key) {
  int m = c.m, size = p.K;
  bool strict = side > 0;
  float *dx = c.dx + (long long)side * p.C * size, *dy = c.dy + (long long)key * p.C * size, *dA = c.dA;
  zk_product<4, false, false>(
      *c.tiles, m, m, p.V, [&](int t, int v) { return linear_d(p, c, side, t, v); },
      [&](int v, int j) { return linear_w(p, c, key, j, v); }, [](int, int) { return 0.0f; },
      [&](int t, int j, float x) {
        dA[t * m + j] = linear_sees(t, j, strict) ? x * linear_mask(p, c, t, j) : 0;
      });
  if (linear_each(p)) {
    linear_scores_grad_each(p, c, side, key);
    return;
  }
  zk_product<4, false, true>(
      *c.tiles, m, size, m, [&](int t, int j) { return dA[t * m + j]; },
      [&](int j, int k) { return linear_y(p, c, key, j, k); }, [&](int t, int k) { return dx[t * size + k]; },
      [&](int t, int k, float x) { dx[t * size + k] = x; });
  zk_product<4, true, true>(
      *c.tiles, m, size, m, [&](int j, int t) { return dA[t * m + j]; },
      [&](int t, int k) { return linear_x(p, c, side, t, k); },
      [&](int j, int k) { return dy[j * size + k]; }, [&](int j, int k, float x) { dy[j * size + k] = x; });
}

/* X becomes (I - L)^-1 X; back: (I - L^T)^-1 X. By substitution, a tile of tokens at a time. */
ZK_DEVICE void linear_solve(const Linear &p, const Chunk &c, const float *L, float *X, bool back) {
  int m = c.m, size = p.V, tiles = (m + LINEAR_TILE - 1) / LINEAR_TILE;
  for (int b = 0; b < tiles; b++) {
    int from = (back ? tiles - 1 - b : b) * LINEAR_TILE, to = min(from + LINEAR_TILE, m), n = to - from;
    int done = back ? to : 0; /* what is solved begins here */
    zk_product<1, false, true>(
        *c.tiles, n, size, back ? m - to : from,
        [&](int i, int s) { return back ? L[(done + s) * m + from + i] : L[(from + i) * m + s]; },
        [&](int s, int v) { return X[(done + s) * size + v]; },
        [&](int i, int v) { return X[(from + i) * size + v]; },
        [&](int i, int v, float x) { X[(from + i) * size + v] = x; });
    for (int v = (int)threadIdx.x; v < size; v += ZKC_TEAM)
      for (int i = 1; i < n; i++) {
        int t = back ? to - 1 - i : from + i;
        float x = X[t * size + v];
        for (int j = back ? t + 1 : from; j < (back ? to : t); j++)
          x += (back ? L[j * m + t] : L[t * m + j]) * X[j * size + v];
        X[t * size + v] = x;
      }
    __syncthreads();
  }
}

/* ---- forward ------------------------------------------------------------------------------------------- */
/* u, of the state S at the start. */
ZK_DEVICE void linear_feed(const Linear &p, const Chunk &c, const float *S) {
  for (int j = 0; j < p.keys; j++) linear_scores(p, c, 1, j);
  const float *second = linear_scores_of(p, c, 1, 1);
  zk_product<4, false, true>(
      *c.tiles, c.m, p.V, p.K + (p.keys > 1 ? c.m : 0),
      [&](int t, int s) {
        return s < p.K ? linear_x(p, c, 1, t, s) * linear_decay(p, c.up, t, s) : second[t * c.m + s - p.K];
      },
      [&](int s, int v) { return s < p.K ? S[s * p.V + v] : linear_at(p, c, V2, s - p.K, v); },
      [&](int t, int v) { return linear_at(p, c, V, t, v); },
      [&](int t, int v, float x) { c.u[t * p.V + v] = x; });
  linear_solve(p, c, linear_scores_of(p, c, 1, 0), c.u, false);
}

/* The result. */
ZK_DEVICE void linear_query(const Linear &p, const Chunk &c, const float *S) {
  int m = c.m;
  for (int j = 0; j < p.keys; j++) linear_scores(p, c, 0, j);
  zk_product<4, false, true>(
      *c.tiles, m, p.V, p.K + p.keys * m,
      [&](int t, int s) {
        if (s < p.K) return linear_x(p, c, 0, t, s) * linear_decay(p, c.up, t, s);
        int key = s - p.K >= m;
        return linear_scores_of(p, c, 0, key)[t * m + s - p.K - key * m];
      },
      [&](int s, int v) {
        int key = s - p.K >= m;
        return s < p.K ? S[s * p.V + v] : linear_w(p, c, key, s - p.K - key * m, v);
      },
      [](int, int) { return 0.0f; },
      [&](int t, int v, float x) {
        zk_store(p.data[O], p.elem[O], c.off[O] + (long long)(c.from + t) * p.token[O] + v * p.feature[O], x);
      });
}

/* The state behind the chunk, of that before it; both may be one. */
ZK_DEVICE void linear_advance(const Linear &p, const Chunk &c, const float *S, float *to) {
  int m = c.m;
  zk_product<4, true, true>(
      *c.tiles, p.K, p.V, p.keys * m,
      [&](int k, int s) {
        int key = s >= m, t = s - key * m;
        return linear_y(p, c, key, t, k) * linear_decay(p, c.down, t, k);
      },
      [&](int s, int v) { return linear_w(p, c, s >= m, s - (s >= m) * m, v); },
      [&](int k, int v) { return S[k * p.V + v] * linear_decay(p, c.up, m - 1, k); },
      [&](int k, int v, float x) { to[k * p.V + v] = x; });
}

/* ---- backward ------------------------------------------------------------------------------------------ */
/* Gradients of what is written with keys. */
ZK_DEVICE void linear_back_values(const Linear &p, const Chunk &c) {
  int m = c.m;
  for (int j = 0; j < p.keys; j++) {
    const float *scores = linear_scores_of(p, c, 0, j);
    float *dw = c.dw + (long long)j * p.C * p.V;
    zk_product<4, true, true>(
        *c.tiles, m, p.V, m + p.K,
        [&](int t, int s) {
          return s < m ? scores[s * m + t] : linear_y(p, c, j, t, s - m) * linear_decay(p, c.down, t, s - m);
        },
        [&](int s, int v) { return s < m ? linear_at(p, c, O, s, v) : c.dS[(s - m) * p.V + v]; },
        [](int, int) { return 0.0f; }, [&](int t, int v, float x) { dw[t * p.V + v] = x; });
  }
  if (p.sides == 1) return;
  linear_solve(p, c, linear_scores_of(p, c, 1, 0), c.dw, true);
  if (p.keys == 1) return;
  const float *scores = linear_scores_of(p, c, 1, 1);
  float *dw = c.dw + (long long)p.C * p.V;
  zk_product<4, true, true>(
      *c.tiles, m, p.V, m, [&](int t, int s) { return scores[s * m + t]; },
      [&](int s, int v) { return c.dw[s * p.V + v]; }, [&](int t, int v) { return dw[t * p.V + v]; },
      [&](int t, int v, float x) { dw[t * p.V + v] = x; });
}

/* Of sides and keys: through the state, then through scores. */
ZK_DEVICE void linear_back_features(const Linear &p, const Chunk &c, const float *S) {
  for (int s = 0; s < p.sides; s++) {
    float *dx = c.dx + (long long)s * p.C * p.K;
    zk_product<4, false, false>(
        *c.tiles, c.m, p.K, p.V, [&](int t, int v) { return linear_d(p, c, s, t, v); },
        [&](int v, int k) { return S[k * p.V + v]; }, [](int, int) { return 0.0f; },
        [&](int t, int k, float x) { dx[t * p.K + k] = x * linear_decay(p, c.up, t, k); });
  }
  for (int j = 0; j < p.keys; j++) {
    float *dy = c.dy + (long long)j * p.C * p.K;
    zk_product<4, false, false>(
        *c.tiles, c.m, p.K, p.V, [&](int t, int v) { return linear_w(p, c, j, t, v); },
        [&](int v, int k) { return c.dS[k * p.V + v]; }, [](int, int) { return 0.0f; },
        [&](int t, int k, float x) { dy[t * p.K + k] = x * linear_decay(p, c.down, t, k); });
  }
  for (int s = 0; s < p.sides; s++)
    for (int j = 0; j < p.keys; j++) linear_scores_grad(p, c, s, j);
}

/* x dx of all sides, less y dy of all keys. */
ZK_DEVICE double linear_weight(const Linear &p, const Chunk &c, int t, int k) {
  double d = 0;
  for (int s = 0; s < p.sides; s++)
    d += (double)linear_x(p, c, s, t, k) * c.dx[((long long)s * p.C + t) * p.K + k];
  for (int j = 0; j < p.keys; j++)
    d -= (double)linear_y(p, c, j, t, k) * c.dy[((long long)j * p.C + t) * p.K + k];
  return d;
}

/* Gradients of the tokens' decays. ends: the state behind the chunk; NULL where its cotangent is 0. */
ZK_DEVICE void linear_back_decays(const Linear &p, const Chunk &c, const float *ends) {
  int m = c.m, lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32, size = p.K * p.V;
  if (!p.D) return;
  if (p.D > 1) {
    for (int u = (int)threadIdx.x; u < m * p.D; u += ZKC_TEAM)
      c.dG[u] = linear_weight(p, c, u / p.D, u % p.D);
    __syncthreads();
    for (int k = warp; ends && k < p.K; k += ZKC_TEAM / 32) {
      double d = 0;
      for (int v = lane; v < p.V; v += 32) d += (double)ends[k * p.V + v] * c.dS[k * p.V + v];
      d = zk_warp(d, ZkSum());
      if (lane == 0) c.dG[(m - 1) * p.D + k] += d;
    }
  } else {
    for (int t = warp; t < m; t += ZKC_TEAM / 32) {
      double d = 0;
      for (int k = lane; k < p.K; k += 32) d += linear_weight(p, c, t, k);
      d = zk_warp(d, ZkSum());
      if (lane == 0) c.dG[t] = d;
    }
    double d = 0;
    for (int u = (int)threadIdx.x; ends && u < size; u += ZKC_TEAM) d += (double)ends[u] * c.dS[u];
    d = zk_block<ZKC_TEAM>(d, ZkSum(), c.part);
    if (threadIdx.x == 0) c.dG[m - 1] += d;
  }
  linear_run(c.dG, m, p.D, true);
}

/* The cotangent of the state before the chunk. */
ZK_DEVICE void linear_retreat(const Linear &p, const Chunk &c) {
  int m = c.m;
  zk_product<4, true, true>(
      *c.tiles, p.K, p.V, p.sides * m,
      [&](int k, int s) {
        int side = s >= m, t = s - side * m;
        return linear_x(p, c, side, t, k) * linear_decay(p, c.up, t, k);
      },
      [&](int s, int v) { return linear_d(p, c, s >= m, s - (s >= m) * m, v); },
      [&](int k, int v) { return c.dS[k * p.V + v] * linear_decay(p, c.up, m - 1, k); },
      [&](int k, int v, float x) { c.dS[k * p.V + v] = x; });
}

ZK_DEVICE void linear_backward(const Linear &p, const Chunk &c, const float *S, const float *ends) {
  if (p.sides > 1) linear_feed(p, c, S);
  for (int j = 0; j < p.keys; j++) linear_scores(p, c, 0, j);
  linear_back_values(p, c);
  linear_back_features(p, c, S);
  linear_back_decays(p, c, ends);
  linear_retreat(p, c);
}

#endif
