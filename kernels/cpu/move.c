/* Ops that move data without arithmetic: copy, rename, slice, pad, shift, concat, merge, part. All are one copy
 * between two strided views, which converts the element type where it differs. */
#include "kernels/cpu/cpu.h"

#define PIECE 1024 /* elements of a run copied at once */
#define SIDE 32    /* of a tile of a transposition */

enum { DST, SRC };

typedef struct {
  ZkView v[2];
  ZkNest nest;           /* without `run` and `across` */
  ZkLoop run;            /* fastest in the destination */
  ZkLoop across;         /* fastest in the source, if that is another loop; else of size 1 */
  int64_t tiles, atiles; /* pieces of the two; tasks = outer * atiles * tiles */
  int64_t piece, apiece;
} Copy;

/* d[i][j] = s[i][j], n by m elements of `size` bytes; strides in elements. */
static void copy_bits(const ZkView *dv, int64_t d, int64_t ds, const ZkView *sv, int64_t s, int64_t ss,
                      int64_t n) {
  if (zk_plain_bytes((ZkElem)dv->elem) == 2) {
    uint16_t *y = (uint16_t *)dv->data + d;
    const uint16_t *x = (const uint16_t *)sv->data + s;
    for (int64_t i = 0; i < n; i++) y[i * ds] = x[i * ss];
  } else {
    uint32_t *y = (uint32_t *)dv->data + d;
    const uint32_t *x = (const uint32_t *)sv->data + s;
    for (int64_t i = 0; i < n; i++) y[i * ds] = x[i * ss];
  }
}

static void copy_run(const Copy *c, int64_t d, int64_t s, int64_t n) {
  const ZkView *dv = &c->v[DST], *sv = &c->v[SRC];
  int64_t ds = c->run.s[DST], ss = c->run.s[SRC];
  if (dv->elem != sv->elem) {
    float buf[PIECE];
    zk_load(buf, sv, s, ss, n);
    zk_store(dv, d, ds, n, buf, false);
  } else if (ds == 1 && ss == 1) {
    memcpy(zk_at(dv, d), zk_at(sv, s), zk_bytes((ZkElem)dv->elem, (uint64_t)n));
  } else {
    copy_bits(dv, d, ds, sv, s, ss, n);
  }
}

static void run_copy(void *arg, int64_t from, int64_t to, int part) {
  (void)part;
  const Copy *c = arg;
  int64_t per = c->tiles * c->atiles;
  for (int64_t t = from; t < to; t++) {
    ZkWalk w;
    zk_walk_seek(&c->nest, &w, t / per);
    int64_t i0 = t % per / c->tiles * c->apiece, j0 = t % c->tiles * c->piece;
    int64_t ni = zk_min(c->apiece, c->across.n - i0), n = zk_min(c->piece, c->run.n - j0);
    for (int64_t i = i0; i < i0 + ni; i++)
      copy_run(c, w.off[DST] + i * c->across.s[DST] + j0 * c->run.s[DST],
               w.off[SRC] + i * c->across.s[SRC] + j0 * c->run.s[SRC], n);
  }
}

/* dst = src over the axes of dst; an axis that src lacks is repeated. */
static void copy_view(const ZkEnv *env, const ZkView *dst, const ZkView *src) {
  Copy c = {.v = {*dst, *src}, .across = {.n = 1}};
  const ZkView *views[] = {dst, src};
  c.nest = zk_nest(views, 2, NULL, 0, false);
  zk_nest_order(&c.nest, DST);
  int64_t count = zk_nest_count(&c.nest);
  c.run = zk_nest_pop(&c.nest);
  c.piece = PIECE;
  c.apiece = 1;
  for (int l = 0; l < c.nest.nloops && c.run.s[SRC] > 1; l++) {
    if (c.nest.loop[l].s[SRC] != 1) continue;
    c.across = c.nest.loop[l];
    memmove(&c.nest.loop[l], &c.nest.loop[l + 1], (size_t)(--c.nest.nloops - l) * sizeof c.run);
    c.piece = c.apiece = SIDE;
  }
  c.tiles = zk_ceil_div(c.run.n, c.piece);
  c.atiles = zk_ceil_div(c.across.n, c.apiece);
  int64_t tasks = zk_nest_count(&c.nest) * c.tiles * c.atiles;
  zk_for(env, tasks, zk_max(1, 32768 * tasks / zk_max(count, 1)), run_copy, &c);
}

