/* topk, the largest entries of a row in order, and onehot, which puts numbers back to where they were chosen.
 * A warp has a row of topk. It looks through the row once for each entry that it chooses, for the first that
 * comes after the one chosen before: what is larger comes before what is less, and of equal ones the lower. */
#include "kernels/cuda/common.cuh"

#define THREADS 256
#define WARPS (THREADS / 32)

typedef struct {
  float x;
  int i; /* -1: none */
} Entry;

typedef struct {
  const void *p, *by;
  void *w;
  int *e;
  int pelem, belem, welem;
  ZkcNest rest; /* views: p, by, w, e */
  int n, k, groups, take;
  long long sp, sb, sw, se;
} TopK;

ZK_DEVICE bool before(Entry a, Entry b) {
  if (a.i < 0 || b.i < 0) return b.i < 0 && a.i >= 0;
  return a.x > b.x || (a.x == b.x && a.i < b.i);
}

/* What comes first in the warp, for all its lanes. */
ZK_DEVICE Entry first_of(Entry a) {
  for (int d = 16; d > 0; d >>= 1) {
    Entry b;
    b.x = __shfl_xor_sync(0xffffffffu, a.x, d);
    b.i = __shfl_xor_sync(0xffffffffu, a.i, d);
    if (before(b, a)) a = b;
  }
  return a;
}

ZK_DEVICE float score(const TopK &p, long long off, int i) {
  float x = zk_load(p.by, p.belem, off + i * p.sb);
  return x != x ? -INFINITY : x;
}

/* The groups to choose from, a bit each. Lane l has groups l and l + 32. */
ZK_DEVICE unsigned long long best_groups(const TopK &p, long long off, int lane) {
  int each = p.n / p.groups;
  float sum[2];
  for (int h = 0; h < 2; h++) {
    float first = -INFINITY, second = -INFINITY;
    int g = lane + 32 * h;
    for (int i = 0; i < each && g < p.groups; i++) {
      float x = score(p, off, g * each + i);
      if (x > first) second = first, first = x;
      else if (x > second) second = x;
    }
    sum[h] = each > 1 ? first + second : first;
    if (sum[h] != sum[h]) sum[h] = -INFINITY;
  }
  unsigned long long chosen = 0;
  for (int t = 0; t < p.take; t++) {
    Entry best = {0, -1};
    for (int h = 0; h < 2; h++) {
      Entry here = {sum[h], lane + 32 * h};
      if (here.i < p.groups && !(chosen >> here.i & 1) && before(here, best)) best = here;
    }
    chosen |= 1ull << first_of(best).i;
  }
  return chosen;
}

static __global__ void __launch_bounds__(THREADS) topk(const __grid_constant__ TopK p) {
  int lane = threadIdx.x % 32;
  for (long long row = blockIdx.x * (long long)WARPS + threadIdx.x / 32; row < p.rest.count;
       row += gridDim.x * (long long)WARPS) {
    long long off[4];
    zkc_seek(p.rest, (unsigned)row, off);
    unsigned long long chosen = p.groups ? best_groups(p, off[1], lane) : 0;
    int each = p.groups ? p.n / p.groups : p.n;
    Entry last = {0, -1};
    for (int k = 0; k < p.k; k++) {
      Entry best = {0, -1};
      for (int i = lane; i < p.n; i += 32) {
        Entry here = {score(p, off[1], i), i};
        bool out = (p.groups && !(chosen >> (i / each) & 1)) || (k && !before(last, here));
        if (!out && before(here, best)) best = here;
      }
      last = first_of(best);
      if (lane) continue;
      p.e[off[3] + k * p.se] = last.i;
      zk_store(p.w, p.welem, off[2] + k * p.sw, zk_load(p.p, p.pelem, off[0] + last.i * p.sp));
    }
  }
}

extern "C" void zk_cuda_topk(const ZkEnv *env, const ZkCall *c) {
  ZkCuda *cu = zk_cu(env);
  const ZkView *p = &c->in[0], *by = &c->in[c->nin - 1], *w = &c->out[0], *e = &c->out[1];
  const ZkView *views[] = {p, by, w, e};
  TopK t = {};
  ZB_ASSERT(e->elem == ZK_I32);
  t.p = p->data, t.by = by->data, t.w = w->data, t.e = (int *)e->data;
  t.pelem = p->elem, t.belem = by->elem, t.welem = w->elem;
  t.rest = zkc_nest(views, 4, c->ax, 1, false);
  t.n = (int)zkc_size(p, c->ax[0]), t.k = (int)zkc_size(w, c->ax[1]);
  t.groups = (int)c->opt[0], t.take = (int)c->opt[1];
  t.sp = zkc_stride(p, c->ax[0]), t.sb = zkc_stride(by, c->ax[0]);
  t.sw = zkc_stride(w, c->ax[1]), t.se = zkc_stride(e, c->ax[1]);
  ZK_LAUNCH(cu, c, topk, zk_blocks(cu, zk_ceil_of(t.rest.count, WARPS)), THREADS, 0, t);
}

/* ---- onehot: a thread for each element of the result, which looks at all that could be added to it ----------- */
typedef struct {
  const int *ids;
  const void *g; /* NULL: 1 */
  void *y;
  int gelem, yelem;
  ZkcNest rest;   /* views: ids, y, g */
  ZkcNest summed; /* the same; without y */
  ZkcUnits units; /* entries of the axis, for each point of the rest */
  long long stride, start;
} OneHot;

static __global__ void __launch_bounds__(THREADS) onehot(const __grid_constant__ OneHot p) {
  for (long long u = blockIdx.x * (long long)THREADS + threadIdx.x; u < p.units.total;
       u += gridDim.x * (long long)THREADS) {
    long long at, o[3], s[3];
    zkc_seek(p.rest, zkc_row(p.units, u, at), o);
    float sum = 0;
    for (unsigned k = 0; k < p.summed.count; k++) {
      zkc_seek(p.summed, k, s);
      if (p.ids[o[0] + s[0]] != p.start + at) continue;
      sum += p.g ? zk_load(p.g, p.gelem, o[2] + s[2]) : 1;
    }
    zk_store(p.y, p.yelem, o[1] + at * p.stride, sum);
  }
}

extern "C" void zk_cuda_onehot(const ZkEnv *env, const ZkCall *c) {
  ZkCuda *cu = zk_cu(env);
  const ZkView *ids = &c->in[0], *g = &c->in[c->nin - 1], *y = &c->out[0], *views[] = {ids, y, g};
  OneHot p = {};
  ZB_ASSERT(ids->elem == ZK_I32);
  p.ids = (const int *)ids->data, p.g = c->nin > 1 ? g->data : NULL, p.y = y->data;
  p.gelem = g->elem, p.yelem = y->elem;
  p.rest = zkc_nest(views, 3, c->ax, c->nax, false);
  p.summed = zkc_nest(views, 3, c->ax + 1, c->nax - 1, true);
  p.units = zkc_units(p.rest.count, zkc_size(y, c->ax[0]));
  p.stride = zkc_stride(y, c->ax[0]), p.start = zkc_start(y, c->ax[0]);
  ZK_LAUNCH(cu, c, onehot, zk_blocks(cu, zk_ceil_of(p.units.total, THREADS)), THREADS, 0, p);
}
