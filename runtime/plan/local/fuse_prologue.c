/* A pointwise node becomes the prologue of the op that reads its result, where the device does both in one
 * call. What is normalized, or its cotangent, is then not written only to be read again.
 *
 * Needs and provides the same as fuse_epilogue.c, which comes first: the op may have an epilogue already, and
 * then the epilogue may read what the prologue made. The fused node stands where the pointwise node stood,
 * because other nodes may read its results; all that the op reads must exist there. No collective is between
 * the two: it would start later.
 *
 * Example: g, p = pointwise(dz, scale, y): dz scale, dz y; dscale = sum(p); dx = normalize_grad(g, y, r) with
 * dx + dres becomes dx, p = normalize_grad(y, r, dz, scale, dres) with prologue and epilogue; dscale =
 * sum(p). */
#include "runtime/plan/local/rewrite.h"

#include <string.h>

/* Ops that may have a prologue: they work along rows, and can do it in place. */
static bool may_have_prologue(const ZpNode *k) {
  bool op = k->call.op == ZG_OP_NORMALIZE || k->call.op == ZG_OP_NORMALIZE_GRAD;
  return op && !k->dims && !(k->call.pointwise && k->call.pointwise->prologue);
}
static int operands(const ZpNode *k) { return zg_op_info[k->call.op].max_in; }
static int results(const ZpNode *k) { return k->call.op == ZG_OP_NORMALIZE ? 2 : 1; }

/* Returns whether node i may run where pointwise node m stands. */
static bool may_rise(const ZpRewrite *r, uint32_t m, uint32_t i) {
  const ZpNode *c = &r->nodes[m], *k = &r->nodes[i];
  if (c->call.op != ZG_OP_POINTWISE || c->call.nin == 0 || !zp_results_free(r, c) || !zp_results_free(r, k))
    return false;
  if (!zp_same_space(zp_value(r, k->in[0]), zp_value(r, k->out[0]))) return false;
  /* The op reads the prologue's results as operand 0 only; its epilogue may read any. */
  for (int l = 1; l < k->call.nin; l++)
    if (!zp_made_before(r, k->in[l], l < operands(k) ? m : m + 1)) return false;
  return !zp_collective_between(r, m, i);
}

/* ---- one node of two ---- */
typedef struct {
  ZpNode *to;
  ZkPointwise *function;
  uint16_t first, ninput; /* of the inputs that have registers: place in `to`, how many */
  uint16_t nres;
  bool fits;
} Fused;

/* Returns the register of an input of the call. */
static uint16_t input(Fused *f, uint32_t value) {
  uint16_t l = 0;
  while (l < f->ninput && f->to->in[f->first + l] != value) l++;
  if (l == f->ninput) {
    f->fits &= f->first + l < ZK_MAX_IN && f->nres + l < ZK_MAX_IN;
    if (f->fits) f->to->in[f->first + f->ninput++] = value;
  }
  return (uint16_t)(f->nres + l);
}

static void add_output(Fused *f, uint32_t value, uint16_t reg) {
  f->fits &= f->function->nout < ZK_POINTWISE_OUT;
  if (!f->fits) return;
  f->to->out[f->function->nout] = value;
  f->function->out[f->function->nout++] = reg;
}

/* The instructions of `from`, whose first `known` registers are now `reg`. */
static void add_ops(Fused *f, const ZkPointwise *from, uint16_t *reg, int known) {
  for (int i = 0; i < from->nops; i++) {
    ZkPointwiseOp o = from->ops[i];
    int n = zg_op_info[o.op].max_in;
    o.a = n > 0 ? reg[o.a] : 0, o.b = n > 1 ? reg[o.b] : 0, o.c = n > 2 ? reg[o.c] : 0;
    reg[known + i] = (uint16_t)(f->nres + f->ninput + f->function->nops);
    f->function->ops[f->function->nops++] = o;
  }
}

/* Node i with prologue m. False if a call cannot hold that. The epilogue's outputs come first. */
static bool fuse(const ZpRewrite *r, uint32_t m, uint32_t i, ZpNode *to) {
  static const ZkPointwise none;
  const ZpNode *c = &r->nodes[m], *k = &r->nodes[i];
  const ZkPointwise *before = c->call.pointwise, *after = k->call.pointwise ? k->call.pointwise : &none;
  ZkPointwise *function = ZB_NEW(r->b->p->arena, ZkPointwise);
  Fused f = {to, function, (uint16_t)(operands(k) - 1), 0, (uint16_t)results(k), true};
  uint16_t reg[2][ZK_MAX_IN + ZK_POINTWISE_MAX_OPS], known = f.nres;
  if (before->nops + after->nops > ZK_POINTWISE_MAX_OPS) return false;
  function->ops = ZB_NEWN(r->b->p->arena, ZkPointwiseOp, before->nops + after->nops + 1u);
  *to = *k;
  memcpy(to->in, k->in + 1, f.first * sizeof *to->in);
  for (int l = 0; l < c->call.nin; l++) reg[0][l] = input(&f, c->in[l]);
  for (int l = operands(k); l < k->call.nin; l++)
    if (zp_output_of(c, k->in[l]) < 0) input(&f, k->in[l]);
  add_ops(&f, before, reg[0], c->call.nin);
  for (uint16_t q = 0; q < f.nres; q++) reg[1][q] = q;
  for (int l = operands(k); l < k->call.nin; l++) {
    int made = zp_output_of(c, k->in[l]);
    reg[1][known++] = made < 0 ? input(&f, k->in[l]) : reg[0][before->out[made]];
  }
  add_ops(&f, after, reg[1], known);
  for (int q = 0; q < k->call.nout; q++)
    add_output(&f, k->out[q], k->call.pointwise ? reg[1][after->out[q]] : (uint16_t)q);
  function->prologue = before->nops;
  function->operand = reg[0][before->out[zp_output_of(c, k->in[0])]];
  for (int q = 0; q < c->call.nout; q++)
    if (c->out[q] != k->in[0] || zp_read_elsewhere(r, m, i, c->out[q]))
      add_output(&f, c->out[q], reg[0][before->out[q]]);
  to->call.pointwise = function;
  to->call.nin = (uint8_t)(f.first + f.ninput);
  to->call.nout = (uint8_t)function->nout;
  return f.fits && function->prologue > 0 && zp_supported(r, to);
}

void zp_fuse_prologue(ZpRewrite *r) {
  for (uint32_t i = 0; i < r->n; i++) {
    if (!may_have_prologue(&r->nodes[i])) continue;
    ZpNode to;
    uint32_t m = r->maker[r->nodes[i].in[0]];
    if (m == ZP_NONE || !may_rise(r, m, i) || !fuse(r, m, i, &to)) continue;
    zp_replace(r, m, &to);
    zp_drop(r, i);
  }
  zp_compact(r);
}
