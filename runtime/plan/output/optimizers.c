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

/* Adds what the matrices of a parameter cost, in all iterations of its repeat: FLOPs, bytes that sweeps over them move, and
 * second moments of rows and columns. */
static void add_matrices(const ZpPlan *p, const ZpOptimizer *o, uint32_t param, ZpGroupCost *c) {
  const ZgParam *q = &p->graph->params[param];
  double side[3] = {1, 1, 1};
  for (int i = 0; i < q->type.naxes; i++)
    side[p->layout.roles[param][i]] *= (double)p->layout.axis_valid[q->type.axis[q->order[i]]];
  ZpMatrix m = {.rows = (int64_t)side[ZP_ROWS], .cols = (int64_t)side[ZP_COLS]};
  double times = side[ZP_EACH] * (q->segment == ZG_NONE ? 1 : p->graph->segments[q->segment].trip);
  c->flops += times * zp_matrix_flops(o, &m);
  c->moved += times * zp_matrix_bytes(o, &m);
  for (int k = 0; k < 2; k++)
    if (zp_keeps_side(o, side[ZP_ROWS], side[ZP_COLS], k))
      c->states += 4 * times * side[k ? ZP_COLS : ZP_ROWS];
}

ZpGroupCost zp_group_cost(const ZpPlan *p, uint32_t group) {
  const ZpOptimizer *o = &p->asked.optimizers[p->asked.groups[group].optimizer];
  double n = zp_group_elements(p, group), state = 0;
  bool whole = zp_takes_matrices(o) && p->layout.roles;
  if (o->kind == ZP_UPDATE) return (ZpGroupCost){.elements = n, .moved = n * 12};
  for (int i = 0; i < o->states; i++) state += zk_mean_bytes((ZkElem)o->state_elem[i]);
  /* The gradient is read, states and weights read and written; an update of a matrix is written and read twice more. */
  ZpGroupCost c = {n, n * state,
                   n * (zk_mean_bytes(zp_precision_elem(p->asked.recipe->precision.grads)) + 2 * state + 8 +
                        (whole ? 16 : 0)),
                   n * zk_optimizer_info[o->kind].flops};
  for (uint32_t i = 0; i < p->graph->nparams && whole; i++)
    if (zp_in_group(p, i, group)) add_matrices(p, o, i, &c);
  return c;
}
