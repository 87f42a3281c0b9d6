/* Loop nests over strided views and f32 rows out of them: how kernels see awkward layouts as few loops. */
#include "kernels/cpu/cpu.h"

int zk_axis_find(const ZkView *v, uint16_t axis) {
  for (int i = 0; i < v->rank; i++)
    if (v->axis[i] == axis) return i;
  return -1;
}

int64_t zk_axis_size(const ZkView *v, uint16_t axis) {
  int i = zk_axis_find(v, axis);
  ZB_ASSERT(i >= 0);
  return v->size[i];
}

int64_t zk_axis_stride(const ZkView *v, uint16_t axis) {
  int i = zk_axis_find(v, axis);
  return i < 0 ? 0 : v->stride[i];
}

int64_t zk_axis_start(const ZkView *v, uint16_t axis) {
  int i = zk_axis_find(v, axis);
  return i < 0 ? 0 : v->start[i];
}

int64_t zk_view_count(const ZkView *v) {
  int64_t n = 1;
  for (int i = 0; i < v->rank; i++) n *= v->size[i];
  return n;
}

bool zk_has(const uint16_t *axes, int n, uint16_t axis) {
  for (int i = 0; i < n; i++)
    if (axes[i] == axis) return true;
  return false;
}

/* ---- nests ----------------------------------------------------------------------------------- */

void zk_nest_add(ZkNest *n, const ZkView *const *views, int nviews, uint16_t axis, int64_t size) {
  ZkLoop *l = &n->loop[n->nloops++];
  ZB_ASSERT(n->nloops <= ZK_NEST_LOOPS);
  n->nviews = nviews;
  l->n = size;
  for (int k = 0; k < nviews; k++) {
    int j = zk_axis_find(views[k], axis);
    ZB_ASSERT(j < 0 || views[k]->size[j] == size);
    l->s[k] = j < 0 ? 0 : views[k]->stride[j];
  }
}

ZkNest zk_nest(const ZkView *const *views, int nviews, const uint16_t *ax, int nax, bool in) {
  ZkNest n = {.nviews = nviews};
  const ZkView *v = views[0];
  for (int i = 0; i < v->rank; i++)
    if (zk_has(ax, nax, v->axis[i]) == in) zk_nest_add(&n, views, nviews, v->axis[i], v->size[i]);
  zk_nest_merge(&n);
  return n;
}

static bool one_loop(const ZkLoop *outer, const ZkLoop *inner, int nviews) {
  for (int k = 0; k < nviews; k++)
    if (outer->s[k] != inner->n * inner->s[k]) return false;
  return true;
}

void zk_nest_merge(ZkNest *n) {
  int to = 0;
  for (int i = 0; i < n->nloops; i++) {
    if (n->loop[i].n == 1) continue;
    if (to > 0 && one_loop(&n->loop[to - 1], &n->loop[i], n->nviews)) {
      int64_t outer = n->loop[to - 1].n;
      n->loop[to - 1] = n->loop[i];
      n->loop[to - 1].n *= outer;
    } else {
      n->loop[to++] = n->loop[i];
    }
  }
  n->nloops = to;
}

void zk_nest_order(ZkNest *n, int k) {
  for (int i = 1; i < n->nloops; i++) { /* insertion sort: stable, and there are few */
    ZkLoop l = n->loop[i];
    int64_t key = l.s[k] == 0 ? INT64_MAX : l.s[k];
    int j = i;
    for (; j > 0; j--) {
      int64_t prev = n->loop[j - 1].s[k] == 0 ? INT64_MAX : n->loop[j - 1].s[k];
      if (prev >= key) break;
      n->loop[j] = n->loop[j - 1];
    }
    n->loop[j] = l;
  }
  zk_nest_merge(n);
}

int64_t zk_nest_count(const ZkNest *n) {
  int64_t c = 1;
  for (int i = 0; i < n->nloops; i++) c *= n->loop[i].n;
  return c;
}

