/* Which cotangents are wanted: those from which a gradient of a trained parameter is made.
 *
 * * The graph differentiates by all parameters. Where some are frozen, backward goes only as far as something
 * is trained: what serves frozen parameters alone is swept away (remat.c), and what is carried between
 * instances has no cotangent below the first trained parameter.
 *
 * * Positions with cotangents are one set on both sides of a boundary, and before, inside and after a repeat,
 * whose iterations are all alike. So it is a fixed point over all segments. Example, with `freeze all except
 * head`: embed -> layers -> head; head's gradient needs nothing from before, so no boundary has any. */
#include "runtime/plan/local/local.h"

/* Adds what is in one of two sets to the other. Returns whether that changed anything. */
static bool join(bool *a, bool *b, uint32_t n) {
  bool changed = false;
  for (uint32_t k = 0; k < n; k++)
    if (a[k] != b[k]) a[k] = b[k] = changed = true;
  return changed;
}

bool zp_wants_gradient(const ZpPlan *p, const ZpCotangents *c, const ZgNode *n) {
  if (n->op == ZG_OP_PARAM_GRAD) return !p->asked.frozen || !p->asked.frozen[n->opt[0]];
  return n->op == ZG_OP_DCARRY_IN && c->in[n->opt[0]];
}

/* Goes back from what backward has to make to the cotangents that it takes in. */
static bool reach(const ZpPlan *p, const ZgSegment *s, ZpCotangents *c, bool *wanted) {
  bool changed = false;
  memset(wanted, 0, s->nvalues * sizeof *wanted);
  for (uint32_t i = s->nnodes; i-- > s->nforward;) {
    const ZgNode *n = &s->nodes[i];
    bool want = zg_op_info[n->op].kind == ZG_SINK && zp_wants_gradient(p, c, n);
    for (int k = 0; k < n->nout; k++) want |= wanted[n->out + (uint32_t)k];
    for (int k = 0; want && k < n->nin; k++) wanted[n->in[k]] = true;
    if (want && n->op == ZG_OP_DCARRY && !c->out[n->opt[0]]) c->out[n->opt[0]] = changed = true;
  }
  return changed;
}

void zp_find_cotangents(ZpPlan *p) {
  const ZgGraph *g = p->graph;
  ZbArena *tmp = zb_arena_new();
  p->layout.cotangents = ZB_NEWN(p->arena, ZpCotangents, g->nsegments);
  for (uint32_t i = 0; i < g->nsegments; i++) {
    p->layout.cotangents[i].in = ZB_NEWN(p->arena, bool, g->segments[i].ncarry_in + 1);
    p->layout.cotangents[i].out = ZB_NEWN(p->arena, bool, g->segments[i].ncarry_out + 1);
  }
  for (bool changed = true; changed;) {
    changed = false;
    for (uint32_t i = 0; i < g->nsegments; i++) {
      const ZgSegment *s = &g->segments[i];
      ZpCotangents *c = &p->layout.cotangents[i];
      changed |= reach(p, s, c, ZB_NEWN(tmp, bool, s->nvalues + 1));
      if (s->repeat) changed |= join(c->in, c->out, s->ncarry_in);
      if (i + 1 < g->nsegments) changed |= join(c[1].in, c->out, s->ncarry_out);
    }
  }
  zb_arena_free(tmp);
}
