/* Muon on whole matrices: an update as it was gathered to the matrices of it that this rank owns, and back.
 * On the host's memory alone: plans for other devices have no Muon.
 *
 * An update of a bucket is one block for each rank of its group (ZpBucket.matrices), in their order: the
 * elements that this rank updates. So an element of the bucket is in the block of the rank that has its part
 * of split axes and whose shard it is in. */
#include "runtime/exec/engine/internal.h"

#include <string.h>

typedef enum { TAKE, PUT, CLEAR } Way;

typedef struct {
  const ZxEngine *e;
  const ZpBucket *k;
  const ZpSlice *s;
  float *update, *x; /* all blocks; the matrix, its smaller side slowest */
  uint64_t own;      /* elements of a block */
  Way way;
  int64_t size[ZG_MAX_AXES];   /* over the group */
  uint64_t local[ZG_MAX_AXES]; /* stride in the slice as a rank has it */
  uint64_t place[ZG_MAX_AXES]; /* and in the matrix */
} Walk;

static Walk walk_of(const ZxEngine *e, const ZpBucket *k, const ZpMatrix *m, float *update, float *x) {
  const ZpSlice *s = &k->slices[m->slice];
  Walk w = {.e = e, .k = k, .s = s, .update = update, .x = x};
  w.own = k->elems / (uint64_t)zp_group_size(&e->p->layout.mesh, k->shard);
  uint64_t local = 1, row = m->rows <= m->cols ? (uint64_t)m->cols : 1;
  uint64_t col = m->rows <= m->cols ? 1 : (uint64_t)m->rows;
  for (int i = s->naxes; i-- > 0;) {
    w.size[i] = zp_gathered_size(e->p, k, s, i);
    w.local[i] = local;
    local *= (uint64_t)s->size[i];
    if (s->role[i] == ZP_EACH) continue;
    uint64_t *stride = s->role[i] == ZP_ROWS ? &row : &col;
    w.place[i] = *stride;
    *stride *= (uint64_t)w.size[i];
  }
  return w;
}

/* Where the element lies that has these indices over the group; how many follow it there, along the last. */
static float *at(const Walk *w, const int64_t *index, int64_t *run) {
  const ZpMesh *mesh = &w->e->p->layout.mesh;
  const ZpSlice *s = w->s;
  int64_t part[ZG_MAX_AXES], coord[ZP_MAX_DIMS] = {0};
  uint64_t elem = s->at;
  for (int i = 0; i < s->naxes; i++) {
    elem += (uint64_t)(index[i] % s->size[i]) * w->local[i];
    part[i] = index[i] / s->size[i];
  }
  int last = s->naxes - 1;
  *run = s->size[last] - index[last] % s->size[last];
  uint64_t shard = elem / w->own, within = elem % w->own;
  if ((uint64_t)*run > w->own - within) *run = (int64_t)(w->own - within);
  for (int d = mesh->ndims; d-- > 0;) {
    int64_t n = mesh->dim[d].size;
    if (w->k->shard >> d & 1) {
      coord[d] = (int64_t)(shard % (uint64_t)n);
      shard /= (uint64_t)n;
    } else if (w->k->matrices >> d & 1) {
      for (int i = 0; i < s->naxes; i++)
        if (s->state[d].kind == 'S' && s->state[d].axis == s->axis[i]) {
          coord[d] = part[i] % n;
          part[i] /= n;
        }
    }
  }
  uint64_t block = 0;
  for (int d = 0; d < mesh->ndims; d++)
    if (w->k->matrices >> d & 1) block = block * (uint64_t)mesh->dim[d].size + (uint64_t)coord[d];
  return w->update + block * w->own + within;
}

static void move(const Walk *w, float *from, float *x, uint64_t stride, int64_t n) {
  for (int64_t i = 0; i < n; i++, x += stride)
    if (w->way == TAKE) *x = from[i];
    else if (w->way == PUT) from[i] = *x;
    else from[i] = 0;
}

/* All elements of matrix number `which` of the slice: axes from `axis` on. */
static void walk(const Walk *w, int axis, uint64_t which, int64_t *index, float *x) {
  const ZpSlice *s = w->s;
  int64_t from = 0, to = w->size[axis], run;
  if (s->role[axis] == ZP_EACH) { /* its index is a digit of the number */
    uint64_t below = 1;
    for (int i = axis + 1; i < s->naxes; i++)
      if (s->role[i] == ZP_EACH) below *= (uint64_t)w->size[i];
    from = (int64_t)(which / below);
    to = from + 1;
    which %= below;
  }
  for (index[axis] = from; index[axis] < to; index[axis] += run) {
    float *place = x + (uint64_t)index[axis] * w->place[axis];
    run = 1;
    if (axis + 1 < s->naxes) walk(w, axis + 1, which, index, place);
    else {
      float *there = at(w, index, &run);
      if (run > to - index[axis]) run = to - index[axis];
      move(w, there, place, w->place[axis], run);
    }
  }
}

/* In a way, the matrix. */
static void go(Walk *w, Way way, uint64_t which) {
  int64_t index[ZG_MAX_AXES];
  w->way = way;
  walk(w, 0, which, index, w->x);
}

