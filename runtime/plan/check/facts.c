/* The plan as a whole against graph and recipe: axes, parameters, micro-batches and what updates what. */
#include <math.h>

#include "runtime/plan/check/layout.h"

/* Ranks are the product of the mesh; padding is behind what the model has, and of the batch there is none. */
static bool axes_fit(const Check *c) {
  const ZpPlan *p = c->p;
  int64_t ranks = 1;
  for (int d = 0; d < p->layout.mesh.ndims; d++) ranks *= p->layout.mesh.dim[d].size;
  if (ranks != p->layout.mesh.nranks)
    return zb_fail(c->err, NULL, "a mesh of %lld ranks has %lld", (long long)ranks,
                   (long long)p->layout.mesh.nranks);
  for (uint32_t i = 0; i < p->graph->naxes; i++) {
    const ZgAxis *x = &p->graph->axes[i];
    int64_t valid = p->layout.axis_valid[i], size = p->layout.axis_size[i];
    if (x->size && valid != x->size)
      return zb_fail(c->err, NULL,
                     "axis %s has %lld elements by the model, but %lld without padding by the plan", x->name,
                     (long long)x->size, (long long)valid);
    if (valid < 1 || size < valid || (!x->size && size != valid))
      return zb_fail(c->err, NULL, "axis %s has %lld elements, but %lld with padding", x->name,
                     (long long)valid, (long long)size);
  }
  return true;
}

/* Checks that all of a bucket is updated by one optimizer. */
static bool groups_fit(const Check *c, const ZpBucket *k) {
  const ZpPlan *p = c->p;
  for (uint32_t i = 0; i < k->nslices && !k->frozen && p->asked.noptimizers; i++) {
    uint32_t g = k->slices[i].group;
    if (g >= p->asked.ngroups || g != p->asked.group[k->slices[i].param] ||
        p->asked.groups[g].optimizer != k->optimizer || k->optimizer >= p->asked.noptimizers)
      return zb_fail(c->err, NULL, "bucket %s: slice %u is updated otherwise than the recipe says", k->name,
                     i);
  }
  return true;
}

/* Checks that each element of a slice is updated by one call, which is of its group, and of a matrix has its scale. */
static bool calls_fit(const Check *c, const ZpBucket *k) {
  const ZpPlan *p = c->p;
  bool none = k->frozen || !p->asked.ngroups;
  uint64_t end = 0;
  if (p->asked.forward_only) return true;
  for (uint32_t i = 0; i < k->ncalls; i++) {
    if (none || k->calls[i].from < end || k->calls[i].to > k->elems)
      return zb_fail(c->err, NULL, "bucket %s: call %u updates what is another's", k->name, i);
    end = k->calls[i].to;
  }
  for (uint32_t i = 0, at = 0; i < k->nslices && !none; i++) {
    const ZpSlice *s = &k->slices[i];
    while (at < k->ncalls && k->calls[at].to <= s->at) at++;
    const ZpUpdateCall *u = &k->calls[at];
    if (at == k->ncalls || u->from > s->at || u->to < s->at + s->n || u->group != s->group)
      return zb_fail(c->err, NULL, "bucket %s: no call updates slice %u as the recipe says", k->name, i);
    double rows = 1, cols = 1;
    for (int a = 0; a < s->naxes; a++)
      if (s->role[a] != ZP_EACH) *(s->role[a] == ZP_ROWS ? &rows : &cols) *= (double)s->valid[a];
    const ZpOptimizer *o = &p->asked.optimizers[k->optimizer];
    double shape = o->rms ? 0.2 * sqrt(fmax(rows, cols)) : sqrt(fmax(1, rows / cols));
    if (fabs(u->times - (o->kind == ZK_BY_MUON ? shape : 1)) > 1e-9 * shape)
      return zb_fail(c->err, NULL, "bucket %s: slice %u is scaled by %g", k->name, i, u->times);
  }
  return true;
}

/* Checks that Muon updates the matrices of the plan, and nothing else. */
static bool roles_fit(const Check *c, const ZpBucket *k) {
  const ZpPlan *p = c->p;
  bool muon = !p->asked.forward_only && !k->frozen && zp_takes_matrices(&p->asked.optimizers[k->optimizer]);
  for (uint32_t i = 0; i < k->nslices; i++)
    for (int a = 0; a < k->slices[i].naxes; a++)
      if (k->slices[i].role[a] != (muon ? p->layout.roles[k->slices[i].param][a] : ZP_EACH))
        return zb_fail(c->err, NULL, "bucket %s: slice %u is other matrices than the plan says", k->name, i);
  return true;
}

