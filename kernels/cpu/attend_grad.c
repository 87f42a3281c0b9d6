/* attend_grad: recomputes the probabilities of a tile from q, k and the saved log sums, p = exp(scale q
 * k' - l), and with dp = g v', D = sum_w g o, ds = scale p (dp - D):  dv += p' g,  dk += ds' q,  dq +=
 * ds k. A cap's slope is one more factor of ds.
 *
 * With enough heads a task is a head: all of its tiles once, dk and dv of the whole head in scratch.
 * With fewer heads than threads want, tasks are tiles of queries (for dq) and tiles of keys (for dk,
 * dv), which computes p and dp twice. Both orders add the same tiles in the same order, so that the
 * result is the same. */
#include "kernels/cpu/attend.h"
#include "kernels/cpu/fgemm.h"

typedef struct {
  float *p, *dp, *slope; /* tiles [queries, keys]; slope: where there is a cap */
  float *q, *g, *o, *dq; /* tiles [queries, features] */
  float *k;              /* tile [keys, features] */
  float *dk, *dv;        /* [keys, features]: of a head */
  ZkHalf *half;          /* instead of q, k, kt and vt */
  float *kt, *vt;        /* [features, ldt]: columns [from, to) of a head's keys and values, transposed */
  int64_t head, from, to;
  float l[ZK_TILE_Q], d[ZK_TILE_Q];
} Tiles;

static size_t tile_floats(const ZkAttend *a) {
  int64_t both = a->H + a->W, wide = zk_max(a->H, a->W), tiles = a->cap > 0 ? 3 : 2;
  return (size_t)(tiles * ZK_TILE_Q * ZK_TILE_K + 2 * ZK_TILE_Q * both + ZK_TILE_K * wide +
                  (a->K + zk_attend_ldt(a->K)) * both);
}

static size_t f32_bytes(const ZkAttend *a) { return zb_round_up(tile_floats(a) * sizeof(float), 64); }
static ZkHalfSize half_size(const ZkAttend *a) { return (ZkHalfSize){a->K, a->H, a->W, true}; }

static Tiles tiles_in(const ZkAttend *a, int part) {
  int64_t K = a->K, H = a->H, W = a->W;
  char *mem = a->scratch + a->per_thread * (size_t)part;
  Tiles t = {.p = (float *)mem, .head = -1};
  if (a->half) t.half = zk_half_new(mem + f32_bytes(a), half_size(a));
  t.dp = t.p + ZK_TILE_Q * ZK_TILE_K;
  t.q = t.dp + ZK_TILE_Q * ZK_TILE_K;
  if (a->cap > 0) {
    t.slope = t.q;
    t.q += ZK_TILE_Q * ZK_TILE_K;
  }
  t.g = t.q + ZK_TILE_Q * H;
  t.o = t.g + ZK_TILE_Q * W;
  t.dq = t.o + ZK_TILE_Q * W;
  t.k = t.dq + ZK_TILE_Q * H;
  t.dk = t.k + ZK_TILE_K * zk_max(H, W);
  t.dv = t.dk + K * H;
  t.kt = t.dv + K * W;
  t.vt = t.kt + zk_attend_ldt(K) * H;
  return t;
}

/* Has columns [from, to) of the head's transposes; what is there of the same head is kept. */
static void need_keys(const ZkAttend *a, Tiles *t, const int64_t *off, int64_t head, int64_t from,
                      int64_t to) {
  to = zk_min(a->K, (int64_t)zb_round_up((size_t)to, ZK_GRAIN));
  if (head != t->head || from < t->from || from > t->to) {
    t->head = head;
    t->from = t->to = from;
  }
  if (to <= t->to) return;
  if (t->half) {
    zk_half_keys(t->half, a, off, t->to, to);
  } else {
    zk_attend_transpose(a, ZK_AK, off[ZK_AK], t->to, to, t->kt, t->k);
    zk_attend_transpose(a, ZK_AV, off[ZK_AV], t->to, to, t->vt, t->k);
  }
  t->to = to;
}

/* The rows of a tile of queries, where they lie or gathered. */
typedef struct {
  const float *q, *g;
  int ldq, ldg;
  int64_t q0, n;
} Queries;

