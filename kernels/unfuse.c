/* Fused calls taken apart, for devices and kernels that do one thing a time. kernels.h says what fused calls
 * mean; this says it in calls that are none. */
#include "base/base.h"
#include "graph/ops.h"
#include "kernels/kernels.h"

/* ---- prologues and epilogues ---- */
static int output_of(const ZkCall *fused, int reg) {
  for (int k = 0; k < fused->nout; k++)
    if (fused->pointwise->out[k] == reg) return k;
  return -1;
}

/* Where register `reg`, which has the axes of result 0, may lie between two calls: in the output that stores
 * it, or in the one with the most bits, whose own value comes after. */
static int output_for(const ZkCall *fused, int reg) {
  int nres = zg_op_info[fused->op].nout, at = output_of(fused, reg);
  if (at >= 0) return at;
  for (int k = fused->nout; k-- > 0;) {
    bool fits = fused->pointwise->out[k] == 0 || fused->pointwise->out[k] >= nres;
    if (fits && (at < 0 || fused->out[k].elem == ZK_F32)) at = k;
  }
  ZB_ASSERT(at >= 0);
  return at;
}

/* Operands of the op that the call has as inputs: all, or all but the one that a prologue makes. */
static int own_inputs(const ZkCall *fused) {
  return zg_op_info[fused->op].max_in - (fused->pointwise->prologue > 0);
}

/* A pointwise call whose registers are numbered as those of the fused call: inputs `results` first. */
static ZkCall pointwise_call(const ZkCall *fused, const ZkView *results, ZkPointwise *function) {
  ZkCall c = *fused;
  c.op = ZG_OP_POINTWISE, c.nax = 0, c.pointwise = function;
  c.nin = c.nout = 0;
  for (int q = 0; q < zg_op_info[fused->op].nout; q++) c.in[c.nin++] = results[q];
  for (int k = own_inputs(fused); k < fused->nin; k++) c.in[c.nin++] = fused->in[k];
  function->prologue = function->operand = 0;
  return c;
}

/* As much of the function as makes register `reg` before the op, into `out`. */
static void add_before(const ZkCall *fused, uint16_t reg, const ZkView *out, ZkPointwise *function,
                       ZkUnfused *to) {
  ZB_ASSERT(fused->nin > own_inputs(fused));
  *function = *fused->pointwise;
  function->nops = fused->pointwise->prologue;
  function->nout = 1, function->out[0] = reg;
  const ZkView *unread = &fused->in[own_inputs(fused)];
  const ZkView results[ZK_POINTWISE_OUT] = {*unread, *unread, *unread, *unread};
  ZkCall *c = &to->call[to->n++];
  *c = pointwise_call(fused, results, function);
  c->out[c->nout++] = *out;
}

static void add_prologue(const ZkCall *fused, ZkUnfused *to) {
  uint16_t reg = fused->pointwise->operand;
  if (fused->pointwise->prologue)
    add_before(fused, reg, &fused->out[output_for(fused, reg)], &to->function[0], to);
}

/* The op. Its results lie where they are stored; result 0 otherwise where the epilogue finds it and
 * overwrites it. */
static void add_op(const ZkCall *fused, ZkUnfused *to) {
  ZkCall *c = &to->call[to->n++];
  int n = 0;
  *c = *fused;
  if (fused->pointwise->prologue) c->in[n++] = fused->out[output_for(fused, fused->pointwise->operand)];
  for (int k = 0; k < own_inputs(fused); k++) c->in[n++] = fused->in[k];
  c->nin = (uint8_t)n, c->nout = zg_op_info[fused->op].nout, c->pointwise = NULL;
  for (int q = 0; q < c->nout; q++) {
    ZB_ASSERT(q == 0 || output_of(fused, q) >= 0);
    c->out[q] = fused->out[output_for(fused, q)];
  }
}

/* The whole function again, for the outputs that are not there yet; nothing if all are. */
static void add_epilogue(const ZkCall *fused, ZkUnfused *to) {
  ZkPointwise *function = &to->function[1];
  *function = *fused->pointwise;
  function->nout = 0;
  ZkCall c = pointwise_call(fused, to->call[to->n - 1].out, function);
  for (int k = 0; k < fused->nout; k++) {
    int reg = fused->pointwise->out[k];
    if (reg < zg_op_info[fused->op].nout && output_of(fused, reg) == k) continue;
    function->out[function->nout++] = (uint16_t)reg;
    c.out[c.nout++] = fused->out[k];
  }
  if (c.nout) to->call[to->n++] = c;
}

static void unfuse_pointwise(const ZkCall *fused, ZkUnfused *to) {
  add_prologue(fused, to);
  add_op(fused, to);
  add_epilogue(fused, to);
}

/* ---- ops that are several ---- */
static void unfuse_bias_grad(const ZkCall *fused, ZkUnfused *to) {
  ZkCall *dot = &to->call[0], *sum = &to->call[1];
  to->n = 2;
  *dot = *sum = *fused;
  dot->op = ZG_OP_DOT, sum->op = ZG_OP_SUM;
  dot->nout = sum->nin = sum->nout = 1;
  sum->in[0] = fused->in[1], sum->out[0] = fused->out[1];
}

static void unfuse_xent_max(const ZkCall *fused, ZkUnfused *to) {
  ZkCall *max = &to->call[0], *sums = &to->call[1];
  to->n = 2;
  *max = *sums = *fused;
  max->op = ZG_OP_PEAK, sums->op = ZG_OP_XENT_SUMS;
  max->nin = max->nout = 1, max->out[0] = fused->out[2];
  sums->nin = 3, sums->nout = 2;
  sums->in[1] = fused->out[2], sums->in[2] = fused->in[1];
}

