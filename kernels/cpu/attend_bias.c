/* attend_bias_grad: ds = p (dp - D) of every pair, summed over the axes that the bias lacks. It computes
 * the probabilities once more, rather than that threads add to one gradient: a task is a tile of queries
 * of one part of the bias (of keys, if it has no axis of queries), over all batches and heads that share
 * it. */
#include "kernels/cpu/attend.h"

typedef struct {
  const ZkAttend *a;
  ZkNest own, shared; /* heads and groups that the bias has, and lacks */
  int64_t nown, nshared;
  bool by_query; /* the bias has the axis of queries */
} Job;

typedef struct {
  float *p, *dp, *slope; /* tiles [queries, keys] */
  float *q, *g, *o;      /* tiles [queries, features] */
  float *k, *v;          /* tiles [keys, features] */
  float *sum;            /* [queries of a tile, keys], or [keys of a tile] */
} Tiles;

static int64_t sum_floats(const ZkAttend *a) { return zk_max(ZK_TILE_Q * a->K, ZK_TILE_K); }

static size_t per_thread(const ZkAttend *a) {
  int64_t floats = 3 * ZK_TILE_Q * ZK_TILE_K + ZK_TILE_Q * (a->H + 2 * a->W) + ZK_TILE_K * (a->H + a->W);
  return zb_round_up((size_t)(floats + sum_floats(a)) * sizeof(float), 64);
}

static Tiles tiles_in(const ZkAttend *a, int part) {
  Tiles t = {.p = (float *)(void *)(a->scratch + a->per_thread * (size_t)part)};
  t.dp = t.p + ZK_TILE_Q * ZK_TILE_K;
  t.slope = t.dp + ZK_TILE_Q * ZK_TILE_K;
  t.q = t.slope + ZK_TILE_Q * ZK_TILE_K;
  t.g = t.q + ZK_TILE_Q * a->H;
  t.o = t.g + ZK_TILE_Q * a->W;
  t.k = t.o + ZK_TILE_Q * a->W;
  t.v = t.k + ZK_TILE_K * a->H;
  t.sum = t.v + ZK_TILE_K * a->W;
  return t;
}

/* ds of queries [q0, q0 + nq) and `keys`, into t->dp. */
static void score_gradients(const ZkAttend *a, Tiles *t, const int64_t *off, int64_t q0, int64_t nq,
                            ZgSeen keys) {
  int ldq, ldg, ldo, ldk, ldv;
  int64_t k0 = keys.from, nk = keys.to - k0, ld = zk_attend_ld(nk);
  float l[ZK_TILE_Q], d[ZK_TILE_Q];
  const float *q = zk_attend_rows(a, ZK_AQ, off[ZK_AQ], q0, nq, t->q, &ldq);
  const float *g = zk_attend_rows(a, ZK_AG, off[ZK_AG], q0, nq, t->g, &ldg);
  const float *o = zk_attend_rows(a, ZK_AO, off[ZK_AO], q0, nq, t->o, &ldo);
  const float *k = zk_attend_rows(a, ZK_AK, off[ZK_AK], k0, nk, t->k, &ldk);
  const float *v = zk_attend_rows(a, ZK_AV, off[ZK_AV], k0, nk, t->v, &ldv);
  for (int64_t i = 0; i < nq; i++) {
    d[i] = zk_run_dot(g + i * ldg, o + i * ldo, a->W);
    l[i] = zk_get(&a->v[ZK_AL], off[ZK_AL] + (q0 + i) * a->ss[ZK_AL]);
  }
  zk_sgemm(false, true, nq, nk, a->H, 1, q, ldq, k, ldk, 0, t->p, ld);
  zk_sgemm(false, true, nq, nk, a->W, 1, g, ldg, v, ldv, 0, t->dp, ld);
  zk_attend_dress(a, off, q0, k0, t->p, NULL, nq, nk, ld);
  ZkScoreGrad grad = {zk_attend_mask(a, off), q0 + a->ahead, k0, 1, 1, l, d};
  zk_attend_score_grad(&grad, t->p, t->dp, nq, nk, ld);
}

/* Adds a tile of queries and keys, of which there are `pitch` in a row of t->sum, the first of them
 * `base`. */
