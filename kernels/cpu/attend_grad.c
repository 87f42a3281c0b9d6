/* attend_grad: recomputes the probabilities of a tile from q, k and the saved log sums, p = exp(scale q
 * k' - l), and with dp = g v', D = sum_h g o, ds = scale p (dp - D):  dv += p' g,  dk += ds' q,  dq +=
 * ds k.
 *
 * With enough heads a task is a head: all of its tiles once, dk and dv of the whole head in scratch.
 * With fewer heads than threads want, tasks are tiles of queries (for dq) and tiles of keys (for dk,
 * dv), which computes p and dp twice. Both orders add the same tiles in the same order, so that the
 * result is the same. */
#include "kernels/cpu/attend.h"

typedef struct {
  float *p, *dp;         /* tiles [queries, keys] */
  float *q, *g, *o, *dq; /* tiles [queries, H] */
  float *k;              /* tile [keys, H] */
  float *dk, *dv;        /* [S, H]: of a head */
  ZkHalf *half;          /* instead of q, k, kt and vt */
  float *kt, *vt;        /* [H, ldt]: columns [from, to) of a head's keys and values, transposed */
  int64_t head, from, to;
  float l[ZK_TILE_Q], d[ZK_TILE_Q];
} Tiles;

static size_t tile_floats(int64_t S, int64_t H) {
  return (size_t)(2 * ZK_TILE_Q * ZK_TILE_K + 4 * ZK_TILE_Q * H + ZK_TILE_K * H +
                  (2 * S + 2 * zk_attend_ldt(S)) * H);
}

static size_t f32_bytes(int64_t S, int64_t H) { return zb_round_up(tile_floats(S, H) * sizeof(float), 64); }

static Tiles tiles_in(const ZkAttend *a, int part) {
  int64_t S = a->S, H = a->H;
  char *mem = a->scratch + a->per_thread * (size_t)part;
  Tiles t = {.p = (float *)mem, .head = -1};
  if (a->half) t.half = zk_half_new(mem + f32_bytes(S, H), S, H, true);
  t.dp = t.p + ZK_TILE_Q * ZK_TILE_K;
  t.q = t.dp + ZK_TILE_Q * ZK_TILE_K;
  t.g = t.q + ZK_TILE_Q * H;
  t.o = t.g + ZK_TILE_Q * H;
  t.dq = t.o + ZK_TILE_Q * H;
  t.k = t.dq + ZK_TILE_Q * H;
  t.dk = t.k + ZK_TILE_K * H;
  t.dv = t.dk + S * H;
  t.kt = t.dv + S * H;
  t.vt = t.kt + zk_attend_ldt(S) * H;
  return t;
}

/* Has columns [from, to) of the head's transposes; what is there of the same head is kept. */
static void need_keys(const ZkAttend *a, Tiles *t, const int64_t *off, int64_t head, int64_t from,
                      int64_t to) {
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
  Queries r = {.q0 = q0, .n = zk_min(ZK_TILE_Q, a->S - q0)};
  int ldo;
  if (t->half) zk_half_queries(t->half, a, off, q0, r.n);
  else r.q = zk_attend_rows(a, ZK_AQ, off[ZK_AQ], q0, r.n, t->q, &r.ldq);
  r.g = zk_attend_rows(a, ZK_AG, off[ZK_AG], q0, r.n, t->g, &r.ldg);
  const float *o = zk_attend_rows(a, ZK_AO, off[ZK_AO], q0, r.n, t->o, &ldo);
  for (int64_t i = 0; i < r.n; i++) {
    t->d[i] = zk_run_dot(r.g + i * r.ldg, o + i * ldo, a->H);
    t->l[i] = zk_get(&a->v[ZK_AL], off[ZK_AL] + (q0 + i) * a->ss[ZK_AL]);
  }
  return r;
}

/* p and ds (in t->dp) of queries r and keys [k0, k0 + nk), and what they add: dq into t->dq if `want_q`,
 * dk and dv into rows k0.. of t->dk, t->dv if `want_k`. */
static void tile(const ZkAttend *a, Tiles *t, const int64_t *off, const Queries *r, int64_t k0, int64_t nk,
                 bool want_q, bool want_k) {
  int64_t H = a->H;
  int64_t ldt = zk_attend_ldt(a->S), ld = zk_attend_ld(nk);
  ZkScoreGrad grad = {a->causal, r->q0, k0, a->scale, t->l, t->d};
  if (t->half) {
    zk_half_scores(t->half, r->n, k0, nk, t->p, ld);
    zk_half_dscores(t->half, r->n, k0, nk, t->dp, ld);
  } else {
    zk_sgemm(false, false, r->n, nk, H, 1, r->q, r->ldq, t->kt + k0, ldt, 0, t->p, ld);
    zk_sgemm(false, false, r->n, nk, H, 1, r->g, r->ldg, t->vt + k0, ldt, 0, t->dp, ld);
  }
  zk_attend_score_grad(&grad, t->p, t->dp, r->n, nk, ld);
  if (t->half) {
    zk_half_round(t->half, r->n, nk, t->p, t->dp, ld);
    if (want_k) zk_half_dkeys(t->half, r->n, nk, t->dk + k0 * H, t->dv + k0 * H);
    if (want_q) zk_half_dqueries(t->half, r->n, k0, nk, t->dq);
    return;
  }
  if (want_k) {
    zk_sgemm(true, false, nk, H, r->n, 1, t->p, ld, r->g, r->ldg, 1, t->dv + k0 * H, H);
    zk_sgemm(true, false, nk, H, r->n, 1, t->dp, ld, r->q, r->ldq, 1, t->dk + k0 * H, H);
  }
  if (want_q) {
    int ldk;
    const float *k = zk_attend_rows(a, ZK_AK, off[ZK_AK], k0, nk, t->k, &ldk);
    zk_sgemm(false, false, r->n, H, nk, 1, t->dp, ld, k, ldk, k0 > 0, t->dq, H);
  }
}

