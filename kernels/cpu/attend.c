/* attend: softmax(scale q k') v in tiles of queries by keys, keeping for each query the peak and the sum
 * of exponentials so far and rescaling what was accumulated when the peak rises (Dao et al. 2022,
 * FlashAttention, section 3). A task is one tile of queries of one head and group; nothing of size seq x
 * seq exists. */
#include "kernels/cpu/attend.h"
#include "kernels/cpu/fgemm.h"

#include <math.h>

/* The views of the call by their names here; NULL: it has none. */
static void find_views(const ZkCall *c, const ZkAttention *x, const ZkView *views[ZK_ATTEND_VIEWS]) {
  memset(views, 0, ZK_ATTEND_VIEWS * sizeof *views);
  views[ZK_AQ] = x->q, views[ZK_AK] = x->k, views[ZK_AV] = x->v;
  views[ZK_AIQ] = x->docs_q, views[ZK_AIK] = x->docs_k;
  views[ZK_AB] = x->bias, views[ZK_AS] = x->sink, views[ZK_AP] = x->prefix;
  if (c->op == ZG_OP_ATTEND) {
    views[ZK_AO] = &c->out[0], views[ZK_AL] = &c->out[1];
    return;
  }
  views[ZK_AG] = &c->in[0], views[ZK_AO] = &c->in[1], views[ZK_AL] = &c->in[2];
  if (c->op == ZG_OP_ATTEND_BIAS_GRAD) views[ZK_ADB] = &c->out[0];
  else views[ZK_ADQ] = &c->out[0], views[ZK_ADK] = &c->out[1], views[ZK_ADV] = &c->out[2];
}

static void lay_out(ZkAttend *a, const ZgAttendAxes *ax, const ZkView *const *views) {
  for (int i = 0; i < ZK_ATTEND_VIEWS; i++) {
    bool keys = i == ZK_AK || i == ZK_AV || i == ZK_ADK || i == ZK_ADV || i == ZK_AIK;
    bool bias = i == ZK_AB || i == ZK_ADB, wide = i == ZK_AV || i == ZK_AO || i == ZK_AG || i == ZK_ADV;
    a->v[i] = *views[i];
    a->ss[i] = bias && ax->q == ax->k ? 0 : zk_axis_stride(views[i], keys ? ax->k : ax->q);
    a->hs[i] = zk_axis_stride(views[i], bias ? ax->k : wide ? ax->w : ax->h);
    a->width[i] = wide ? a->W : a->H;
  }
  const ZkView *q = views[ZK_AQ];
  for (int i = 0; i < q->rank; i++) {
    uint16_t axis = q->axis[i];
    if (axis == ax->q || axis == ax->h) continue;
    bool shared = zk_axis_find(views[ZK_AK], axis) >= 0;
    zk_nest_add(shared ? &a->heads : &a->groups, views, ZK_ATTEND_VIEWS, axis, q->size[i]);
  }
}

/* Documents and biases may be there of more positions than queries and keys are. */
static void skip_elsewhere(ZkAttend *a, const ZkAttention *x) {
  static const int of[] = {ZK_AIQ, ZK_AIK, ZK_AB, ZK_ADB};
  int64_t query = zk_view_first(x->q, x->ax.q);
  for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
    ZkView *v = &a->v[of[i]];
    bool bias = of[i] == ZK_AB || of[i] == ZK_ADB, ids = of[i] == ZK_AIQ;
    int64_t by_key = ids ? 0 : zk_view_skip(v, x->ax.k, x->first) * (bias ? a->hs[of[i]] : a->ss[of[i]]);
    bool queries = ids || (bias && x->ax.q != x->ax.k);
    int64_t by_query = queries ? zk_view_skip(v, x->ax.q, query) * a->ss[of[i]] : 0;
    if (by_key + by_query) v->data = zk_at(v, by_key + by_query);
  }
}

ZkAttend zk_attend_new(const ZkCall *c) {
  static const ZkView none = {0};
  ZkAttention x = zk_attention(c);
  const ZkView *views[ZK_ATTEND_VIEWS];
  ZkAttend a = {.scale = (float)x.scale, .cap = (float)x.cap, .causal = x.causal, .window = x.window};
  a.scratch = c->scratch, a.grad = c->op != ZG_OP_ATTEND, a.on = c->accumulate;
  a.first = x.first, a.ahead = x.ahead;
  a.dressed = x.cap > 0 || x.bias || x.docs_k;
  a.Q = zk_axis_size(x.q, x.ax.q), a.H = zk_axis_size(x.q, x.ax.h);
  a.K = zk_axis_size(x.k, x.ax.k), a.W = zk_axis_size(x.v, x.ax.w);
  ZB_ASSERT(zk_axis_size(x.k, x.ax.h) == a.H && zk_axis_size(x.v, x.ax.k) == a.K);
  a.heads.nviews = a.groups.nviews = ZK_ATTEND_VIEWS;
  find_views(c, &x, views);
  for (int i = 0; i < ZK_ATTEND_VIEWS; i++) {
    a.has[i] = views[i] != NULL;
    if (!views[i]) views[i] = &none;
  }
  lay_out(&a, &x.ax, views);
  skip_elsewhere(&a, &x);
  zk_nest_merge(&a.heads);
  zk_nest_merge(&a.groups);
  a.nheads = zk_nest_count(&a.heads);
  a.ngroups = zk_nest_count(&a.groups);
  a.qtiles = zk_ceil_div(a.Q, ZK_TILE_Q);
  a.ktiles = zk_ceil_div(a.K, ZK_TILE_K);
  return a;
}