/* Checks that a bucket has only frozen parameters, or only trained ones. */
static bool frozen_fits(const Check *c, const ZpBucket *k) {
  const ZpPlan *p = c->p;
  for (uint32_t i = 0; i < k->nslices; i++)
    if (k->frozen != (p->asked.frozen && p->asked.frozen[k->slices[i].param]))
      return zb_fail(c->err, NULL, "bucket %s: slice %u is %s, but the recipe trains it%s", k->name, i,
                     k->frozen ? "frozen" : "trained", k->frozen ? "" : " not");
  return true;
}

/* Returns whether some segment of a graph reads the parameter. */
static bool is_read(const ZgGraph *g, uint32_t param) {
  for (uint32_t s = 0; s < g->nsegments; s++)
    for (uint32_t i = 0; i < g->segments[s].nnodes; i++)
      if (g->segments[s].nodes[i].op == ZG_OP_PARAM && g->segments[s].nodes[i].opt[0] == param) return true;
  return false;
}

/* Checks that every parameter is one slice, with the sizes that the mesh leaves of it. */
static bool params_fit(const Check *c) {
  const ZpPlan *p = c->p;
  uint32_t *found = ZB_NEWN(c->a, uint32_t, p->graph->nparams), n = 0;
  for (uint32_t b = 0; b < p->programs.nbuckets; b++)
    for (uint32_t i = 0; i < p->programs.buckets[b].nslices; i++, n++) {
      const ZpSlice *s = &p->programs.buckets[b].slices[i];
      const ZgParam *q = s->param < p->graph->nparams ? &p->graph->params[s->param] : NULL;
      bool fit = q && !found[s->param]++ && s->naxes == q->type.naxes &&
                 q->segment == p->programs.buckets[b].segment;
      for (int a = 0; fit && a < s->naxes; a++) {
        int64_t parts = 1;
        for (int d = 0; d < p->layout.mesh.ndims; d++)
          if (s->state[d].kind == 'S' && s->state[d].axis == s->axis[a]) parts *= p->layout.mesh.dim[d].size;
        fit = s->axis[a] == q->type.axis[q->order[a]] && s->whole[a] == p->layout.axis_size[s->axis[a]] &&
              s->valid[a] == p->layout.axis_valid[s->axis[a]] && s->size[a] * parts == s->whole[a];
      }
      for (int d = 0; fit && d < p->layout.mesh.ndims; d++) {
        uint32_t axis = zp_listed_axis(p, &q->type, d);
        fit = axis == ZP_NONE ? s->state[d].kind == 'R' : s->state[d].kind == 'S' && s->state[d].axis == axis;
        fit &= (p->programs.buckets[b].replicas >> d & 1) == (axis == ZP_NONE && d != p->layout.mesh.pipe);
      }
      if (!fit)
        return zb_fail(c->err, NULL, "bucket %s: slice %u is not the parameter that it is said to be",
                       p->programs.buckets[b].name, i);
    }
  for (uint32_t i = 0; zp_stores_read(p) && i < p->graph->nparams; i++)
    n += !found[i] && !is_read(p->graph, i);
  if (n != p->graph->nparams)
    return zb_fail(c->err, NULL, "%u of %u parameters are in buckets", n, p->graph->nparams);
  for (uint32_t b = 0; b < p->programs.nbuckets; b++) {
    const ZpBucket *k = &p->programs.buckets[b];
    if (!groups_fit(c, k) || !roles_fit(c, k) || !frozen_fits(c, k) || !calls_fit(c, k)) return false;
  }
  return true;
}

bool zp_check_facts(const Check *c) {
  const ZpPlan *p = c->p;
  int64_t micro = p->asked.batch == ZP_NONE ? 1 : p->layout.axis_size[p->asked.batch];
  for (uint32_t i = 0; i < p->asked.noptimizers; i++) {
    const ZpOptimizer *o = &p->asked.optimizers[i];
    bool keeps = !p->asked.forward_only && o->kind != ZP_UPDATE;
    int states = keeps ? zk_optimizer_info[o->kind].nstates + (o->every > 1) : 0;
    if (o->states != states)
      return zb_fail(c->err, NULL, "%d states of the optimizer instead of %d", o->states, states);
  }
  if (p->asked.global_batch != p->asked.nmicro * micro)
    return zb_fail(c->err, NULL, "a step's samples are not those of its micro-batches");
  return axes_fit(c) && zp_inputs_fit(c) && params_fit(c) && zp_check_packed(c);
}