ZkLoop zk_nest_pop(ZkNest *n) {
  if (n->nloops == 0) return (ZkLoop){.n = 1};
  return n->loop[--n->nloops];
}

void zk_walk_seek(const ZkNest *n, ZkWalk *w, int64_t index) {
  memset(w->off, 0, sizeof w->off);
  for (int l = n->nloops - 1; l >= 0; l--) {
    const ZkLoop *p = &n->loop[l];
    w->i[l] = 0;
    if (index == 0) continue; /* an empty loop too */
    w->i[l] = index % p->n;
    index /= p->n;
    for (int v = 0; v < n->nviews; v++) w->off[v] += w->i[l] * p->s[v];
  }
}

/* ---- elements -------------------------------------------------------------------------------- */

void zk_load(float *dst, const ZkView *v, int64_t off, int64_t s, int64_t n) {
  if (v->elem == ZK_F32) {
    const float *x = (const float *)v->data + off;
    if (s == 1) memcpy(dst, x, (size_t)n * sizeof *dst);
    else
      for (int64_t i = 0; i < n; i++) dst[i] = x[i * s];
  } else if (v->elem == ZK_BF16) {
    const uint16_t *x = (const uint16_t *)v->data + off;
    if (s == 1) zk_run_from_bf16(dst, x, n);
    else
      for (int64_t i = 0; i < n; i++) dst[i] = zb_bf16_to_f32(x[i * s]);
  } else if (zk_is_packed((ZkElem)v->elem)) {
    zk_load_packed(dst, v, off, s, n);
  } else {
    ZB_ASSERT(v->elem == ZK_I32);
    const int32_t *x = (const int32_t *)v->data + off;
    for (int64_t i = 0; i < n; i++) dst[i] = (float)x[i * s];
  }
}

void zk_store(const ZkView *v, int64_t off, int64_t s, int64_t n, const float *src, bool add) {
  if (v->elem == ZK_F32) {
    float *y = (float *)v->data + off;
    if (s == 1 && add) zk_run_add(y, src, n);
    else if (s == 1) memcpy(y, src, (size_t)n * sizeof *y);
    else if (add)
      for (int64_t i = 0; i < n; i++) y[i * s] += src[i];
    else
      for (int64_t i = 0; i < n; i++) y[i * s] = src[i];
  } else if (v->elem == ZK_BF16) {
    uint16_t *y = (uint16_t *)v->data + off;
    if (s == 1 && !add) zk_run_to_bf16(y, src, n);
    else
      for (int64_t i = 0; i < n; i++)
        y[i * s] = zb_f32_to_bf16(add ? zb_bf16_to_f32(y[i * s]) + src[i] : src[i]);
  } else {
    ZB_ASSERT(v->elem == ZK_I32);
    int32_t *y = (int32_t *)v->data + off;
    for (int64_t i = 0; i < n; i++) y[i * s] = (int32_t)src[i] + (add ? y[i * s] : 0);
  }
}

static bool in_place(const ZkView *v, int64_t s, int64_t n) {
  return v->elem == ZK_F32 && (s == 1 || n == 1);
}

const float *zk_row_in(const ZkView *v, int64_t off, int64_t s, int64_t n, float *buf) {
  if (in_place(v, s, n)) return (const float *)v->data + off;
  zk_load(buf, v, off, s, n);
  return buf;
}

float *zk_row_out(const ZkView *v, int64_t off, int64_t s, int64_t n, float *buf) {
  return in_place(v, s, n) ? (float *)v->data + off : buf;
}

void zk_row_done(const ZkView *v, int64_t off, int64_t s, int64_t n, const float *row) {
  if (!in_place(v, s, n)) zk_store(v, off, s, n, row, false);
}

float zk_get(const ZkView *v, int64_t off) {
  float x;
  zk_load(&x, v, off, 1, 1);
  return x;
}

void zk_set(const ZkView *v, int64_t off, float x) { zk_store(v, off, 1, 1, &x, false); }
