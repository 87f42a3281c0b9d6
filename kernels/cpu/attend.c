/* attend: softmax(scale q k') v in tiles of queries by keys, keeping for each query the peak and the sum
 * of exponentials so far and rescaling what was accumulated when the peak rises (Dao et al. 2022,
 * FlashAttention, section 3). A task is one tile of queries of one head and group; nothing of size seq x
 * seq exists. */
#include "kernels/cpu/attend.h"

#include <math.h>

ZkAttend zk_attend_new(const ZkCall *c, const ZkView *const *views, int nviews) {
  ZkAttend a = {.nviews = nviews, .scale = (float)c->num[0], .causal = c->opt[0] == 1, .scratch = c->scratch};
  uint16_t s = c->ax[0], h = c->ax[1];
  const ZkView *q = views[ZK_AQ], *k = views[ZK_AK];
  a.heads.nviews = a.groups.nviews = nviews;
  for (int i = 0; i < nviews; i++) {
    a.v[i] = *views[i];
    a.ss[i] = zk_axis_stride(views[i], s);
    a.hs[i] = zk_axis_stride(views[i], h);
  }
  for (int i = 0; i < q->rank; i++) {
    uint16_t axis = q->axis[i];
    if (axis == s || axis == h) continue;
    zk_nest_add(zk_axis_find(k, axis) >= 0 ? &a.heads : &a.groups, views, nviews, axis, q->size[i]);
  }
  zk_nest_merge(&a.heads);
  zk_nest_merge(&a.groups);
  a.nheads = zk_nest_count(&a.heads);
  a.ngroups = zk_nest_count(&a.groups);
  a.S = zk_axis_size(q, s);
  a.H = zk_axis_size(q, h);
  ZB_ASSERT(zk_axis_size(k, s) == a.S && zk_axis_size(k, h) == a.H);
  a.qtiles = zk_ceil_div(a.S, ZK_TILE_Q);
  a.ktiles = zk_ceil_div(a.S, ZK_TILE_K);
  return a;
}

void zk_attend_at(const ZkAttend *a, int64_t head, int64_t group, int64_t off[ZK_ATTEND_VIEWS]) {
  ZkWalk h, g;
  zk_walk_seek(&a->heads, &h, head);
  zk_walk_seek(&a->groups, &g, group);
  for (int i = 0; i < a->nviews; i++) off[i] = h.off[i] + g.off[i];
}

const float *zk_attend_rows(const ZkAttend *a, int k, int64_t off, int64_t from, int64_t n, float *buf,
                            int *ld) {
  const ZkView *v = &a->v[k];
  int64_t at = off + from * a->ss[k];
  if (v->elem == ZK_F32 && (a->hs[k] == 1 || a->H == 1) && a->ss[k] >= a->H) {
    *ld = (int)a->ss[k];
    return (const float *)v->data + at;
  }
  for (int64_t i = 0; i < n; i++) zk_load(buf + i * a->H, v, at + i * a->ss[k], a->hs[k], a->H);
  *ld = (int)a->H;
  return buf;
}

void zk_attend_transpose(const ZkAttend *a, int k, int64_t off, int64_t from, int64_t to, float *dst,
                         float *buf) {
  for (int64_t j = from, n; j < to; j += n) {
    int ld;
    n = zk_min(ZK_TILE_K, to - j);
    const float *rows = zk_attend_rows(a, k, off, j, n, buf, &ld);
    zk_transpose(dst + j, zk_attend_ldt(a->S), rows, ld, n, a->H);
  }
}

void zk_attend_store(const ZkAttend *a, int k, int64_t off, int64_t from, int64_t n, const float *rows) {
  for (int64_t i = 0; i < n; i++)
    zk_store(&a->v[k], off + (from + i) * a->ss[k], a->hs[k], a->H, rows + i * a->H, false);
}

/* ---- forward ------------------------------------------------------------------------------------------- */

typedef struct { /* of one thread */
  float *score, *q, *o, *v;
  ZkHalf *half; /* instead of q, v and kt */
  float *kt;    /* keys [0, keys) of head `head`, transposed: its next tile of queries finds them there */
  int64_t head, keys;
  float peak[ZK_TILE_Q], sum[ZK_TILE_Q];
} Tiles;

static size_t tile_floats(int64_t S, int64_t H) {
  return (size_t)(ZK_TILE_Q * ZK_TILE_K + (2 * ZK_TILE_Q + ZK_TILE_K + zk_attend_ldt(S)) * H);
}