static void add_tile(const Job *j, Tiles *t, const int64_t *off, int64_t q0, ZgSeen keys, int64_t base,
                     int64_t pitch) {
  const ZkAttend *a = j->a;
  int64_t nq = zk_min(ZK_TILE_Q, a->Q - q0);
  if (keys.from < keys.to && a->has[ZK_AIK]) keys = zk_attend_cut(a, off, q0, nq, keys);
  if (keys.from >= keys.to) return;
  int64_t nk = keys.to - keys.from;
  score_gradients(a, t, off, q0, nq, keys);
  for (int64_t i = 0; i < nq; i++)
    zk_run_add(t->sum + (j->by_query ? i * pitch : 0) + keys.from - base, t->dp + i * zk_attend_ld(nk), nk);
}

/* The offsets of part `own` of the bias and of number `shared` of those that share it. */
static void seek(const Job *j, int64_t own, int64_t shared, int64_t off[ZK_ATTEND_VIEWS]) {
  ZkWalk o, s;
  zk_walk_seek(&j->own, &o, own);
  zk_walk_seek(&j->shared, &s, shared);
  for (int i = 0; i < ZK_ATTEND_VIEWS; i++) off[i] = o.off[i] + s.off[i];
}

static void by_queries(const Job *j, Tiles *t, int64_t own, int64_t q0) {
  const ZkAttend *a = j->a;
  int64_t off[ZK_ATTEND_VIEWS], nq = zk_min(ZK_TILE_Q, a->Q - q0);
  zk_run_fill(t->sum, 0, nq * a->K);
  for (int64_t s = 0; s < j->nshared; s++) {
    seek(j, own, s, off);
    ZgSeen seen = zk_attend_reach(a, off, q0, nq);
    for (int64_t at = seen.from; at < seen.to;) {
      ZgSeen keys = zk_attend_tile(seen, at);
      at = keys.to;
      add_tile(j, t, off, q0, keys, 0, a->K);
    }
  }
  seek(j, own, 0, off);
  for (int64_t i = 0; i < nq; i++)
    zk_store(&a->v[ZK_ADB], off[ZK_ADB] + (q0 + i) * a->ss[ZK_ADB], a->hs[ZK_ADB], a->K, t->sum + i * a->K,
             a->on);
}

static void by_keys(const Job *j, Tiles *t, int64_t own, int64_t k0) {
  const ZkAttend *a = j->a;
  int64_t off[ZK_ATTEND_VIEWS], nk = zk_min(ZK_TILE_K, a->K - k0);
  zk_run_fill(t->sum, 0, nk);
  for (int64_t s = 0; s < j->nshared; s++) {
    seek(j, own, s, off);
    for (int64_t q0 = 0; q0 < a->Q; q0 += ZK_TILE_Q) {
      ZgSeen seen = zk_attend_reach(a, off, q0, zk_min(ZK_TILE_Q, a->Q - q0));
      add_tile(j, t, off, q0, zk_attend_tile(seen, k0), k0, 0);
    }
  }
  seek(j, own, 0, off);
  zk_store(&a->v[ZK_ADB], off[ZK_ADB] + k0 * a->hs[ZK_ADB], a->hs[ZK_ADB], nk, t->sum, a->on);
}

static void run(void *arg, int64_t from, int64_t to, int part) {
  const Job *j = arg;
  Tiles t = tiles_in(j->a, part);
  int64_t each = j->by_query ? j->a->qtiles : j->a->ktiles;
  for (int64_t i = from; i < to; i++) {
    if (j->by_query) by_queries(j, &t, i / each, i % each * ZK_TILE_Q);
    else by_keys(j, &t, i / each, i % each * ZK_TILE_K);
  }
}

/* The loops of heads and groups, apart by whether the bias has them. */
static void split(Job *j, const ZkNest *n) {
  for (int l = 0; l < n->nloops; l++) {
    ZkNest *to = n->loop[l].s[ZK_ADB] ? &j->own : &j->shared;
    to->loop[to->nloops++] = n->loop[l];
  }
}

void zk_cpu_attend_bias_grad(const ZkEnv *env, const ZkCall *c) {
  ZkAttend a = zk_attend_new(c);
  a.per_thread = per_thread(&a);
  Job j = {.a = &a, .by_query = a.ss[ZK_ADB] != 0};
  j.own.nviews = j.shared.nviews = ZK_ATTEND_VIEWS;
  split(&j, &a.heads);
  split(&j, &a.groups);
  j.nown = zk_nest_count(&j.own);
  j.nshared = zk_nest_count(&j.shared);
  zk_for(env, j.nown * (j.by_query ? a.qtiles : a.ktiles), 1, run, &j);
}

size_t zk_scratch_attend_bias_grad(const ZkCall *c, int threads) {
  ZkAttend a = zk_attend_new(c);
  return (size_t)threads * per_thread(&a);
}