static Queries load_queries(const ZkAttend *a, Tiles *t, const int64_t *off, int64_t q0) {
  Queries r = {.q0 = q0, .n = zk_min(ZK_TILE_Q, a->Q - q0)};
  int ldo;
  if (t->half) zk_half_queries(t->half, a, off, q0, r.n);
  else r.q = zk_attend_rows(a, ZK_AQ, off[ZK_AQ], q0, r.n, t->q, &r.ldq);
  r.g = zk_attend_rows(a, ZK_AG, off[ZK_AG], q0, r.n, t->g, &r.ldg);
  const float *o = zk_attend_rows(a, ZK_AO, off[ZK_AO], q0, r.n, t->o, &ldo);
  for (int64_t i = 0; i < r.n; i++) {
    t->d[i] = zk_run_dot(r.g + i * r.ldg, o + i * ldo, a->W);
    t->l[i] = zk_get(&a->v[ZK_AL], off[ZK_AL] + (q0 + i) * a->ss[ZK_AL]);
  }
  return r;
}

/* p and ds (in t->dp) of queries r and keys [k0, k0 + nk). */
static void probabilities(const ZkAttend *a, Tiles *t, const int64_t *off, const Queries *r, int64_t k0,
                          int64_t nk) {
  int64_t ldt = zk_attend_ldt(a->K), ld = zk_attend_ld(nk);
  if (t->half) {
    zk_half_scores(t->half, r->n, k0, nk, t->p, ld);
    zk_half_dscores(t->half, r->n, k0, nk, t->dp, ld);
  } else {
    zk_fgemm(false, r->n, nk, a->H, r->q, r->ldq, t->kt + k0, ldt, false, t->p, ld);
    zk_fgemm(false, r->n, nk, a->W, r->g, r->ldg, t->vt + k0, ldt, false, t->dp, ld);
  }
  if (a->dressed) zk_attend_dress(a, off, r->q0, k0, t->p, t->slope, r->n, nk, ld);
  ZkScoreGrad grad = {
      zk_attend_mask(a, off), r->q0 + a->ahead, k0, a->dressed ? 1 : a->scale, a->scale, t->l, t->d};
  zk_attend_score_grad(&grad, t->p, t->dp, r->n, nk, ld);
  if (t->slope) zk_attend_slope(a, off, r->q0, k0, t->dp, t->slope, r->n, nk, ld);
}

/* What a tile of queries and keys adds: dq onto t->dq (`first`: to it) if `want_q`, dk and dv onto rows
 * k0.. of t->dk, t->dv if `want_k`. */
static void tile(const ZkAttend *a, Tiles *t, const int64_t *off, const Queries *r, ZgSeen keys, bool want_q,
                 bool want_k, bool first) {
  int64_t H = a->H, W = a->W, k0 = keys.from, nk = keys.to - k0, ld = zk_attend_ld(nk);
  probabilities(a, t, off, r, k0, nk);
  if (t->half) {
    zk_half_round(t->half, r->n, nk, t->p, t->dp, ld);
    if (want_k) zk_half_dkeys(t->half, r->n, nk, t->dk + k0 * H, t->dv + k0 * W);
    if (want_q) zk_half_dqueries(t->half, r->n, k0, nk, t->dq, !first);
    return;
  }
  if (want_k) {
    zk_fgemm(true, nk, W, r->n, t->p, ld, r->g, r->ldg, true, t->dv + k0 * W, W);
    zk_fgemm(true, nk, H, r->n, t->dp, ld, r->q, r->ldq, true, t->dk + k0 * H, H);
  }
  if (want_q) {
    int ldk;
    const float *k = zk_attend_rows(a, ZK_AK, off[ZK_AK], k0, nk, t->k, &ldk);
    zk_fgemm(false, r->n, H, nk, t->dp, ld, k, ldk, !first, t->dq, H);
  }
}

/* All keys for a tile of queries; stores dq. */
static void query_tile(const ZkAttend *a, Tiles *t, const int64_t *off, int64_t head, int64_t q0,
                       bool want_k) {
  Queries r = load_queries(a, t, off, q0);
  ZgSeen seen = zk_attend_reach(a, off, q0, r.n);
  bool first = true;
  need_keys(a, t, off, head, seen.from, seen.to);
  for (int64_t at = seen.from; at < seen.to;) {
    ZgSeen keys = zk_attend_tile(seen, at);
    at = keys.to;
    if (a->has[ZK_AIK]) keys = zk_attend_cut(a, off, q0, r.n, keys);
    if (keys.from >= keys.to) continue;
    tile(a, t, off, &r, keys, true, want_k, first);
    first = false;
  }
  if (first) zk_run_fill(t->dq, 0, r.n * a->H);
  zk_attend_store(a, ZK_ADQ, off[ZK_ADQ], q0, r.n, t->dq);
}

