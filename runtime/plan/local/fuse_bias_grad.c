/* The gradient of a bias is summed by the dot that makes the gradient of its weight. Both go over the same
 * cotangent, along the same axes: where the device does the two in one call, the second reading costs
 * nothing.
 *
 * Needs a backward list whose gradients are placed, and provides the same. The dot keeps its place.
 *
 * Example: dw[i o] = dot[batch](x, dy), db[o] = sum[batch](dy) become dw, db = dot_bias_grad[batch](x,
 * dy). */
#include "runtime/plan/local/rewrite.h"

static bool same_axes(const ZkCall *a, const ZkCall *b) {
  int found = 0;
  for (int i = 0; i < a->nax; i++)
    for (int j = 0; j < b->nax; j++) found += a->ax[i] == b->ax[j];
  return a->nax == b->nax && found == a->nax;
}

/* Dot d with the sum as its second result. False if they do not go together. */
static bool fuse(const ZpRewrite *r, const ZpNode *d, const ZpNode *sum, ZpNode *to) {
  int k = d->in[0] == sum->in[0] ? 0 : 1;
  if (d->in[k] != sum->in[0] || d->in[0] == d->in[1] || !same_axes(&d->call, &sum->call)) return false;
  if (!zp_begin_together(r, d->out[0], sum->out[0])) return false;
  *to = *d;
  to->in[0] = d->in[1 - k], to->in[1] = d->in[k];
  to->out[1] = sum->out[0];
  to->call.op = ZG_OP_DOT_BIAS_GRAD, to->call.nout = 2;
  to->flops += sum->flops;
  return zp_supported(r, to);
}

/* Lets the first dot that can make sum i as well. */
static void find_dot(ZpRewrite *r, uint32_t i) {
  ZpNode to;
  for (uint32_t d = 0; d < r->n; d++) {
    if (!zp_adds_to_gradient(r, &r->nodes[d], ZG_OP_DOT) || !fuse(r, &r->nodes[d], &r->nodes[i], &to))
      continue;
    zp_replace(r, d, &to);
    zp_drop(r, i);
    return;
  }
}

void zp_fuse_bias_grad(ZpRewrite *r) {
  for (uint32_t i = 0; i < r->n; i++)
    if (zp_adds_to_gradient(r, &r->nodes[i], ZG_OP_SUM)) find_dot(r, i);
  zp_compact(r);
}
