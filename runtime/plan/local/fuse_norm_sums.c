/* The gradients of a norm's scale and shift are summed by the call that makes the gradient of what is
 * normalized. It has all that they are summed from in registers, so that no product is written only to be
 * read again by a sum, and no cotangent read a second time.
 *
 * Needs a backward list with prologues, whose gradients are placed, and provides the same. The norm keeps its
 * place. What is summed is an input or made by the prologue; what nothing else reads is not written any more.
 *
 * Example: dx, p = normalize_grad(y, r, dz, scale, dres), where p = dz y; dscale = sum(p); dshift = sum(dz)
 * become dx, dscale, dshift = normalize_grad_sums(y, r, dz, scale, dres). */
#include "runtime/plan/local/rewrite.h"

static bool is_norm(const ZpNode *k) {
  return (k->call.op == ZG_OP_NORMALIZE_GRAD || k->call.op == ZG_OP_NORMALIZE_GRAD_SUMS) &&
         k->call.pointwise && !k->dims && !k->rounds;
}

/* Returns whether the sum is over all axes of its operand but the one along which norm k goes: over rows. */
static bool over_rows(const ZpRewrite *r, const ZpNode *k, const ZpNode *sum) {
  uint16_t along = k->call.ax[0];
  bool whole = sum->call.nax > 0 && sum->call.nax + 1 == zp_value(r, sum->in[0])->type.naxes &&
               zg_type_has(&zp_value(r, sum->in[0])->type, along);
  for (int a = 0; a < sum->call.nax; a++) whole &= sum->call.ax[a] != along;
  return whole && zp_same_space(zp_value(r, sum->in[0]), zp_value(r, k->out[0]));
}

/* Returns the register of norm k that has the value before the gradient is made, or -1. *out: which of its
 * outputs it is, or -1. */
static int find_register(const ZpNode *k, uint32_t value, int *out) {
  const ZkPointwise *f = k->call.pointwise;
  int results = zg_op_info[k->call.op].nout, own = zg_op_info[k->call.op].max_in - (f->prologue > 0);
  int made = results + k->call.nin - own;
  *out = zp_output_of(k, value);
  if (*out >= 0) return f->out[*out] >= results && f->out[*out] < made + f->prologue ? f->out[*out] : -1;
  for (int i = own; i < k->call.nin; i++)
    if (k->in[i] == value) return results + i - own;
  return -1;
}

static int count_sums(const ZpRewrite *r, const ZpNode *k) {
  int n = 0;
  for (int q = 0; q < k->call.nout; q++) n += zp_value(r, k->out[q])->at.space == ZP_AT_GRAD;
  return n;
}

/* Norm i with sum j as its last result. False if they do not go together. */
static bool fuse(const ZpRewrite *r, uint32_t i, uint32_t j, ZpNode *to) {
  const ZpNode *k = &r->nodes[i], *sum = &r->nodes[j];
  const ZkPointwise *from = k->call.pointwise;
  int out, sums = count_sums(r, k), reg = over_rows(r, k, sum) ? find_register(k, sum->in[0], &out) : -1;
  if (reg < 0 || sums == ZK_MOST_SUMS) return false;
  if (sums > 0 && !zp_begin_together(r, k->out[k->call.nout - 1], sum->out[0])) return false;
  ZkPointwise *f = ZB_NEW(r->b->p->arena, ZkPointwise);
  *f = *from, f->nout = 0;
  *to = *k;
  for (int q = 0; q < k->call.nout; q++) {
    if (q == out && !zp_read_elsewhere(r, i, j, sum->in[0])) continue;
    to->out[f->nout] = k->out[q], f->out[f->nout++] = from->out[q];
  }
  if (f->nout == ZK_POINTWISE_OUT || f->nout == 0) return false;
  to->out[f->nout] = sum->out[0], f->out[f->nout++] = (uint16_t)reg;
  to->call.op = ZG_OP_NORMALIZE_GRAD_SUMS, to->call.accumulate = true;
  to->call.pointwise = f, to->call.nout = (uint8_t)f->nout;
  to->flops += sum->flops;
  return zp_supported(r, to);
}

/* Lets the first norm that can make sum j as well. What is computed before a wait stays before it. */
static void find_norm(ZpRewrite *r, uint32_t j) {
  ZpNode to;
  for (uint32_t i = 0; i < r->n; i++) {
    if (!is_norm(&r->nodes[i]) || zp_collective_between(r, j, i) || !fuse(r, i, j, &to)) continue;
    zp_replace(r, i, &to);
    zp_drop(r, j);
    return;
  }
}

void zp_fuse_norm_sums(ZpRewrite *r) {
  for (uint32_t j = 0; j < r->n; j++)
    if (zp_adds_to_gradient(r, &r->nodes[j], ZG_OP_SUM) && !r->nodes[j].rounds) find_norm(r, j);
  zp_compact(r);
}
