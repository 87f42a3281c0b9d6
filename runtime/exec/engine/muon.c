/* Updates of whole matrices (Muon, Adafactor): an update as it was gathered to the matrices of it that this rank owns, and
 * back.
 *
 * An update of a bucket is one block for each rank of its group (ZpBucket.matrices), in their order: the
 * elements that this rank updates. So an element of the bucket is in the block of the rank that has its part
 * of split axes and whose shard it is in (kernels/matrix.h). */
#include "runtime/exec/engine/internal.h"

#include <math.h>
#include <string.h>

/* Where matrix m lies; in x its smaller side is the slowest. */
static ZkMatrix matrix_of(const ZxEngine *e, const ZpBucket *k, const ZpMatrix *m) {
  const ZpMesh *mesh = &e->p->layout.mesh;
  const ZpSlice *s = &k->slices[m->slice];
  ZkMatrix x = {.naxes = s->naxes, .ndims = mesh->ndims, .at = (int64_t)s->at, .elements = m->rows * m->cols};
  x.own = (int64_t)(k->elems / (uint64_t)zp_group_size(mesh, k->shard));
  int64_t local = 1, row = m->rows <= m->cols ? m->cols : 1, col = m->rows <= m->cols ? 1 : m->rows;
  uint64_t which = m->index;
  for (int i = s->naxes; i-- > 0;) {
    x.size[i] = zp_gathered_size(e->p, k, s, i);
    x.local[i] = s->size[i];
    x.stride[i] = local;
    local *= s->size[i];
    x.fixed[i] = -1;
    if (s->role[i] == ZP_EACH) { /* its index is a digit of the matrix' number */
      x.fixed[i] = (int64_t)(which % (uint64_t)x.size[i]);
      which /= (uint64_t)x.size[i];
      continue;
    }
    int64_t *stride = s->role[i] == ZP_ROWS ? &row : &col;
    x.place[i] = *stride;
    *stride *= x.size[i];
  }
  for (int d = 0; d < mesh->ndims; d++) {
    x.dim[d] = mesh->dim[d].size;
    x.axis[d] = k->shard >> d & 1 ? -1 : -2;
    for (int i = 0; x.axis[d] == -2 && k->matrices >> d & 1 && i < s->naxes; i++)
      if (s->state[d].kind == 'S' && s->state[d].axis == s->axis[i]) x.axis[d] = i;
  }
  return x;
}