static void run_heads(void *arg, int64_t from, int64_t to, int part) {
  const ZkAttend *a = arg;
  Tiles t = tiles_in(a, part);
  for (int64_t head = from; head < to; head++) {
    int64_t off[ZK_ATTEND_VIEWS];
    zk_run_fill(t.dk, 0, a->K * (a->H + a->W));
    for (int64_t group = 0; group < a->ngroups; group++) {
      zk_attend_at(a, head, group, off);
      for (int64_t q = 0; q < a->qtiles; q++) query_tile(a, &t, off, head, q * ZK_TILE_Q, true);
    }
    zk_attend_store(a, ZK_ADK, off[ZK_ADK], 0, a->K, t.dk);
    zk_attend_store(a, ZK_ADV, off[ZK_ADV], 0, a->K, t.dv);
  }
}

static void run_queries(void *arg, int64_t from, int64_t to, int part) {
  const ZkAttend *a = arg;
  Tiles t = tiles_in(a, part);
  int64_t per = a->ngroups * a->qtiles;
  for (int64_t i = from; i < to; i++) {
    int64_t off[ZK_ATTEND_VIEWS], head = i / per;
    zk_attend_at(a, head, i % per / a->qtiles, off);
    query_tile(a, &t, off, head, i % a->qtiles * ZK_TILE_Q, false);
  }
}

/* Queries [from, to) that see any of keys [k0, k0 + n), from a multiple of ZK_TILE_Q. */
static ZgSeen seeing(const ZkAttend *a, ZgMask mask, int64_t k0, int64_t n) {
  k0 -= a->ahead;
  ZgSeen r = {mask.causal && k0 + a->ahead >= mask.prefix ? zk_max(0, k0) : 0, a->Q};
  if (mask.window) {
    r.from = zk_max(r.from, k0 - mask.window + 1);
    r.to = zk_min(a->Q, k0 + n - 1 + mask.window);
  }
  r.from = r.from / ZK_TILE_Q * ZK_TILE_Q;
  return r;
}

/* All groups and queries for a tile of keys; the same products as by heads, so the tile is cut to the
 * queries' reach here too. */
static void key_tile(const ZkAttend *a, Tiles *t, int64_t head, int64_t k0, int64_t n) {
  int64_t off[ZK_ATTEND_VIEWS];
  zk_run_fill(t->dk + k0 * a->H, 0, n * a->H);
  zk_run_fill(t->dv + k0 * a->W, 0, n * a->W);
  for (int64_t group = 0; group < a->ngroups; group++) {
    zk_attend_at(a, head, group, off);
    need_keys(a, t, off, head, k0, k0 + n);
    ZgSeen queries = seeing(a, zk_attend_mask(a, off), k0, n);
    for (int64_t q0 = queries.from; q0 < queries.to; q0 += ZK_TILE_Q) {
      int64_t nq = zk_min(ZK_TILE_Q, a->Q - q0);
      ZgSeen keys = zk_attend_tile(zk_attend_reach(a, off, q0, nq), k0);
      if (keys.from < keys.to && a->has[ZK_AIK]) keys = zk_attend_cut(a, off, q0, nq, keys);
      if (keys.from >= keys.to) continue;
      Queries r = load_queries(a, t, off, q0);
      tile(a, t, off, &r, keys, false, true, false);
    }
  }
  zk_attend_store(a, ZK_ADK, off[ZK_ADK], k0, n, t->dk + k0 * a->H);
  zk_attend_store(a, ZK_ADV, off[ZK_ADV], k0, n, t->dv + k0 * a->W);
}

static void run_keys(void *arg, int64_t from, int64_t to, int part) {
  const ZkAttend *a = arg;
  Tiles t = tiles_in(a, part);
  for (int64_t i = from; i < to; i++) {
    int64_t k0 = i / a->nheads * ZK_TILE_K;
    key_tile(a, &t, i % a->nheads, k0, zk_min(ZK_TILE_K, a->K - k0));
  }
}

static size_t per_thread(const ZkAttend *a) {
  return f32_bytes(a) + (a->v[ZK_AQ].elem == ZK_BF16 ? zk_half_bytes(half_size(a)) : 0);
}

void zk_cpu_attend_grad(const ZkEnv *env, const ZkCall *c) {
  ZkAttend a = zk_attend_new(c);
  a.half = zk_half_fits(&a);
  a.per_thread = per_thread(&a);
  int threads = zk_threads(env);
  if (threads == 1 || a.nheads >= 4 * threads || a.nheads % threads == 0) {
    zk_for(env, a.nheads, 1, run_heads, &a);
  } else {
    zk_for(env, a.nheads * a.ngroups * a.qtiles, 1, run_queries, &a);
    zk_for(env, a.nheads * a.ktiles, 1, run_keys, &a);
  }
}

size_t zk_scratch_attend_grad(const ZkCall *c, int threads) {
  ZkAttend a = zk_attend_new(c);
  return (size_t)threads * per_thread(&a);
}
