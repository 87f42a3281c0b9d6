/* Who plays the same steps, and what they tell each other. */
#include "runtime/exec/replica.h"

#include <string.h>

/* ---- who it is ------------------------------------------------------------------------------------------- */
/* Returns the dims that split nothing that a step has: samples alone. */
static ZpDims replica_dims(const ZpMesh *m) {
  ZpDims dims = 0;
  for (int d = 0; d < m->ndims; d++)
    if (d != m->pipe && m->dim[d].size > 1 && !m->dim[d].naxes) dims |= 1u << d;
  return dims;
}

/* Returns the dims that split the words of logits. */
static ZpDims words_dims(const ZpPlan *p) {
  const ZgStream *along = &p->stream->along;
  uint16_t words = p->stream->model->inputs[along->tokens].type.of;
  ZpDims dims = 0;
  for (int d = 0; d < p->layout.mesh.ndims; d++)
    if (d != p->layout.mesh.pipe && zp_dim_splits(&p->layout.mesh.dim[d], words)) dims |= 1u << d;
  return dims;
}

ZxReplica zx_replica_of(ZxComm *c, const ZpPlan *p, ZbArena *a) {
  const ZpMesh *m = &p->layout.mesh;
  int rank = c->t->rank(c);
  ZpDims whole = (1u << m->ndims) - 1, apart = p->asked.eval_of ? 0 : replica_dims(m), same = whole & ~apart,
         words = words_dims(p);
  uint32_t last = p->programs.vstages[p->programs.nvstages - 1].stage;
  ZxReplica r = {.c = c, .staged = p->programs.nstages > 1, .root = -1};
  r.size = (int)zp_group_size(m, same), r.rank = (int)zp_group_index(m, rank, same);
  r.count = (int)zp_group_size(m, apart), r.index = (int)zp_group_index(m, rank, apart);
  r.parts = (int)zp_group_size(m, words), r.part = (int)zp_group_index(m, rank, words);
  r.last = !r.staged || zp_coord(m, rank, m->pipe) == last;
  int *world = ZB_NEWN(a, int, r.size), *leaders = ZB_NEWN(a, int, r.count);
  bool *of_last = ZB_NEWN(a, bool, r.size);
  for (int i = r.size; i-- > 0;) {
    world[i] = (int)zp_group_member(m, rank, same, i);
    of_last[i] = !r.staged || zp_coord(m, world[i], m->pipe) == last;
    if (of_last[i]) r.root = i;
  }
  r.staged |= p->asked.eval_of && r.size > 1; /* ranks that hold copies take what one of them chose */
  for (int i = 0; i < r.count; i++) leaders[i] = (int)zp_group_member(m, 0, apart, i);
  r.world = world, r.leaders = leaders, r.of_last = of_last;
  r.words = c->t->split(c, (int)zp_group_color(m, rank, words));
  return r;
}

/* ---- what they tell each other --------------------------------------------------------------------------- */
void zx_replica_gather(void *replica, const void *own, size_t bytes, void *all) {
  const ZxReplica *r = replica;
  r->c->t->wait(r->c, r->c->t->all_gather(r->c, r->words, own, bytes, all));
}
