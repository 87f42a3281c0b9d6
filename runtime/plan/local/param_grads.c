/* Gradients of parameters are added where they are stored.
 *
 * The graph ends a gradient in a sink, param_grad. Products, sums and scattered rows can add their result in
 * place; of any other node the sum with what is stored becomes an elementwise node, to be fused with it.
 * Example, w used twice:
 *   dw1 = dot(x, dy)   param_grad w <- dw1        grad w += dot(x, dy)
 *   dw2 = y * dz       param_grad w <- dw2        grad w = grad w + y * dz */
#include "runtime/plan/local/lower.h"

#include <string.h>

static void declared(const ZpPlan *p, ZpValue *v, uint32_t param) {
  zp_declared_order(p, param, v->state, v->axis, v->size);
}

static void count_uses(const ZpList *l, uint32_t *uses) {
  for (uint32_t i = 0; i < l->n; i++)
    for (int k = 0; k < l->nodes[i].call.nin; k++) uses[l->nodes[i].in[k]]++;
}

/* param_grad sinks: the op that makes the gradient adds it in place where it can (products, sums, scattered
 * rows); otherwise the sum becomes an elementwise node, to be fused with what makes the gradient. */
void zp_lower_param_grads(ZpLocal *c) {
  ZpSegment *s = c->s;
  ZpList *l = &s->list[ZP_BWD];
  uint32_t *maker = ZB_NEWN(c->p->arena, uint32_t, s->nvalues + 1);
  uint32_t *uses = ZB_NEWN(c->p->arena, uint32_t, s->nvalues + 1);
  uint32_t *sum = ZB_NEWN(c->p->arena, uint32_t, c->p->graph->nparams + 1); /* 1 + the latest sum's value */
  memset(maker, 0xff, (s->nvalues + 1) * sizeof *maker);
  zp_find_makers(l->nodes, l->n, maker);
  count_uses(l, uses);
  uint32_t n = 0;
  for (uint32_t i = 0; i < l->n; i++) {
    ZpNode node = l->nodes[i];
    if (node.call.op != ZG_OP_PARAM_GRAD) {
      for (int k = 0; k < node.call.nout; k++) maker[node.out[k]] = n;
      l->nodes[n++] = node;
      continue;
    }
    uint32_t v = node.in[0], m = maker[v];
    ZpLoc at = zp_bucket_loc(c->p, c->s, node.sink, ZP_AT_GRAD);
    uint16_t op = m == ZP_NONE ? 0 : l->nodes[m].call.op;
    if ((op == ZG_OP_DOT || op == ZG_OP_GROUPED_OUTER || op == ZG_OP_CONV_GRAD || op == ZG_OP_SUM ||
         op == ZG_OP_LOOKUP_GRAD) &&
        uses[v] == 1) {
      l->nodes[m].call.accumulate = true;
      s->values[v].at = at;
      zp_give_elem(&s->values[v], ZK_F32); /* in which gradients are added up */
      declared(c->p, &s->values[v], node.sink);
      continue;
    }
    ZpValue old = s->values[v];
    old.at = at;
    zp_give_elem(&old, ZK_F32);
    old.type.elem = ZG_F32;
    declared(c->p, &old, node.sink);
    ZpNode add = {
        .call.op = ZG_OP_ADD, .call.nin = 2, .call.nout = 1, .loc = node.loc, .region = node.region};
    add.in[1] = v;
    if (!sum[node.sink]) { /* a second gradient of the same parameter adds to the first sum */
      ZB_PUSH(c->p->arena, s->values, s->nvalues, old);
      sum[node.sink] = s->nvalues;
    }
    add.in[0] = sum[node.sink] - 1;
    ZB_PUSH(c->p->arena, s->values, s->nvalues, old);
    sum[node.sink] = s->nvalues;
    add.out[0] = s->nvalues - 1;
    l->nodes[n++] = add;
  }
  l->n = n;
}

/* Products and sums make every element of a gradient, scattered rows may not. */
static bool makes_all(const ZpNode *n) {
  uint16_t op = n->call.op;
  return op == ZG_OP_DOT || op == ZG_OP_GROUPED_OUTER || op == ZG_OP_DOT_BIAS_GRAD || op == ZG_OP_CONV_GRAD ||
         op == ZG_OP_SUM || op == ZG_OP_NORMALIZE_GRAD_SUMS;
}

void zp_mark_setters(ZpLocal *c) {
  const ZpSegment *s = c->s;
  const ZpList *l = &s->list[ZP_BWD];
  ZbArena *tmp = zb_arena_new();
  bool *added = ZB_NEWN(tmp, bool, c->p->graph->nparams + 1); /* per parameter: by a node before */
  for (uint32_t i = 0; i < l->n; i++) {
    ZpNode *n = &l->nodes[i];
    uint32_t param[ZK_MAX_OUT], nparams = 0;
    for (int k = 0; k < n->call.nout; k++) {
      ZpLoc at = s->values[n->out[k]].at;
      if (at.space == ZP_AT_GRAD) param[nparams++] = zp_param_at(c->p, s, at);
    }
    if (n->call.accumulate && makes_all(n)) n->overwrites = true;
    for (uint32_t k = 0; k < nparams; k++) n->overwrites &= !added[param[k]];
    for (uint32_t k = 0; k < nparams; k++) added[param[k]] = true;
  }
  zb_arena_free(tmp);
}
