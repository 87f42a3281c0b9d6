/* Shifts along a split axis: every rank takes only the elements at its neighbours' borders (a halo), not the
 * whole axis.
 *
 * * Example: 16 positions over 4 ranks, shifted by 3. Rank 1 has 4..7, and its result needs 1..4: 4 stays,
 * 1..3 come from rank 0. Shifted by 6 it needs -2..1: 0..1 come from rank 0, and the kernel leaves the two
 * before them zero. */
#include "runtime/plan/local/shard.h"

/* Returns whether the operand needs no halo: data is read in any layout, and a value that every rank has
 * whole is shifted in place. */
static bool is_there(const ZpShard *h, const ZgNode *n, int d) {
  const ZgNode *maker = &h->s->nodes[h->s->values[n->in[0]].node];
  return maker->op == ZG_OP_INPUT || h->out->values[zp_base(h, n->in[0])].state[d].kind == 'R';
}

bool zp_takes_halo(const ZpShard *h, const ZgNode *n, int d, uint16_t axis) {
  return n->op == ZG_OP_SHIFT && axis == n->ax[0] && axis != h->p->asked.batch && !h->b->o->pins &&
         !is_there(h, n, d);
}

void zp_make_halo(ZpShard *h, const ZgNode *n, ZpNode *m, const uint32_t *x) {
  const ZpPlan *p = h->p;
  for (int d = 0; d < p->layout.mesh.ndims; d++)
    if (x[d] == n->ax[0] && p->layout.mesh.dim[d].size > 1) m->dims |= 1u << d;
  if (!m->dims) return;
  long long by = n->opt[0] < 0 ? -n->opt[0] : n->opt[0];
  m->axis = n->ax[0];
  const char *s = p->graph->axes[p->layout.lies ? p->layout.lies[m->axis] : m->axis].name,
             *over = zp_dims_text(&p->layout.mesh, p->arena, m->dims);
  if (m->axis < p->model->naxes)
    m->cause = zb_printf(p->arena, "%s is split over %s; shift takes %lld of a neighbour's", s, over, by);
  else
    m->cause =
        zb_printf(p->arena, "%s is split over %s; chunks of it hand on what lies at their ends", s, over);
}

ZpHalo zp_halo(const ZpNode *n) {
  const ZkView *v = &n->call.in[0];
  int a = 0;
  uint64_t each = zk_plain_bytes((ZkElem)v->elem);
  while (v->axis[a] != n->axis) a++;
  for (int i = 0; i < v->rank; i++) each *= i == a ? 1 : (uint64_t)v->size[i];
  int64_t own = v->size[a], ranks = v->whole[a] / own, by = n->call.opt[0];
  int64_t far = by / own - (by % own < 0), over = by - far * own; /* 0 <= over < own */
  ZpHalo h = {{{far, 0, over, own - over, 0}, {far + 1, own - over, 0, over, 0}}};
  for (int i = 0; i < 2; i++) {
    bool goes = h.part[i].hop && h.part[i].hop < ranks && -h.part[i].hop < ranks;
    if (!goes) h.part[i].count = 0;
    h.part[i].bytes = (uint64_t)h.part[i].count * each;
  }
  return h;
}

uint64_t zp_halo_bytes(const ZpNode *n) {
  ZpHalo h = zp_halo(n);
  return h.part[0].bytes + h.part[1].bytes;
}