void zk_attend_at(const ZkAttend *a, int64_t head, int64_t group, int64_t off[ZK_ATTEND_VIEWS]) {
  ZkWalk h, g;
  zk_walk_seek(&a->heads, &h, head);
  zk_walk_seek(&a->groups, &g, group);
  for (int i = 0; i < ZK_ATTEND_VIEWS; i++) off[i] = h.off[i] + g.off[i];
}

const float *zk_attend_rows(const ZkAttend *a, int k, int64_t off, int64_t from, int64_t n, float *buf,
                            int *ld) {
  const ZkView *v = &a->v[k];
  int64_t at = off + from * a->ss[k], width = a->width[k];
  if (v->elem == ZK_F32 && (a->hs[k] == 1 || width == 1) && a->ss[k] >= width) {
    *ld = (int)a->ss[k];
    return (const float *)v->data + at;
  }
  for (int64_t i = 0; i < n; i++) zk_load(buf + i * width, v, at + i * a->ss[k], a->hs[k], width);
  *ld = (int)width;
  return buf;
}

void zk_attend_transpose(const ZkAttend *a, int k, int64_t off, int64_t from, int64_t to, float *dst,
                         float *buf) {
  for (int64_t j = from, n; j < to; j += n) {
    int ld;
    n = zk_min(ZK_TILE_K, to - j);
    const float *rows = zk_attend_rows(a, k, off, j, n, buf, &ld);
    zk_transpose(dst + j, zk_attend_ldt(a->K), rows, ld, n, a->width[k]);
  }
}

void zk_attend_store(const ZkAttend *a, int k, int64_t off, int64_t from, int64_t n, const float *rows) {
  int64_t width = a->width[k];
  for (int64_t i = 0; i < n; i++)
    zk_store(&a->v[k], off + (from + i) * a->ss[k], a->hs[k], width, rows + i * width, a->grad && a->on);
}

/* ---- forward ------------------------------------------------------------------------------------------- */

typedef struct { /* of one thread */
  float *score, *q, *o, *v;
  ZkHalf *half; /* instead of q, v and kt */
  float *kt;    /* keys [from, to) of head `head`, transposed: its next tile of queries finds them there */
  int64_t head, from, to;
  float peak[ZK_TILE_Q], sum[ZK_TILE_Q];
} Tiles;

/* Of `wide`, the wider of keys' and values' features: v's rows are keys' before they are transposed. */
static size_t tile_floats(int64_t K, int64_t H, int64_t W) {
  int64_t wide = zk_max(H, W);
  return (size_t)(ZK_TILE_Q * (ZK_TILE_K + H + W) + ZK_TILE_K * wide + zk_attend_ldt(K) * H);
}

static size_t f32_bytes(int64_t K, int64_t H, int64_t W) {
  return zb_round_up(tile_floats(K, H, W) * sizeof(float), 64);
}

static void tiles_in(Tiles *t, float *mem, const ZkAttend *a) {
  t->head = -1;
  t->score = mem;
  t->q = t->score + ZK_TILE_Q * ZK_TILE_K;
  t->o = t->q + ZK_TILE_Q * a->H;
  t->v = t->o + ZK_TILE_Q * a->W;
  t->kt = t->v + ZK_TILE_K * zk_max(a->H, a->W);
}

/* Has columns of the head's keys; what is there of the same head is kept. */
static void need_keys(const ZkAttend *a, Tiles *t, const int64_t *off, int64_t head, ZgSeen seen) {
  int64_t to = zk_min(a->K, (int64_t)zb_round_up((size_t)seen.to, ZK_GRAIN));
  if (head != t->head || seen.from < t->from || seen.from > t->to) {
    t->head = head;
    t->from = t->to = seen.from;
  }
  if (to <= t->to) return;
  if (t->half) zk_half_keys(t->half, a, off, t->to, to);
  else zk_attend_transpose(a, ZK_AK, off[ZK_AK], t->to, to, t->kt, t->v);
  t->to = to;
}

/* Before any key: nothing, or a sink, which is a key whose value is 0; or what is there of other keys, about
 * its log of the sum as the peak. */
