/* Where rows of experts and elements of their products lie. */
#include "kernels/cpu/grouped.h"

ZkRows zk_rows_of(const ZkView *v, const ZkCall *c) {
  return (ZkRows){zk_axis_size(v, c->ax[1]), zk_axis_stride(v, c->ax[0]), zk_axis_stride(v, c->ax[1])};
}
int64_t zk_row_count(const ZkView *v, const ZkCall *c) {
  int64_t slots = zk_axis_size(v, c->ax[1]);
  return zk_axis_find(v, c->ax[0]) >= 0 ? slots * zk_axis_size(v, c->ax[0]) : slots;
}

static int64_t step_of(const int64_t *at, int64_t n) {
  int64_t step = n > 1 ? at[1] - at[0] : 1;
  for (int64_t i = 1; i < n; i++)
    if (at[i] - at[i - 1] != step) return 0;
  return step;
}

int64_t *zk_places(ZkPlaces *p, const ZkView *a, const ZkView *b, const uint16_t *ax, int nax,
                   int64_t *room) {
  const ZkView *views[] = {a, b};
  ZkNest nest = zk_nest(views, 2, ax, nax, true);
  ZkWalk w;
  p->n = zk_nest_count(&nest);
  for (int v = 0; v < 2; v++) p->at[v] = room, room += p->n;
  zk_walk_seek(&nest, &w, 0);
  for (int64_t i = 0; i < p->n; i++, zk_walk_next(&nest, &w))
    for (int v = 0; v < 2; v++) p->at[v][i] = w.off[v];
  for (int v = 0; v < 2; v++) p->step[v] = step_of(p->at[v], p->n);
  return room;
}

void zk_places_load(float *to, const ZkView *v, int64_t base, const ZkPlaces *p, int which, int64_t from,
                    int64_t n) {
  const int64_t *at = p->at[which] + from;
  if (p->step[which]) zk_load(to, v, base + at[0], p->step[which], n);
  else
    for (int64_t i = 0; i < n; i++) to[i] = zk_get(v, base + at[i]);
}

void zk_places_store(const ZkView *v, int64_t base, const ZkPlaces *p, int which, int64_t from, int64_t n,
                     const float *x) {
  const int64_t *at = p->at[which] + from;
  if (p->step[which]) zk_store(v, base + at[0], p->step[which], n, x, false);
  else
    for (int64_t i = 0; i < n; i++) zk_set(v, base + at[i], x[i]);
}

/* `unit` is a constant where this is expanded. */
ZK_INLINE void pack(float *to, int64_t panel, const float *from, int64_t n, const int64_t unit) {
  for (; n >= unit; n -= unit, from += unit, to += panel) memcpy(to, from, (size_t)unit * sizeof *to);
  for (int64_t j = 0; n > 0 && j < unit; j++) to[j] = j < n ? from[j] : 0;
}

ZK_SIMD void zk_pack_rows(float *to, int64_t panel, int unit, const ZkView *v, const int64_t *base,
                          int64_t rows, const ZkPlaces *p, int which, int64_t from, int64_t n) {
  float buf[ZK_PACK_COLUMNS];
  bool lies = v->elem == ZK_F32 && p->step[which] == 1;
  ZB_ASSERT(n <= ZK_PACK_COLUMNS && (unit == ZK_FSTRIP || unit == ZK_FPANEL));
  for (int64_t i = 0; i < rows; i++, to += unit) {
    const float *row = lies ? (const float *)v->data + base[i] + p->at[which][from] : buf;
    if (!lies) zk_places_load(buf, v, base[i], p, which, from, n);
    if (unit == ZK_FSTRIP) pack(to, panel, row, n, ZK_FSTRIP);
    else pack(to, panel, row, n, ZK_FPANEL);
  }
}

int zk_axes_but(const ZkView *v, const uint16_t *ax, int nax, uint16_t *out) {
  int n = 0;
  for (int i = 0; i < v->rank; i++)
    if (!zk_has(ax, nax, v->axis[i])) out[n++] = v->axis[i];
  return n;
}
