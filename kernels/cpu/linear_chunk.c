/* One chunk of linear_attend, forward and backward (linear.h has the formulas). Backward makes the inside
 * again from the state at the start. */
#include "kernels/cpu/linear.h"
#include "kernels/cpu/math.h"

/* ---- memory -------------------------------------------------------------------------------------------- */
typedef struct {
  char *at; /* NULL while it is only counted */
  size_t bytes;
} Room;
static void *take(Room *r, int64_t n, size_t size) {
  void *p = r->at ? r->at + r->bytes : NULL;
  r->bytes += zb_round_up((size_t)n * size, 64);
  return p;
}
static float *floats(Room *r, int64_t n) { return take(r, n, sizeof(float)); }

static void place(ZkLinear *l, bool grad, Room *r) {
  int64_t C = l->C, K = l->K, V = l->V, wide = zk_max(K, V);
  bool vector = l->D == K && K > 1;
  for (int i = 0; i < 2; i++) {
    bool x = i < l->sides, y = i < l->keys;
    l->x[i] = floats(r, x * C * K), l->y[i] = floats(r, y * C * K), l->w[i] = floats(r, y * C * V);
    if (grad)
      l->dx[i] = floats(r, x * C * K), l->dy[i] = floats(r, y * C * K), l->dw[i] = floats(r, y * C * V);
    for (int j = 0; j < 2; j++) l->A[i][j] = floats(r, (x && j < l->keys) * C * C);
  }
  l->o = floats(r, C * V);
  l->S = floats(r, K * V);
  if (grad) l->dS = floats(r, K * V), l->dA = floats(r, C * C);
  l->G = take(r, C * l->D, sizeof(double));
  if (grad) l->dG = take(r, C * l->D, sizeof(double));
  l->up = floats(r, C * l->D), l->down = floats(r, C * l->D);
  l->mask = l->D && !vector ? floats(r, C * C) : NULL;
  l->t1 = floats(r, C * wide), l->t2 = floats(r, C * wide);
  for (int i = 0; i < 3; i++) l->tile[i] = floats(r, vector * C * K);
}

size_t zk_linear_bytes(const ZkLinear *l, bool grad) {
  ZkLinear of = *l;
  Room r = {0};
  place(&of, grad, &r);
  return r.bytes;
}

void zk_linear_place(ZkLinear *l, bool grad, void *memory) {
  Room r = {memory, 0};
  place(l, grad, &r);
}

/* ---- decays -------------------------------------------------------------------------------------------- */
#define RESET                                                                                                \
  (-100.0) /* exp of it is nothing beside 1 in f32; of an infinite log, differences would be NaN */

void zk_linear_decays(ZkLinear *l) {
  int64_t m = l->m, D = l->D;
  double *G = l->G;
  if (!D) return;
  for (int64_t t = 0; t < m; t++)
    for (int64_t k = 0; k < D; k++)
      G[t * D + k] = (G[t * D + k] < RESET ? RESET : G[t * D + k]) + (t ? G[(t - 1) * D + k] : 0);
  for (int64_t t = 0; t < m; t++)
    for (int64_t k = 0; k < D; k++) {
      l->up[t * D + k] = zk_exp((float)G[t * D + k]);
      l->down[t * D + k] = zk_exp((float)(G[(m - 1) * D + k] - G[t * D + k]));
    }
  if (l->mask)
    for (int64_t t = 0; t < m; t++)
      for (int64_t j = 0; j <= t; j++) l->mask[t * m + j] = zk_exp((float)(G[t] - G[j]));
}

/* Rows of x times their factors f: in `to`, or x itself where there are none. */
static const float *decayed(const ZkLinear *l, const float *x, const float *f, float *to) {
  if (!l->D) return x;
  for (int64_t t = 0; t < l->m; t++) {
    const float *row = x + t * l->K;
    if (l->D == 1) zk_run_scale(to + t * l->K, row, f[t], l->K);
    else
      for (int64_t k = 0; k < l->K; k++) to[t * l->K + k] = row[k] * f[t * l->K + k];
  }
  return to;
}

/* S times the decay of the whole chunk. */
static void decay_state(const ZkLinear *l, float *S) {
  const float *last = l->up + (l->m - 1) * l->D;
  for (int64_t k = 0; k < l->K && l->D; k++)
    zk_run_scale(S + k * l->V, S + k * l->V, last[l->D == 1 ? 0 : k], l->V);
}

/* ---- forward ------------------------------------------------------------------------------------------- */
static void feed(ZkLinear *l) {
  int64_t m = l->m, K = l->K, V = l->V;
  for (int j = 0; j < l->keys; j++) zk_linear_scores(l, l->x[ZK_LA], l->y[j], true, l->A[ZK_LA][j]);
  zk_sgemm(false, false, m, V, K, 1, decayed(l, l->x[ZK_LA], l->up, l->t1), K, l->S, V, 1, l->w[0], V);
  if (l->keys > 1) zk_sgemm(false, false, m, V, m, 1, l->A[ZK_LA][1], m, l->w[1], V, 1, l->w[0], V);
  zk_linear_solve(l, l->A[ZK_LA][0], l->w[0], false);
}