/* ---- the instructions ---- */
void zx_make_matrices(ZxEngine *e) {
  const ZpPlan *p = e->p;
  e->matrices = ZB_NEWN(e->a, ZpMatrix *, p->programs.nbuckets);
  e->nmatrices = ZB_NEWN(e->a, uint32_t, p->programs.nbuckets);
  for (uint32_t i = 0; i < p->programs.nbuckets; i++) {
    if (!zp_updates_whole(p, &p->programs.buckets[i])) continue;
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

void zx_momentum(ZxEngine *e, const ZpInstr *in) {
  const ZpStageBucket *h = &e->st->held[in->held];
  uint64_t from, to;
  zx_owned_shard(e, h, &from, &to);
  float *u = own_block(e, in);
  if (e->look) {
    e->dev->zero(e->env, u, (to - from) * sizeof *u);
    return;
  }
  ZkOptimizer x = zx_call_of(e, h, e->p->programs.buckets[h->bucket].slices[0].group, 0);
  e->dev->optimize(e->env, &x, &e->clip, (int64_t)(to - from), zx_grads(e, h), (ZkMaster){.f32 = u});
}

/* ---- a matrix ---- */
/* A matrix as it lies in the scratch, x, its smaller side the slowest; what is free behind it; and its second moments. */
typedef struct {
  const ZpMatrix *m;
  const ZpOptimizer *o;
  uint32_t group;
  int64_t rows, cols; /* as it lies */
  bool wide;          /* its rows lie as rows */
  float *x, *behind, *moments;
  const double *size; /* the parameter's sum of squares, if the update is relative to it; else NULL */
  double elements;    /* of the parameter */
} Whole;

static double elements(const ZpSlice *s) {
  double n = 1;
  for (int a = 0; a < s->naxes; a++) n *= (double)s->valid[a];
  return n;
}

/* Sums of squares of the rows (side 0) or columns (1). */
static void sum_side(ZxEngine *e, const Whole *w, int side, float *sums) {
  e->dev->side_squares(e->env, w->rows, w->cols, w->x, side == w->wide, sums);
}
/* These to factors; moments: those of this side, or NULL. */
static void make_factors(ZxEngine *e, const Whole *w, ZkFactorKind kind, int side, double norm, float *sums,
                         float *moments) {
  ZkSides p = {.kind = kind,
               .n = side ? w->m->cols : w->m->rows,
               .count = w->m->valid[side],
               .length = w->m->valid[!side],
               .norm = norm,
               .eps = w->o->eps,
               .size = kind == ZK_CLIPPED ? w->size : NULL,
               .elements = w->elements,
               .least = w->o->least,
               .group = w->group,
               .s = zk_scalars_of(e->step_state, w->group)};
  e->dev->side_factors(e->env, &p, &e->clip, sums, moments);
}
static void scale_side(ZxEngine *e, const Whole *w, int side, const float *by) {
  e->dev->side_scale(e->env, w->rows, w->cols, w->x, side == w->wide, by);
}
static void scale_by(ZxEngine *e, const Whole *w, ZkFactorKind kind, int side, double norm, float *moments) {
  sum_side(e, w, side, w->behind);
  make_factors(e, w, kind, side, norm, w->behind, moments);
  scale_side(e, w, side, w->behind);
}

/* By the inverse root of what the second moments of rows and columns say of each element's. */
static void factor(ZxEngine *e, const Whole *w) {
  float *rows = w->behind, *cols = rows + zb_round_up((uint64_t)w->m->rows, 16);
  sum_side(e, w, 0, rows);
  sum_side(e, w, 1, cols);
  make_factors(e, w, ZK_FACTOR, 0, 0, rows, w->moments);
  make_factors(e, w, ZK_PLAIN, 1, 0, cols, w->moments + w->m->rows);
  scale_side(e, w, 0, rows);
  scale_side(e, w, 1, cols);
  scale_by(e, w, ZK_CLIPPED, 0, w->o->most, NULL);
}

static void orthogonalize(ZxEngine *e, const Whole *w) {
  const double *valid = w->m->valid;
  double norm = w->o->snapped ? sqrt(fmin(valid[0], valid[1])) : 0;
  bool longer = zp_keeps_side(w->o, valid[0], valid[1], 1);
  if (w->o->even) scale_by(e, w, ZK_EVEN, 0, 0, NULL);
  e->dev->orthogonalize(e->env, w->rows, w->cols, w->o->iterations, w->o->coefficients, w->x, w->behind);
  if (w->o->second) scale_by(e, w, ZK_NORMALIZED, longer, norm, w->moments);
  else if (w->o->snapped) scale_by(e, w, ZK_SNAPPED, !w->wide, norm, NULL);
}

void zx_orthogonalize(ZxEngine *e, const ZpInstr *in) {
  const ZpStageBucket *h = &e->st->held[in->held];
  uint32_t b = h->bucket;
  const ZpBucket *k = &e->p->programs.buckets[b];
  uint32_t rank = (uint32_t)zp_group_index(&e->p->layout.mesh, e->rank, k->matrices);
  float *update = (float *)(void *)zx_need_buf(e, in, ZP_B_UPDATE, ZP_NONE);
  float *x = (float *)(void *)zx_need_buf(e, in, ZP_B_SCRATCH, ZP_NONE);
  uint64_t end = (uint64_t)((char *)x - e->arena) + zp_orthogonal_scratch(e->p, k);
  if (end > e->high) e->high = end;
  for (uint32_t i = 0; i < e->nmatrices[b] && !e->look; i++) {
    const ZpMatrix *m = &e->matrices[b][i];
    ZkMatrix at = matrix_of(e, k, m);
    if (m->owner != rank) {
      e->dev->matrix(e->env, &at, ZK_MATRIX_CLEAR, update, NULL);
      continue;
    }
    Whole w = {
        .m = m, .o = &e->p->asked.optimizers[k->optimizer], .group = k->slices[m->slice].group, .x = x};
    w.wide = m->rows <= m->cols;
    w.rows = w.wide ? m->rows : m->cols;
    w.cols = w.wide ? m->cols : m->rows;
    w.behind = x + zb_round_up((uint64_t)(m->rows * m->cols), 16);
    w.moments = w.o->second ? zx_moments(e, h) + m->moments : NULL;
    if (w.o->relative) w.size = zx_size_of(e, h, k->slices[m->slice].param);
    w.elements = elements(&k->slices[m->slice]);
    e->dev->matrix(e->env, &at, ZK_MATRIX_TAKE, update, x);
    if (w.o->kind == ZK_BY_ADAFACTOR) factor(e, &w);
    else orthogonalize(e, &w);
    e->dev->matrix(e->env, &at, ZK_MATRIX_PUT, update, x);
  }
}

void zx_muon(ZxEngine *e, const ZpInstr *in) {
  zx_optimize(e, &e->st->held[in->held], &(ZkFlat){ZK_F32, own_block(e, in)});
}