static bool begin(const ZkAttend *a, Tiles *t, const int64_t *off, int64_t q0, int64_t nq) {
  for (int64_t i = 0; a->on && i < nq; i++) {
    t->peak[i] = zk_get(&a->v[ZK_AL], off[ZK_AL] + (q0 + i) * a->ss[ZK_AL]);
    t->sum[i] = 1;
    zk_load(t->o + i * a->W, &a->v[ZK_AO], off[ZK_AO] + (q0 + i) * a->ss[ZK_AO], a->hs[ZK_AO], a->W);
  }
  if (a->on) return false;
  if (!a->has[ZK_AS]) return true;
  float sink = zk_get(&a->v[ZK_AS], off[ZK_AS]);
  zk_run_fill(t->peak, sink, nq);
  zk_run_fill(t->sum, 1, nq);
  zk_run_fill(t->o, 0, nq * a->W);
  return false;
}

static void end(const ZkAttend *a, Tiles *t, const int64_t *off, int64_t q0, int64_t nq, bool nothing) {
  if (nothing) {
    zk_run_fill(t->peak, (float)ZK_ATTEND_LOW, nq);
    zk_run_fill(t->sum, 0, nq);
    zk_run_fill(t->o, 0, nq * a->W);
  }
  for (int64_t i = 0; i < nq; i++) {
    float sum = t->sum[i] > 0 ? t->sum[i] : 1;
    zk_run_scale(t->o + i * a->W, t->o + i * a->W, 1 / sum, a->W);
    zk_set(&a->v[ZK_AL], off[ZK_AL] + (q0 + i) * a->ss[ZK_AL], t->peak[i] + logf(sum));
  }
  zk_attend_store(a, ZK_AO, off[ZK_AO], q0, nq, t->o);
}

static void query_tile(const ZkAttend *a, Tiles *t, const int64_t *off, int64_t head, int64_t q0,
                       int64_t nq) {
  int ldq = 0, ldv;
  int64_t H = a->H, W = a->W;
  ZgMask mask = zk_attend_mask(a, off);
  ZgSeen seen = zk_attend_reach(a, off, q0, nq);
  const float *q = NULL;
  need_keys(a, t, off, head, seen);
  if (t->half) zk_half_queries(t->half, a, off, q0, nq);
  else q = zk_attend_rows(a, ZK_AQ, off[ZK_AQ], q0, nq, t->q, &ldq);
  bool first = begin(a, t, off, q0, nq);
  for (int64_t at = seen.from; at < seen.to;) {
    ZgSeen keys = zk_attend_tile(seen, at);
    at = keys.to;
    if (a->has[ZK_AIK]) keys = zk_attend_cut(a, off, q0, nq, keys);
    int64_t k0 = keys.from, nk = keys.to - k0, ld = zk_attend_ld(nk);
    if (nk <= 0) continue;
    if (t->half) zk_half_scores(t->half, nq, k0, nk, t->score, ld);
    else zk_fgemm(false, nq, nk, H, q, ldq, t->kt + k0, zk_attend_ldt(a->K), false, t->score, ld);
    if (a->dressed) zk_attend_dress(a, off, q0, k0, t->score, NULL, nq, nk, ld);
    ZkSoften soft = {mask, first, q0 + a->ahead, k0, W, a->dressed ? 1 : a->scale, t->peak, t->sum, t->o};
    zk_attend_soften(&soft, t->score, nq, nk, ld);
    if (t->half) {
      zk_half_output(t->half, nq, k0, nk, t->score, ld, t->o, !first);
    } else {
      const float *v = zk_attend_rows(a, ZK_AV, off[ZK_AV], k0, nk, t->v, &ldv);
      zk_fgemm(false, nq, W, nk, t->score, ld, v, ldv, !first, t->o, W);
    }
    first = false;
  }
  end(a, t, off, q0, nq, first);
}

static ZkHalfSize half_size(const ZkAttend *a) { return (ZkHalfSize){a->K, a->H, a->W, false}; }

static void run_tiles(void *arg, int64_t from, int64_t to, int part) {
  const ZkAttend *a = arg;
  Tiles t = {0};
  char *mem = a->scratch + a->per_thread * (size_t)part;
  tiles_in(&t, (float *)mem, a);
  if (a->half) t.half = zk_half_new(mem + f32_bytes(a->K, a->H, a->W), half_size(a));
  int64_t per = a->ngroups * a->qtiles;
  for (int64_t i = from; i < to; i++) {
    int64_t off[ZK_ATTEND_VIEWS], head = i / per, q0 = i % a->qtiles * ZK_TILE_Q;
    zk_attend_at(a, head, i % per / a->qtiles, off);
    query_tile(a, &t, off, head, q0, zk_min(ZK_TILE_Q, a->Q - q0));
  }
}

static size_t per_thread(const ZkAttend *a) {
  return f32_bytes(a->K, a->H, a->W) + (a->v[ZK_AQ].elem == ZK_BF16 ? zk_half_bytes(half_size(a)) : 0);
}

void zk_cpu_attend(const ZkEnv *env, const ZkCall *c) {
  ZkAttend a = zk_attend_new(c);
  a.half = zk_half_fits(&a);
  a.per_thread = per_thread(&a);
  zk_for(env, a.nheads * a.ngroups * a.qtiles, 1, run_tiles, &a);
}

size_t zk_scratch_attend(const ZkCall *c, int threads) {
  ZkAttend a = zk_attend_new(c);
  return (size_t)threads * per_thread(&a);
}