static void tiles_in(Tiles *t, float *mem, int64_t H) {
  t->head = -1;
  t->keys = 0;
  t->score = mem;
  t->q = t->score + ZK_TILE_Q * ZK_TILE_K;
  t->o = t->q + ZK_TILE_Q * H;
  t->v = t->o + ZK_TILE_Q * H;
  t->kt = t->v + ZK_TILE_K * H;
}

static size_t f32_bytes(int64_t S, int64_t H) { return zb_round_up(tile_floats(S, H) * sizeof(float), 64); }

static void need_keys(const ZkAttend *a, Tiles *t, const int64_t *off, int64_t keys) {
  if (keys <= t->keys) return;
  if (t->half) zk_half_keys(t->half, a, off, t->keys, keys);
  else zk_attend_transpose(a, ZK_AK, off[ZK_AK], t->keys, keys, t->kt, t->v);
  t->keys = keys;
}

static void query_tile(const ZkAttend *a, Tiles *t, const int64_t *off, int64_t q0, int64_t nq) {
  int ldq = 0, ldv;
  int64_t keys = zk_attend_keys(a, q0 + nq), H = a->H;
  const float *q = NULL;
  need_keys(a, t, off, keys);
  if (t->half) zk_half_queries(t->half, a, off, q0, nq);
  else q = zk_attend_rows(a, ZK_AQ, off[ZK_AQ], q0, nq, t->q, &ldq);
  for (int64_t k0 = 0; k0 < keys; k0 += ZK_TILE_K) {
    int64_t nk = zk_min(ZK_TILE_K, keys - k0), ld = zk_attend_ld(nk);
    if (t->half) zk_half_scores(t->half, nq, k0, nk, t->score, ld);
    else zk_sgemm(false, false, nq, nk, H, 1, q, ldq, t->kt + k0, zk_attend_ldt(a->S), 0, t->score, ld);
    zk_attend_soften(&(ZkSoften){a->causal, q0, k0, H, a->scale, t->peak, t->sum, t->o}, t->score, nq, nk,
                     ld);
    if (t->half) {
      zk_half_output(t->half, nq, k0, nk, t->score, ld, t->o);
      continue;
    }
    const float *v = zk_attend_rows(a, ZK_AV, off[ZK_AV], k0, nk, t->v, &ldv);
    zk_sgemm(false, false, nq, H, nk, 1, t->score, ld, v, ldv, k0 > 0, t->o, H);
  }
  for (int64_t i = 0; i < nq; i++) {
    zk_run_scale(t->o + i * H, t->o + i * H, 1 / t->sum[i], H);
    zk_set(&a->v[ZK_AL], off[ZK_AL] + (q0 + i) * a->ss[ZK_AL], t->peak[i] + logf(t->sum[i]));
  }
  zk_attend_store(a, ZK_AO, off[ZK_AO], q0, nq, t->o);
}

static void run_tiles(void *arg, int64_t from, int64_t to, int part) {
  const ZkAttend *a = arg;
  Tiles t = {0};
  char *mem = a->scratch + a->per_thread * (size_t)part;
  tiles_in(&t, (float *)mem, a->H);
  if (a->half) t.half = zk_half_new(mem + f32_bytes(a->S, a->H), a->S, a->H, false);
  int64_t per = a->ngroups * a->qtiles;
  for (int64_t i = from; i < to; i++) {
    int64_t off[ZK_ATTEND_VIEWS], head = i / per, q0 = i % a->qtiles * ZK_TILE_Q;
    if (head != t.head) {
      t.head = head;
      t.keys = 0;
    }
    zk_attend_at(a, head, i % per / a->qtiles, off);
    query_tile(a, &t, off, q0, zk_min(ZK_TILE_Q, a->S - q0));
  }
}

static size_t per_thread(const ZkView *q, int64_t S, int64_t H) {
  return f32_bytes(S, H) + (q->elem == ZK_BF16 ? zk_half_bytes(S, H, false) : 0);
}

void zk_cpu_attend(const ZkEnv *env, const ZkCall *c) {
  const ZkView *views[] = {&c->in[0], &c->in[1], &c->in[2], &c->out[0], &c->out[1]};
  ZkAttend a = zk_attend_new(c, views, 5);
  a.half = zk_half_fits(&a);
  a.per_thread = per_thread(&c->in[0], a.S, a.H);
  zk_for(env, a.nheads * a.ngroups * a.qtiles, 1, run_tiles, &a);
}

size_t zk_scratch_attend(const ZkCall *c, int threads) {
  const ZkView *q = &c->in[0];
  return (size_t)threads * per_thread(q, zk_axis_size(q, c->ax[0]), zk_axis_size(q, c->ax[1]));
}
