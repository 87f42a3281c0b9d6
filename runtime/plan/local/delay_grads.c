/* Gradients of weights are made behind the gradient of the norm whose result they take, where backward makes
 * that result again. The gradient of the norm reads what it is made of anyway: the two then are one pass over
 * it.
 *
 * Needs a backward list before pointwise nodes are fused, and provides the same in another order. No
 * collective is between: what is computed before a wait stays before it.
 *
 * Example: z = y * w; dv = dot[batch](z, h); dz = dot(h, v); g = dz * w; dx = normalize_grad(g, y, r) becomes
 * dz = ..; g = ..; z = ..; dx = ..; dv = .., and z and g will be one pointwise node. */
#include "runtime/plan/local/rewrite.h"

#include <string.h>

typedef enum { STAYS, AGAIN, DELAYED } Move;

static bool is_ew(const ZpNode *n) { return zg_op_info[n->call.op].kind == ZG_EW; }

/* Returns whether node j adds to a gradient of which it reads what nodes that move make. */
static bool takes(const ZpRewrite *r, uint32_t j, const Move *move) {
  const ZpNode *n = &r->nodes[j];
  if (!zp_adds_to_gradient(r, n, ZG_OP_DOT) || n->rounds) return false;
  for (int k = 0; k < n->call.nin; k++) {
    uint32_t m = r->maker[n->in[k]];
    if (m != ZP_NONE && move[m] == AGAIN) return true;
  }
  return false;
}

/* Returns whether node j makes something of `y`, element by element. */
static bool is_of(const ZpRewrite *r, uint32_t j, uint32_t y, const Move *move) {
  const ZpNode *n = &r->nodes[j];
  bool of = false;
  if (!is_ew(n) || n->rounds || !zp_results_free(r, n)) return false;
  if (!zp_same_space(zp_value(r, n->out[0]), zp_value(r, y))) return false;
  for (int k = 0; k < n->call.nin; k++) {
    uint32_t m = r->maker[n->in[k]];
    of |= n->in[k] == y || (m != ZP_NONE && move[m] == AGAIN);
  }
  return of && !r->needed_later[n->out[0]];
}

/* Returns whether all that read the result of node j before node i move as well. */
static bool all_move(const ZpRewrite *r, uint32_t j, uint32_t i, const Move *move) {
  for (uint32_t k = j + 1; k < i; k++)
    if (zp_reads(&r->nodes[k], r->nodes[j].out[0]) && move[k] == STAYS) return false;
  return true;
}

/* Returns which nodes move for norm's gradient i; how many, the first of them in *first. */
static uint32_t find_moves(const ZpRewrite *r, uint32_t i, Move *move, uint32_t *first) {
  uint32_t n = 0;
  for (uint32_t j = 0; j < r->n; j++) move[j] = STAYS;
  for (uint32_t j = 0; j < i; j++) {
    if (is_of(r, j, r->nodes[i].in[1], move)) move[j] = AGAIN;
    else if (takes(r, j, move)) move[j] = DELAYED;
  }
  for (uint32_t j = i; j-- > 0;) /* those that somebody else reads stay, */
    if (move[j] == AGAIN && !all_move(r, j, i, move)) move[j] = STAYS;
  for (uint32_t j = 0; j < i; j++) { /* and so do those that only they are for */
    if (move[j] == DELAYED && !takes(r, j, move)) move[j] = STAYS;
    if (move[j] == DELAYED) n++;
    if (move[j] != STAYS && *first > j) *first = j;
  }
  return n;
}

/* The nodes that make something again in front of node i, gradients behind it and what is done to its
 * result. */
static void put(const ZpRewrite *r, uint32_t i, const Move *move, ZpNode *to) {
  uint32_t n = 0, end = i + 1;
  while (end < r->n && is_ew(&r->nodes[end])) end++;
  for (uint32_t j = 0; j < i; j++)
    if (move[j] == STAYS) to[n++] = r->nodes[j];
  for (uint32_t j = 0; j < i; j++)
    if (move[j] == AGAIN) to[n++] = r->nodes[j];
  for (uint32_t j = i; j < end; j++) to[n++] = r->nodes[j];
  for (uint32_t j = 0; j < i; j++)
    if (move[j] == DELAYED) to[n++] = r->nodes[j];
  for (uint32_t j = end; j < r->n; j++) to[n++] = r->nodes[j];
  ZB_ASSERT(n == r->n);
}

void zp_delay_grads(ZpRewrite *r) {
  Move *move = ZB_NEWN(r->tmp, Move, r->n + 1);
  for (uint32_t i = 0; i < r->n; i++) {
    const ZpNode *k = &r->nodes[i];
    uint32_t first = i;
    if (k->call.op != ZG_OP_NORMALIZE_GRAD || k->dims || k->rounds) continue;
    if (!find_moves(r, i, move, &first) || zp_collective_between(r, first, i)) continue;
    ZpNode *to = ZB_NEWN(r->b->p->arena, ZpNode, r->n + 1);
    put(r, i, move, to);
    zp_set_nodes(r, to, r->n);
  }
}
