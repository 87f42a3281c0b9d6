/* The gradient of a bias is summed by the product that makes its weight's: both go over the same cotangent, along the same
 * axes, so the second reading of it costs nothing where a device does the two in one (kernels.h: summed calls).
 *
 * Needs backward nodes whose gradients are placed, and provides the same; the product keeps its place. The device is shown
 * every such call and says which it wants.
 *
 * Example: dw[i o] = dot[batch](x, dy), db[o] = sum[batch](dy) become dw, db = dot[batch](x, dy). */
#include "runtime/plan/impl.h"

#include <string.h>

/* Whether the node does nothing but add to a gradient. */
static bool adds_to_gradient(const ZpSegment *s, const ZpNode *n, ZgOp op) {
  return n->call.op == op && n->call.nout == 1 && n->call.accumulate && !n->call.chain && !n->dims &&
         s->values[n->out[0]].at.place == ZP_AT_GRAD;
}

static bool same_axes(const ZkCall *a, const ZkCall *b) {
  int found = 0;
  for (int i = 0; i < a->nax; i++)
    for (int j = 0; j < b->nax; j++) found += a->ax[i] == b->ax[j];
  return a->nax == b->nax && found == a->nax;
}

/* Whether either both gradients begin with this micro-batch or neither does: those of one unit that are staged alike. */
static bool begin_together(const ZpPlan *p, const ZpSegment *s, const ZpLoc *x, const ZpLoc *y) {
  const ZpBucket *a = &p->buckets[s->buckets[x->index]], *b = &p->buckets[s->buckets[y->index]];
  bool staged = a->level >= 2, same_users = a->nusers == b->nusers && !memcmp(a->users, b->users, a->nusers * sizeof *a->users);
  return a->segment == b->segment && same_users && staged == (b->level >= 2);
}

/* Product d with the sum as its second result; false if they do not go together. */
static bool combine(const ZpBuild *b, const ZpSegment *s, const ZpNode *d, const ZpNode *sum, ZpNode *to) {
  int k = d->in[0] == sum->in[0] ? 0 : 1;
  if (d->in[k] != sum->in[0] || d->in[0] == d->in[1] || !same_axes(&d->call, &sum->call)) return false;
  if (!begin_together(b->p, s, &s->values[d->out[0]].at, &s->values[sum->out[0]].at)) return false;
  *to = *d;
  to->in[0] = d->in[1 - k], to->in[1] = d->in[k];
  to->out[1] = sum->out[0];
  to->call.nout = 2;
  to->flops += sum->flops;
  zp_views(b->p, s, to);
  return b->o->joins(&to->call);
}

/* Lets some product make the sum as well. */
static bool give_away(const ZpBuild *b, const ZpSegment *s, ZpNode *nodes, uint32_t n, const ZpNode *sum) {
  ZpNode to;
  for (uint32_t i = 0; i < n; i++) {
    if (!adds_to_gradient(s, &nodes[i], ZG_OP_DOT) || !combine(b, s, &nodes[i], sum, &to)) continue;
    nodes[i] = to;
    return true;
  }
  return false;
}

uint32_t zp_attach_sums(ZpBuild *b, ZpSegment *s, ZpNode *nodes, uint32_t n) {
  if (!b->o->joins) return n;
  bool *gone = ZB_NEWN(b->p->arena, bool, n + 1);
  for (uint32_t i = 0; i < n; i++)
    gone[i] = adds_to_gradient(s, &nodes[i], ZG_OP_SUM) && give_away(b, s, nodes, n, &nodes[i]);
  uint32_t kept = 0;
  for (uint32_t i = 0; i < n; i++)
    if (!gone[i]) nodes[kept++] = nodes[i];
  return kept;
}