/* ---- the instructions ---- */
void zx_make_matrices(ZxEngine *e) {
  const ZpPlan *p = e->p;
  e->matrices = ZB_NEWN(e->a, ZpMatrix *, p->programs.nbuckets);
  e->nmatrices = ZB_NEWN(e->a, uint32_t, p->programs.nbuckets);
  for (uint32_t i = 0; i < p->programs.nbuckets; i++) {
    if (!zp_is_muon(p, &p->programs.buckets[i])) continue;
    ZB_ASSERT(e->dev->host && e->dev->orthogonalize);
    e->matrices[i] = zp_matrices(p, &p->programs.buckets[i], e->a, &e->nmatrices[i]);
  }
}

static float *own_block(ZxEngine *e, const ZpInstr *in) {
  const ZpStageBucket *h = &e->st->held[in->held];
  uint64_t from, to,
      index =
          (uint64_t)zp_group_index(&e->p->layout.mesh, e->rank, e->p->programs.buckets[h->bucket].matrices);
  zx_owned_shard(e, h, &from, &to);
  return (float *)(void *)zx_need_buf(e, in, ZP_B_UPDATE, ZP_NONE) + index * (to - from);
}

static ZkMuon muon_of(const ZxEngine *e, const ZpGroup *g) {
  const ZpOptimizer *o = &e->p->asked.optimizers[g->optimizer];
  return (ZkMuon){.lr = (float)e->lr[g->optimizer] * (float)g->rate,
                  .momentum = (float)o->momentum,
                  .decay = (float)g->decay,
                  .nesterov = o->nesterov};
}

void zx_momentum(ZxEngine *e, const ZpInstr *in) {
  const ZpStageBucket *h = &e->st->held[in->held];
  uint64_t from, to;
  zx_owned_shard(e, h, &from, &to);
  ZkMuon m = muon_of(e, &e->p->asked.groups[e->p->programs.buckets[h->bucket].slices[0].group]);
  float *u = own_block(e, in);
  if (e->look) memset(u, 0, (to - from) * sizeof *u);
  else
    e->dev->muon_momentum(e->env, &m, &e->clip, (int64_t)(to - from), zx_grads(e, h), zx_state(e, h, 0), u);
}

void zx_orthogonalize(ZxEngine *e, const ZpInstr *in) {
  uint32_t b = e->st->held[in->held].bucket;
  const ZpBucket *k = &e->p->programs.buckets[b];
  uint32_t rank = (uint32_t)zp_group_index(&e->p->layout.mesh, e->rank, k->matrices);
  float *update = (float *)(void *)zx_need_buf(e, in, ZP_B_UPDATE, ZP_NONE);
  float *x = (float *)(void *)zx_need_buf(e, in, ZP_B_SCRATCH, ZP_NONE);
  uint64_t end = (uint64_t)((char *)x - e->arena) + zp_orthogonal_scratch(e->p, k);
  if (end > e->high) e->high = end;
  for (uint32_t i = 0; i < e->nmatrices[b]; i++) {
    const ZpMatrix *m = &e->matrices[b][i];
    Walk w = walk_of(e, k, m, update, x);
    if (m->owner != rank) {
      go(&w, CLEAR, m->index);
      continue;
    }
    bool wide = m->rows <= m->cols;
    go(&w, TAKE, m->index);
    float *behind = x + zb_round_up((uint64_t)(m->rows * m->cols), 16);
    e->dev->orthogonalize(e->env, wide ? m->rows : m->cols, wide ? m->cols : m->rows,
                          e->p->asked.optimizers[k->optimizer].iterations, x, behind);
    go(&w, PUT, m->index);
  }
}

void zx_muon(ZxEngine *e, const ZpInstr *in) {
  const ZpStageBucket *h = &e->st->held[in->held];
  const ZpBucket *k = &e->p->programs.buckets[h->bucket];
  const float *u = own_block(e, in), *momentum = zx_state(e, h, 0);
  float *w = zx_master(e, h),
        *average = e->p->asked.average > 0 ? zx_state(e, h, zp_states(e->p, k) - 1) : NULL;
  uint16_t *w16 = zx_rounded(e, h);
  uint64_t own, end;
  zx_owned_shard(e, h, &own, &end);
  for (uint32_t i = 0; i < k->nslices && !e->look; i++) {
    const ZpSlice *s = &k->slices[i];
    uint64_t from = s->at > own ? s->at : own, to = s->at + s->n < end ? s->at + s->n : end, at = from - own;
    if (from >= to) continue;
    int64_t n = (int64_t)(to - from);
    ZkMuon m = muon_of(e, &e->p->asked.groups[s->group]);
    m.shape = (float)zp_muon_scale(&e->p->asked.optimizers[k->optimizer], s);
    e->dev->muon(e->env, &m, &e->clip, n, u + at, momentum + at, w + at, w16 ? w16 + at : NULL);
    if (average) e->dev->average(e->env, &e->clip, n, (float)e->p->asked.average, w + at, average + at);
  }
}
