/* Writes a pointwise function as a CUDA program, to be compiled when a run starts. A thread takes a unit of
 * eight neighbours (or one element): it loads all operands, computes element by element with values in
 * registers named as the function numbers them, then stores all results, which may therefore share memory
 * with operands of the same layout.
 *
 * The function y = a * b (f32, b repeated along the run) becomes
 *
 *   extern "C" __global__ void __launch_bounds__(256) zk_pointwise(const __grid_constant__ ZkcPointwise c) {
 *     for (long long u = blockIdx.x * 256ll + threadIdx.x; u < c.units.total; u += gridDim.x * 256ll) {
 *       long long at, off[3];
 *       zkc_seek(c.nest, zkc_row(c.units, u, at), off);
 *       float x0[8], y0[8];
 *       zk_load8(c.in[0], 0, off[1] + 8 * at, x0);
 *       const float r1 = zk_load(c.in[1], 0, off[2]);
 *   #pragma unroll
 *       for (int j = 0; j < 8; j++) {
 *         const float r0 = x0[j];
 *         const float r2 = zk_MUL(r0, r1);
 *         y0[j] = r2;
 *       }
 *       zk_store8(c.out[0], 0, off[0] + 8 * at, y0);
 *     }
 *   } */
#include <string.h>

#include "kernels/cuda/pointwise.h"

extern const char *const zk_cuda_texts[]; /* name and text of shape.h and device.cuh */

ZkPointwiseShape zk_pointwise_shape(const ZkCall *call, bool wide_allowed) {
  const ZkView *views[ZKC_VIEWS];
  ZkPointwiseShape s = {.width = wide_allowed ? 8 : 1};
  int n = 0;
  ZB_ASSERT(call->nout > 0 && call->pointwise->nout == call->nout &&
            call->pointwise->nops <= ZK_POINTWISE_MAX_OPS);
  for (int i = 0; i < call->nout; i++) {
    ZB_ASSERT(call->out[i].rank == call->out[0].rank);
    views[n++] = &call->out[i];
  }
  for (int i = 0; i < call->nin; i++) views[n++] = &call->in[i];
  s.args.nest = zkc_nest_run(views, n, NULL, 0, false, &s.args.run);
  const ZkcRun *run = &s.args.run;
  for (int i = 0; i < call->nout; i++)
    if (!zkc_wide(views[i], &s.args.nest, i, run->n, run->stride[i])) s.width = 1;
  for (int k = 0; k < call->nin; k++) {
    int i = call->nout + k;
    s.class_of[k] = run->stride[i] == 0 ? ZK_POINTWISE_SCALAR : ZK_POINTWISE_ANY;
    if (s.width == 8 && zkc_wide(views[i], &s.args.nest, i, run->n, run->stride[i]))
      s.class_of[k] = ZK_POINTWISE_WIDE;
  }
  s.args.units = zkc_units(s.args.nest.count, run->n / s.width);
  return s;
}

#define E(NAME, text, file, bits, block, SCALE, ZERO, CODES) "ZK_" #NAME ", "
const char zk_cuda_elems[] = "enum { "
#include "kernels/elem.def"
                             "};\n";
#undef E

/* ---- the ops as functions ---- */
#define TEXT(formula) TEXT_OF(formula)
#define TEXT_OF(formula) #formula
static const struct {
  const char *name, *formula;
} functions[ZG_OP_COUNT] = {
#define FN(name) name##f
#define POINTWISE(NAME, formula) [ZG_OP_##NAME] = {#NAME, TEXT(formula)},
#include "graph/pointwise.def"
};

void zk_pointwise_put_ops(ZbText *t, const ZkPointwise *pointwise) {
  static const char *const parameters[] = {"", "float a", "float a, float b", "float a, float b, float c"};
  bool seen[ZG_OP_COUNT] = {false};
  for (int i = 0; i < pointwise->nops; i++) {
    int op = pointwise->ops[i].op;
    if (seen[op] || !functions[op].name) continue;
    seen[op] = true;
    zb_text_add(t, "ZK_DEVICE float zk_%s(%s) { return %s; }\n", functions[op].name,
                parameters[zg_op_info[op].min_in], functions[op].formula);
  }
}

