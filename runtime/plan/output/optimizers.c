/* Costs of optimizers: bytes of states, bytes that a step moves, FLOPs; of all parameters of a group, however they are
 * spread over ranks. */
#include "runtime/plan/output/tables.h"

double zp_group_elements(const ZpPlan *p, uint32_t group) {
  double n = 0;
  for (uint32_t b = 0; b < p->programs.nbuckets; b++) {
    const ZpBucket *k = &p->programs.buckets[b];
    double times = k->segment == ZP_NONE ? 1 : p->graph->segments[k->segment].trip;
    for (uint32_t s = 0; s < k->nslices && !k->frozen; s++) {
      double x = k->slices[s].group == group ? times : 0;
      for (int a = 0; a < k->slices[s].naxes; a++) x *= (double)k->slices[s].valid[a];
      n += x;
    }
  }
  return n;
}

bool zp_in_group(const ZpPlan *p, uint32_t param, uint32_t group) {
  return p->asked.ngroups && !(p->asked.frozen && p->asked.frozen[param]) && p->asked.group[param] == group;
}

/* Returns the FLOPs of orthogonalising the matrices of a parameter, in all iterations of its repeat. */
static double matrix_flops(const ZpPlan *p, const ZpOptimizer *o, uint32_t param) {
  const ZgParam *q = &p->graph->params[param];
  double side[3] = {1, 1, 1};
  for (int i = 0; i < q->type.naxes; i++)
    side[p->layout.roles[param][i]] *= (double)p->layout.axis_valid[q->type.axis[q->order[i]]];
  ZpMatrix m = {.rows = (int64_t)side[ZP_ROWS], .cols = (int64_t)side[ZP_COLS]};
  double times = q->segment == ZG_NONE ? 1 : p->graph->segments[q->segment].trip;
  return times * side[ZP_EACH] * zp_matrix_flops(o, &m);
}

ZpGroupCost zp_group_cost(const ZpPlan *p, uint32_t group) {
  const ZpOptimizer *o = &p->asked.optimizers[p->asked.groups[group].optimizer];
  double n = zp_group_elements(p, group), state = 0;
  bool muon = o->kind == ZK_BY_MUON && p->layout.roles;
  if (o->kind == ZP_UPDATE) return (ZpGroupCost){.elements = n, .moved = n * 12};
  for (int i = 0; i < o->states; i++) state += zk_mean_bytes((ZkElem)o->state_elem[i]);
  /* The gradient is read, states and weights read and written; an update of a matrix is written and read twice more. */
  ZpGroupCost c = {n, n * state, n * (4 + 2 * state + 8 + (muon ? 16 : 0)),
                   n * zk_optimizer_info[o->kind].flops};
  for (uint32_t i = 0; i < p->graph->nparams && muon; i++)
    if (zp_in_group(p, i, group)) c.flops += matrix_flops(p, o, i);
  return c;
}