/* All keys for a tile of queries; stores dq. */
static void query_tile(const ZkAttend *a, Tiles *t, const int64_t *off, int64_t head, int64_t q0,
                       bool want_k) {
  Queries r = load_queries(a, t, off, q0);
  int64_t keys = zk_attend_keys(a, q0 + r.n);
  need_keys(a, t, off, head, 0, keys);
  for (int64_t k0 = 0; k0 < keys; k0 += ZK_TILE_K)
    tile(a, t, off, &r, k0, zk_min(ZK_TILE_K, keys - k0), true, want_k);
  zk_attend_store(a, ZK_ADQ, off[ZK_ADQ], q0, r.n, t->dq);
}

static void run_heads(void *arg, int64_t from, int64_t to, int part) {
  const ZkAttend *a = arg;
  Tiles t = tiles_in(a, part);
  for (int64_t head = from; head < to; head++) {
    int64_t off[ZK_ATTEND_VIEWS];
    zk_run_fill(t.dk, 0, 2 * a->S * a->H);
    for (int64_t group = 0; group < a->ngroups; group++) {
      zk_attend_at(a, head, group, off);
      for (int64_t q = 0; q < a->qtiles; q++) query_tile(a, &t, off, head, q * ZK_TILE_Q, true);
    }
    zk_attend_store(a, ZK_ADK, off[ZK_ADK], 0, a->S, t.dk);
    zk_attend_store(a, ZK_ADV, off[ZK_ADV], 0, a->S, t.dv);
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

/* All groups and queries for a tile of keys; the same products as by heads, so the tile's width follows
 * the queries' reach here too. */
static void run_keys(void *arg, int64_t from, int64_t to, int part) {
  const ZkAttend *a = arg;
  Tiles t = tiles_in(a, part);
  for (int64_t i = from; i < to; i++) {
    int64_t off[ZK_ATTEND_VIEWS], head = i % a->nheads;
    int64_t k0 = i / a->nheads * ZK_TILE_K, n = zk_min(ZK_TILE_K, a->S - k0);
    zk_run_fill(t.dk + k0 * a->H, 0, n * a->H);
    zk_run_fill(t.dv + k0 * a->H, 0, n * a->H);
    for (int64_t group = 0; group < a->ngroups; group++) {
      zk_attend_at(a, head, group, off);
      need_keys(a, &t, off, head, k0, k0 + n);
      for (int64_t q0 = a->causal ? k0 / ZK_TILE_Q * ZK_TILE_Q : 0; q0 < a->S; q0 += ZK_TILE_Q) {
        Queries r = load_queries(a, &t, off, q0);
        int64_t keys = zk_attend_keys(a, q0 + r.n);
        if (keys > k0) tile(a, &t, off, &r, k0, zk_min(n, keys - k0), false, true);
      }
    }
    zk_attend_store(a, ZK_ADK, off[ZK_ADK], k0, n, t.dk + k0 * a->H);
    zk_attend_store(a, ZK_ADV, off[ZK_ADV], k0, n, t.dv + k0 * a->H);
  }
}

static size_t per_thread(const ZkView *q, int64_t S, int64_t H) {
  return f32_bytes(S, H) + (q->elem == ZK_BF16 ? zk_half_bytes(S, H, true) : 0);
}

void zk_cpu_attend_grad(const ZkEnv *env, const ZkCall *c) {
  const ZkView *views[] = {&c->in[3], &c->in[4],  &c->in[5],  &c->in[1], &c->in[2],
                           &c->in[0], &c->out[0], &c->out[1], &c->out[2]};
  ZkAttend a = zk_attend_new(c, views, 9);
  a.half = zk_half_fits(&a);
  a.per_thread = per_thread(&c->in[3], a.S, a.H);
  int threads = zk_threads(env);
  if (threads == 1 || a.nheads >= 4 * threads || a.nheads % threads == 0) {
    zk_for(env, a.nheads, 1, run_heads, &a);
  } else {
    zk_for(env, a.nheads * a.ngroups * a.qtiles, 1, run_queries, &a);
    zk_for(env, a.nheads * a.ktiles, 1, run_keys, &a);
  }
}

size_t zk_scratch_attend_grad(const ZkCall *c, int threads) {
  const ZkView *q = &c->in[3];
  return (size_t)threads * per_thread(q, zk_axis_size(q, c->ax[0]), zk_axis_size(q, c->ax[1]));
}