void zk_pointwise_put_op(ZbText *t, const ZkPointwiseOp *o, int to, int indent) {
  const uint16_t from[] = {o->a, o->b, o->c};
  uint32_t bits;
  memcpy(&bits, &o->num, sizeof bits);
  zb_text_add(t, "%*sconst float r%d = ", indent, "", to);
  if (o->op == ZG_OP_FILL || o->op == ZG_OP_AXSIZE) {
    zb_text_add(t, "__uint_as_float(0x%08xu); // %g\n", bits, (double)o->num);
  } else if (o->op == ZG_OP_CAST) {
    const char *how = o->elem == ZK_BF16  ? "zk_from_bf16(zk_to_bf16(r%d));\n"
                      : o->elem == ZK_I32 ? "truncf(r%d);\n"
                                          : "r%d;\n";
    zb_text_add(t, how, o->a);
  } else {
    ZB_ASSERT(o->op < ZG_OP_COUNT && functions[o->op].name);
    zb_text_add(t, "zk_%s(", functions[o->op].name);
    for (int k = 0; k < zg_op_info[o->op].min_in; k++) zb_text_add(t, "%sr%d", k ? ", " : "", from[k]);
    zb_text_add(t, ");\n");
  }
}

/* ---- loads and stores ---- */
static void put_load(ZbText *t, const ZkPointwiseShape *s, const ZkCall *call, int k) {
  int elem = call->in[k].elem, view = call->nout + k;
  switch (s->class_of[k]) {
  case ZK_POINTWISE_SCALAR:
    zb_text_add(t, "    const float r%d = zk_load(c.in[%d], %d, off[%d]);\n", k, k, elem, view);
    break;
  case ZK_POINTWISE_WIDE:
    zb_text_add(t, "    float x%d[8];\n    zk_load8(c.in[%d], %d, off[%d] + 8 * at, x%d);\n", k, k, elem,
                view, k);
    break;
  case ZK_POINTWISE_ANY:
    zb_text_add(t, "    float x%d[%d];\n", k, s->width);
    zb_text_add(t,
                "    for (int j = 0; j < %d; j++) x%d[j] = zk_load(c.in[%d], %d, off[%d] + (%d * at + j) * "
                "c.run.stride[%d]);\n",
                s->width, k, k, elem, view, s->width, view);
    break;
  }
}

static void put_store(ZbText *t, const ZkPointwiseShape *s, const ZkCall *call, int k) {
  int elem = call->out[k].elem;
  if (s->width == 8) zb_text_add(t, "    zk_store8(c.out[%d], %d, off[%d] + 8 * at, y%d);\n", k, elem, k, k);
  else
    zb_text_add(t, "    zk_store(c.out[%d], %d, off[%d] + at * c.run.stride[%d], y%d[0]);\n", k, elem, k, k,
                k);
}

void zk_pointwise_text(ZbText *t, const ZkCall *call, const ZkPointwiseShape *s) {
  const ZkPointwise *pointwise = call->pointwise;
  zb_text_add(t, "%s%s%s", zk_cuda_elems, zk_cuda_texts[1], zk_cuda_texts[3]);
  zk_pointwise_put_ops(t, pointwise);
  zb_text_add(
      t, "extern \"C\" __global__ void __launch_bounds__(%d) %s(const __grid_constant__ ZkcPointwise c) {\n",
      ZK_POINTWISE_THREADS, ZK_POINTWISE_NAME);
  zb_text_add(
      t,
      "  for (long long u = blockIdx.x * %dll + threadIdx.x; u < c.units.total; u += gridDim.x * %dll) {\n",
      ZK_POINTWISE_THREADS, ZK_POINTWISE_THREADS);
  /* All in one run, as most are: nothing to look up. */
  if (s->args.nest.nloops == 0)
    zb_text_add(t, "    const long long at = u, off[%d] = {};\n", call->nout + call->nin);
  else
    zb_text_add(t, "    long long at, off[%d];\n    zkc_seek(c.nest, zkc_row(c.units, u, at), off);\n",
                call->nout + call->nin);
  for (int k = 0; k < call->nin; k++) put_load(t, s, call, k);
  for (int k = 0; k < call->nout; k++) zb_text_add(t, "    float y%d[%d];\n", k, s->width);
  zb_text_add(t, "#pragma unroll\n    for (int j = 0; j < %d; j++) {\n", s->width);
  for (int k = 0; k < call->nin; k++)
    if (s->class_of[k] != ZK_POINTWISE_SCALAR) zb_text_add(t, "      const float r%d = x%d[j];\n", k, k);
  for (int i = 0; i < pointwise->nops; i++) zk_pointwise_put_op(t, &pointwise->ops[i], call->nin + i, 6);
  for (int k = 0; k < call->nout; k++) zb_text_add(t, "      y%d[j] = r%d;\n", k, pointwise->out[k]);
  zb_text_add(t, "    }\n");
  for (int k = 0; k < call->nout; k++) put_store(t, s, call, k);
  zb_text_add(t, "  }\n}\n");
}