/* The view of elements [start, start + count) of axis `axis`, which is called `to` there. */
static ZkView slice_view(const ZkView *v, uint16_t axis, uint16_t to, int64_t start, int64_t count) {
  ZkView p = *v;
  int i = zk_axis_find(v, axis);
  ZB_ASSERT(i >= 0 && start >= 0 && count >= 0 && start + count <= v->size[i]);
  p.axis[i] = to;
  p.size[i] = count;
  if (p.data) p.data = zk_at(v, start * v->stride[i]);
  return p;
}

/* The view in which axis `whole` is the axes `part`, of the sizes that `other` has of them, the first slowest. */
static ZkView parted_view(const ZkView *v, uint16_t whole, const uint16_t *part, int n, const ZkView *other) {
  ZkView p = *v;
  int i = zk_axis_find(v, whole);
  int64_t stride = v->stride[i];
  ZB_ASSERT(v->rank + n - 1 <= ZK_MAX_AXES);
  for (int k = n; k-- > 0;) { /* the last takes the place of `whole` */
    int at = k == n - 1 ? i : p.rank++;
    p.axis[at] = part[k];
    p.size[at] = zk_axis_size(other, part[k]);
    p.stride[at] = stride;
    p.start[at] = 0;
    p.whole[at] = p.size[at];
    stride *= p.size[at];
  }
  return p;
}

static void fill(const ZkEnv *env, const ZkView *v, uint32_t bits) {
  ZkView z = {.data = &bits, .elem = v->elem};
  copy_view(env, v, &z);
}
#define ZERO 0u /* in every element type */

void zk_cpu_copy(const ZkEnv *env, const ZkCall *c) { copy_view(env, &c->out[0], &c->in[0]); }

void zk_cpu_rename(const ZkEnv *env, const ZkCall *c) {
  ZkView in = slice_view(&c->in[0], c->ax[0], c->ax[1], 0, zk_axis_size(&c->in[0], c->ax[0]));
  copy_view(env, &c->out[0], &in);
}

void zk_cpu_slice(const ZkEnv *env, const ZkCall *c) {
  ZkView in = slice_view(&c->in[0], c->ax[0], c->ax[1], c->opt[0], c->opt[1]);
  copy_view(env, &c->out[0], &in);
}

void zk_cpu_pad(const ZkEnv *env, const ZkCall *c) {
  const ZkView *out = &c->out[0];
  int64_t n = zk_axis_size(&c->in[0], c->ax[0]), whole = zk_axis_size(out, c->ax[1]), start = c->opt[0];
  ZkView before = slice_view(out, c->ax[1], c->ax[1], 0, start);
  ZkView within = slice_view(out, c->ax[1], c->ax[0], start, n);
  ZkView after = slice_view(out, c->ax[1], c->ax[1], start + n, whole - start - n);
  fill(env, &before, ZERO);
  copy_view(env, &within, &c->in[0]);
  fill(env, &after, ZERO);
}

void zk_cpu_shift(const ZkEnv *env, const ZkCall *c) {
  uint16_t a = c->ax[0];
  int64_t n = zk_axis_size(&c->in[0], a), by = zk_max(-n, zk_min(n, c->opt[0])),
          stay = n - (by < 0 ? -by : by);
  ZkView from = slice_view(&c->in[0], a, a, by < 0 ? -by : 0, stay);
  ZkView to = slice_view(&c->out[0], a, a, by < 0 ? 0 : by, stay);
  ZkView edge = slice_view(&c->out[0], a, a, by < 0 ? stay : 0, n - stay);
  copy_view(env, &to, &from);
  fill(env, &edge, c->num[0] != 0 ? (uint32_t)(int32_t)c->num[0] : ZERO); /* of ids: none */
}

void zk_cpu_concat(const ZkEnv *env, const ZkCall *c) {
  int64_t start = 0;
  for (int i = 0; i < c->nin; i++) {
    int64_t n = zk_axis_size(&c->in[i], c->ax[1 + i]);
    ZkView part = slice_view(&c->out[0], c->ax[0], c->ax[1 + i], start, n);
    copy_view(env, &part, &c->in[i]);
    start += n;
  }
}

void zk_cpu_merge(const ZkEnv *env, const ZkCall *c) {
  ZkView out = parted_view(&c->out[0], c->ax[0], c->ax + 1, c->nax - 1, &c->in[0]);
  copy_view(env, &out, &c->in[0]);
}

void zk_cpu_part(const ZkEnv *env, const ZkCall *c) {
  ZkView in = parted_view(&c->in[0], c->ax[c->nax - 1], c->ax, c->nax - 1, &c->out[0]);
  copy_view(env, &c->out[0], &in);
}