/* Dense, with the axes of `like`. */
static ZkView dense(const ZkView *like, void *data) {
  ZkView v = *like;
  int64_t stride = 1;
  v.data = data;
  for (int i = v.rank; i-- > 0; stride *= v.size[i]) v.stride[i] = stride;
  return v;
}

static size_t bytes_of(const ZkView *v) {
  uint64_t n = 1;
  for (int i = 0; i < v->rank; i++) n *= (uint64_t)v->size[i];
  return (zk_bytes((ZkElem)v->elem, n) + 63) / 64 * 64;
}

/* g / s and -g, which the gradient takes, lie in the scratch. */
static void unfuse_xent_grad(const ZkCall *fused, ZkUnfused *to) {
  static ZkPointwiseOp scale[] = {{.op = ZG_OP_DIV, .a = 0, .b = 1}, {.op = ZG_OP_NEG, .a = 0}};
  ZkCall *max = &to->call[0], *sums = &to->call[1], *scales = &to->call[2], *grad = &to->call[3];
  const ZkView *t = &fused->in[1], *g = &fused->in[2], *s = &fused->out[1];
  size_t each = bytes_of(s);
  char *room = fused->scratch;
  to->n = 4, to->room = 2 * each;
  *max = *sums = *scales = *grad = *fused;
  for (int i = 0; i < to->n; i++) to->call[i].scratch = room ? room + to->room : NULL;
  max->op = ZG_OP_PEAK, max->nin = max->nout = 1;
  max->out[0] = fused->out[3];
  sums->op = ZG_OP_XENT_SUMS, sums->nin = 3, sums->nout = 2;
  sums->in[1] = fused->out[3], sums->in[2] = *t;
  sums->out[0] = *s, sums->out[1] = fused->out[2];
  to->function[0] = (ZkPointwise){.nops = 2, .nout = 2, .out = {2, 3}, .ops = scale};
  scales->op = ZG_OP_POINTWISE, scales->nin = scales->nout = 2, scales->nax = 0;
  scales->pointwise = &to->function[0];
  scales->in[0] = *g, scales->in[1] = *s;
  scales->out[0] = dense(s, room), scales->out[1] = dense(s, room ? room + each : NULL);
  grad->op = ZG_OP_XENT_GRAD, grad->nin = 5, grad->nout = 1;
  grad->in[1] = fused->out[3], grad->in[2] = *t;
  grad->in[3] = scales->out[0], grad->in[4] = scales->out[1];
}

/* A sum of a call of normalize_grad_sums. What it is of lies where result 0 will be, unless it is an input. */
static void add_sum(const ZkCall *fused, int k, ZkPointwise *function, ZkUnfused *to) {
  int reg = fused->pointwise->out[k], nres = zg_op_info[fused->op].nout, own = own_inputs(fused);
  const ZkView *of = &fused->out[0];
  ZB_ASSERT(reg >= nres && reg < nres + fused->nin - own + fused->pointwise->prologue);
  if (reg < nres + fused->nin - own) of = &fused->in[own + reg - nres];
  else add_before(fused, (uint16_t)reg, of, function, to);
  ZkCall *sum = &to->call[to->n++];
  *sum = *fused;
  sum->op = ZG_OP_SUM, sum->pointwise = NULL;
  sum->nin = sum->nout = 1, sum->nax = 0;
  sum->in[0] = *of, sum->out[0] = fused->out[k];
  for (int a = 0; a < of->rank; a++)
    if (of->axis[a] != fused->ax[0]) sum->ax[sum->nax++] = of->axis[a];
}

static void unfuse_norm_sums(const ZkCall *fused, ZkUnfused *to) {
  int sums = zk_sums(fused);
  ZkCall rest = *fused;
  ZkPointwise function = *fused->pointwise;
  ZB_ASSERT(sums <= ZK_MOST_SUMS);
  rest.op = ZG_OP_NORMALIZE_GRAD, rest.accumulate = false, rest.pointwise = &function;
  rest.nout = (uint8_t)(fused->nout - sums), function.nout = rest.nout;
  for (int i = 0; i < sums; i++) add_sum(fused, rest.nout + i, &to->function[2 + i], to);
  unfuse_pointwise(&rest, to);
}

static void unfuse_nothing(const ZkCall *call, ZkUnfused *to) {
  to->n = 1;
  to->call[0] = *call;
}

typedef void Unfuse(const ZkCall *fused, ZkUnfused *to);
static Unfuse *const by_op[ZG_OP_COUNT] = {
    [ZG_OP_POINTWISE] = unfuse_nothing,
    [ZG_OP_DOT_BIAS_GRAD] = unfuse_bias_grad,
    [ZG_OP_XENT_MAX_SUMS] = unfuse_xent_max,
    [ZG_OP_XENT_SUMS_GRAD] = unfuse_xent_grad,
    [ZG_OP_NORMALIZE_GRAD_SUMS] = unfuse_norm_sums,
};

void zk_unfuse(const ZkCall *call, ZkUnfused *to) {
  Unfuse *other = call->pointwise ? unfuse_pointwise : unfuse_nothing;
  to->n = 0, to->room = 0;
  (by_op[call->op] ? by_op[call->op] : other)(call, to);
}
