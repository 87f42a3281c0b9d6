/* See moments.h. */
#include "runtime/exec/state/moments.h"

#include <string.h>

static const ZpBucket *bucket_of(const ZxEngine *e, const ZpStageBucket *h) {
  return &e->p->programs.buckets[h->bucket];
}

const char *zx_moments_name(const ZpOptimizer *o, int side) {
  if (o->second != ZP_SECOND_BOTH) return "second_momentum";
  return side ? "exp_avg_sq_col" : "exp_avg_sq_row";
}

/* The slice without the axes along which the moments do not differ, as whole as the group has it. */
static void cut(const ZxEngine *e, const ZpBucket *k, const ZpSlice *s, ZxMoments *m) {
  uint8_t lost = m->side ? ZP_ROWS : ZP_COLS;
  m->slice = *s;
  m->slice.naxes = 0;
  m->n = 1;
  for (int d = 0; d < e->p->layout.mesh.ndims; d++)
    if (k->matrices >> d & 1) m->slice.state[d] = (ZpState){.kind = 'R'};
  for (int i = 0; i < s->naxes; i++) {
    int to = m->slice.naxes;
    if (s->role[i] == lost) {
      m->less |= 1u << i;
      continue;
    }
    m->slice.axis[to] = s->axis[i];
    m->slice.role[to] = s->role[i];
    m->slice.size[to] = zp_gathered_size(e->p, k, s, i);
    m->slice.whole[to] = s->whole[i];
    m->slice.valid[to] = s->valid[i];
    m->n *= (uint64_t)m->slice.size[to];
    m->slice.naxes++;
  }
  m->slice.n = m->n;
  m->slice.at = 0;
}

uint32_t zx_moments_of(const ZxEngine *e, const ZpStageBucket *h, ZbArena *a, ZxMoments **out) {
  const ZpBucket *k = bucket_of(e, h);
  const ZpOptimizer *o = &e->p->asked.optimizers[k->optimizer];
  uint32_t n = 0;
  *out = NULL;
  if (!zp_moments(e->p, k)) return 0;
  for (uint32_t i = 0; i < e->nmatrices[h->bucket]; i++) {
    const ZpMatrix *x = &e->matrices[h->bucket][i];
    bool rows = zp_keeps_side(o, x->valid[0], x->valid[1], 0),
         cols = zp_keeps_side(o, x->valid[0], x->valid[1], 1);
    if (x->index) continue;
    for (int side = 0; side < 2; side++) {
      if (!(side ? cols : rows)) continue;
      ZxMoments m = {.of = &k->slices[x->slice], .side = side};
      m.at = x->moments + (side && rows ? (uint64_t)x->rows : 0);
      m.step = (rows ? (uint64_t)x->rows : 0) + (cols ? (uint64_t)x->cols : 0);
      cut(e, k, m.of, &m);
      ZB_PUSH(a, *out, n, m);
    }
  }
  return n;
}

void zx_order_moments(const ZxMoments *m, float *held, float *listed, bool list) {
  const ZpSlice *s = &m->slice;
  for (uint64_t i = 0; i < m->n; i++) {
    uint64_t left = i, matrix = 0, number = 0, matrices = 1, numbers = 1;
    for (int a = s->naxes; a-- > 0; left /= (uint64_t)s->size[a]) {
      bool each = s->role[a] == ZP_EACH;
      uint64_t index = left % (uint64_t)s->size[a], *scale = each ? &matrices : &numbers;
      *(each ? &matrix : &number) += index * *scale;
      *scale *= (uint64_t)s->size[a];
    }
    float *at = &held[matrix * m->step + number];
    if (list) listed[i] = *at;
    else *at = listed[i];
  }
}

bool zx_speaks_of_moments(const ZxEngine *e, const ZpStageBucket *h) {
  return zx_is_norm_owner(e, h) &&
         zp_group_index(&e->p->layout.mesh, e->rank, bucket_of(e, h)->matrices) == 0;
}

void zx_share_moments(ZxEngine *e, const ZpStageBucket *h) {
  const ZpBucket *k = bucket_of(e, h);
  uint64_t n = zp_moments(e->p, k);
  if (n && k->matrices)
    zx_await(e, e->c->t->all_reduce(e->c, e->group[k->matrices], zx_moments(e, h), n, ZK_F32, ZX_SUM));
}

void zx_keep_own_moments(ZxEngine *e, const ZpStageBucket *h) {
  const ZpBucket *k = bucket_of(e, h);
  uint32_t rank = (uint32_t)zp_group_index(&e->p->layout.mesh, e->rank, k->matrices),
           n = e->nmatrices[h->bucket];
  const ZpMatrix *m = e->matrices[h->bucket];
  uint64_t all = zp_moments(e->p, k);
  for (uint32_t i = 0; all && k->matrices && i < n; i++) {
    uint64_t end = i + 1 < n ? m[i + 1].moments : all;
    if (m[i].owner != rank && m[i].moments < end)
      e->dev->zero(e->env, zx_moments(e, h) + m[i].moments, (end - m[i].moments) * sizeof(float));
  }
}