static void query(ZkLinear *l) {
  int64_t m = l->m, K = l->K, V = l->V;
  zk_sgemm(false, false, m, V, K, 1, decayed(l, l->x[ZK_LQ], l->up, l->t1), K, l->S, V, 0, l->o, V);
  for (int j = 0; j < l->keys; j++) {
    zk_linear_scores(l, l->x[ZK_LQ], l->y[j], false, l->A[ZK_LQ][j]);
    zk_sgemm(false, false, m, V, m, 1, l->A[ZK_LQ][j], m, l->w[j], V, 1, l->o, V);
  }
}

void zk_linear_forward(ZkLinear *l, bool state_only) {
  if (l->sides > 1) feed(l);
  if (!state_only) query(l);
  decay_state(l, l->S);
  for (int j = 0; j < l->keys; j++)
    zk_sgemm(true, false, l->K, l->V, l->m, 1, decayed(l, l->y[j], l->down, l->t1), l->K, l->w[j], l->V, 1,
             l->S, l->V);
}

/* ---- backward ------------------------------------------------------------------------------------------ */
/* to = (d T^T) f, with T [K][V]. */
static void through_state(const ZkLinear *l, const float *d, const float *T, const float *f, float *to) {
  zk_sgemm(false, true, l->m, l->K, l->V, 1, d, l->V, T, l->V, 0, to, l->K);
  const float *r = decayed(l, to, f, to);
  ZB_ASSERT(r == to);
}

static double sum_of_products(const float *a, const float *b, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; i++) sum += (double)a[i] * b[i];
  return sum;
}

/* G enters only as x exp(G_t) and y exp(-G_j): its gradient costs no product. Then that of each token's
 * decay. */
static void decay_grads(ZkLinear *l, const float *ends) {
  int64_t m = l->m, K = l->K, D = l->D, per = D ? K / D : 0; /* features of one decay */
  for (int64_t i = 0; i < m * D; i++) {
    double d = 0;
    for (int s = 0; s < l->sides; s++) d += sum_of_products(l->x[s] + i * per, l->dx[s] + i * per, per);
    for (int j = 0; j < l->keys; j++) d -= sum_of_products(l->y[j] + i * per, l->dy[j] + i * per, per);
    l->dG[i] = d;
  }
  for (int64_t k = 0; k < K && D && ends; k++)
    l->dG[(m - 1) * D + k / per] += sum_of_products(ends + k * l->V, l->dS + k * l->V, l->V);
  for (int64_t i = (m - 1) * D; i-- > 0;) l->dG[i] += l->dG[i + D];
}

void zk_linear_backward(ZkLinear *l, const float *ends) {
  int64_t m = l->m, K = l->K, V = l->V;
  if (l->sides > 1) feed(l);
  for (int j = 0; j < l->keys; j++) zk_linear_scores(l, l->x[ZK_LQ], l->y[j], false, l->A[ZK_LQ][j]);
  through_state(l, l->o, l->S, l->up, l->dx[ZK_LQ]);
  for (int j = 0; j < l->keys; j++) {
    zk_sgemm(true, false, m, V, m, 1, l->A[ZK_LQ][j], m, l->o, V, 0, l->dw[j], V);
    zk_sgemm(false, false, m, V, K, 1, decayed(l, l->y[j], l->down, l->t1), K, l->dS, V, 1, l->dw[j], V);
    through_state(l, l->w[j], l->dS, l->down, l->dy[j]);
  }
  if (l->sides > 1) { /* u = (I - L)^-1 r: dr = (I - L^T)^-1 du, dL = dr u^T */
    zk_linear_solve(l, l->A[ZK_LA][0], l->dw[0], true);
    if (l->keys > 1) zk_sgemm(true, false, m, V, m, 1, l->A[ZK_LA][1], m, l->dw[0], V, 1, l->dw[1], V);
    through_state(l, l->dw[0], l->S, l->up, l->dx[ZK_LA]);
  }
  for (int s = 0; s < l->sides; s++)
    for (int j = 0; j < l->keys; j++) {
      const float *d = s == ZK_LQ ? l->o : l->dw[0];
      zk_sgemm(false, true, m, m, V, 1, d, V, l->w[j], V, 0, l->dA, m);
      zk_linear_scores_grad(l, l->x[s], l->y[j], s == ZK_LA, l->dA, l->dx[s], l->dy[j]);
    }
  decay_grads(l, ends);
  decay_state(l, l->dS);
  zk_sgemm(true, false, K, V, m, 1, decayed(l, l->x[ZK_LQ], l->up, l->t1), K, l->o, V, 1, l->dS, V);
  if (l->sides > 1)
    zk_sgemm(true, false, K, V, m, 1, decayed(l, l->x[ZK_LA], l->up, l->t1), K, l->dw[0], V, 1, l->dS, V);
}
