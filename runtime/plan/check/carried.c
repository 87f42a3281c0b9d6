/* Which carried values have cotangents: those that a gradient of a trained parameter is made from. Each
 * segment is asked which it makes something wanted of, until no answer changes; both sides of a boundary, and
 * of a repeat, carry what one of them wants. */
#include "runtime/plan/check/check.h"

static bool is_trained(const ZpPlan *p, int64_t param) { return !p->asked.frozen || !p->asked.frozen[param]; }

/* Adds the cotangents that backward of the segment takes in and makes something wanted from. Returns whether
 * there are new ones. */
static bool ask(Check *c, uint32_t index) {
  const ZgSegment *s = &c->p->graph->segments[index];
  ZpCotangents *x = &c->cotangents[index];
  bool *wanted = ZB_NEWN(c->a, bool, s->nnodes + 1), news = false; /* per node */
  for (uint32_t i = s->nnodes; i-- > s->nforward;) {
    const ZgNode *n = &s->nodes[i];
    bool *out = n->op == ZG_OP_DCARRY ? &x->out[n->opt[0]] : NULL;
    if (n->op == ZG_OP_PARAM_GRAD) wanted[i] = is_trained(c->p, n->opt[0]);
    if (n->op == ZG_OP_DCARRY_IN) wanted[i] = x->in[n->opt[0]];
    for (int k = 0; wanted[i] && k < n->nin; k++) wanted[s->values[n->in[k]].node] = true;
    if (out && wanted[i] && !*out) *out = news = true;
  }
  return news;
}

static bool alike(bool *a, bool *b, uint32_t n) {
  bool news = false;
  for (uint32_t k = 0; k < n; k++)
    if (a[k] != b[k]) a[k] = b[k] = news = true;
  return news;
}

bool zp_check_cotangents(Check *c) {
  const ZgGraph *g = c->p->graph;
  bool news = true;
  c->cotangents = ZB_NEWN(c->a, ZpCotangents, g->nsegments);
  for (uint32_t i = 0; i < g->nsegments; i++) {
    c->cotangents[i].in = ZB_NEWN(c->a, bool, g->segments[i].ncarry_in + 1);
    c->cotangents[i].out = ZB_NEWN(c->a, bool, g->segments[i].ncarry_out + 1);
  }
  while (news) {
    news = false;
    for (uint32_t i = 0; i < g->nsegments; i++) {
      const ZgSegment *s = &g->segments[i];
      ZpCotangents *x = &c->cotangents[i];
      news |= ask(c, i);
      if (s->repeat) news |= alike(x->in, x->out, s->ncarry_in);
      if (i + 1 < g->nsegments) news |= alike(x->out, x[1].in, s->ncarry_out);
    }
  }
  for (uint32_t i = 0; i < g->nsegments; i++) {
    const ZpCotangents *x = &c->cotangents[i], *y = &c->p->layout.cotangents[i];
    bool same = true;
    for (uint32_t k = 0; k < g->segments[i].ncarry_in; k++) same &= x->in[k] == y->in[k];
    for (uint32_t k = 0; k < g->segments[i].ncarry_out; k++) same &= x->out[k] == y->out[k];
    if (!same)
      return zb_fail(c->err, NULL, "part %u carries cotangents that nothing is made from, or lacks some", i);
  }
  return true;
}
