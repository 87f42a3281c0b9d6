/* pointwise: a pointwise function on all elements. Where programs can be compiled at run time (program.c),
 * each function is one; else, and for operands at odd addresses, a kernel interprets it, element by
 * element. */
#include "kernels/cuda/common.cuh"
extern "C" {
#include "kernels/cuda/pointwise.h"
}

typedef struct {
  unsigned char op, a, b, c; /* CAST: c is the element type */
  float num;
} Op;
typedef struct {
  ZkcPointwise c;
  unsigned char nin, nout, nops, out[ZKC_POINTWISE_OUT];
  unsigned char in_elem[ZKC_POINTWISE_IN], out_elem[ZKC_POINTWISE_OUT];
  Op ops[ZK_POINTWISE_MAX_OPS];
} Program;

#define THREADS ZK_POINTWISE_THREADS

ZK_DEVICE float apply(const Op &o, float a, float b, float c) {
  switch (o.op) {
    /* clang-format off */
#define FN(name) name##f
#define POINTWISE(NAME, formula) case ZG_OP_##NAME: return formula;
#include "graph/pointwise.def"
  /* clang-format on */
  case ZG_OP_CAST: return o.c == ZK_BF16 ? zk_from_bf16(zk_to_bf16(a)) : o.c == ZK_I32 ? truncf(a) : a;
  default: return o.num; /* FILL, AXSIZE */
  }
}

static __global__ void __launch_bounds__(THREADS) interpret(const __grid_constant__ Program p) {
  float reg[ZK_MAX_IN + ZK_POINTWISE_MAX_OPS];
  for (long long u = blockIdx.x * (long long)THREADS + threadIdx.x; u < p.c.units.total;
       u += (long long)gridDim.x * THREADS) {
    long long off[ZKC_VIEWS], at;
    zkc_seek(p.c.nest, zkc_row(p.c.units, u, at), off);
    for (int k = 0; k < p.nin; k++)
      reg[k] = zk_load(p.c.in[k], p.in_elem[k], off[p.nout + k] + at * p.c.run.stride[p.nout + k]);
    for (int i = 0; i < p.nops; i++) {
      const Op &o = p.ops[i];
      reg[p.nin + i] = apply(o, reg[o.a], reg[o.b], o.op == ZG_OP_SELECT ? reg[o.c] : 0);
    }
    for (int k = 0; k < p.nout; k++)
      zk_store(p.c.out[k], p.out_elem[k], off[k] + at * p.c.run.stride[k], reg[p.out[k]]);
  }
}

static Program program_of(const ZkCall *call) {
  const ZkPointwise *pointwise = call->pointwise;
  Program p = {};
  p.c = zk_pointwise_shape(call, false).args;
  p.nin = call->nin, p.nout = call->nout, p.nops = (unsigned char)pointwise->nops;
  for (int k = 0; k < call->nin; k++) p.in_elem[k] = call->in[k].elem;
  for (int k = 0; k < call->nout; k++)
    p.out_elem[k] = call->out[k].elem, p.out[k] = (unsigned char)pointwise->out[k];
  for (int i = 0; i < pointwise->nops; i++) {
    const ZkPointwiseOp *o = &pointwise->ops[i];
    int n = zg_op_info[o->op].min_in;
    ZB_ASSERT(o->op < ZG_OP_COUNT && (n < 1 || o->a < call->nin + i) && (n < 2 || o->b < call->nin + i) &&
              (n < 3 || o->c < call->nin + i));
    p.ops[i] = Op{(unsigned char)o->op, (unsigned char)(n > 0 ? o->a : 0), (unsigned char)(n > 1 ? o->b : 0),
                  (unsigned char)(o->op == ZG_OP_CAST ? o->elem
                                  : n > 2             ? o->c
                                                      : 0),
                  o->num};
  }
  return p;
}

typedef struct {
  ZkPointwiseShape shape;
  struct CUfunc_st *kernel; /* NULL: interpreted */
} Plan;

static void make_plan(ZkCuda *cu, const ZkCall *call, void *memo) {
  Plan *p = (Plan *)memo;
  ZbText text = {};
  p->shape = zk_pointwise_shape(call, true);
  zk_pointwise_text(&text, call, &p->shape);
  p->kernel = zk_cuda_program(cu, call, text.s);
  zb_text_free(&text);
}

static void set_pointers(ZkcPointwise *c, const ZkCall *call) {
  for (int k = 0; k < call->nin; k++) c->in[k] = call->in[k].data;
  for (int k = 0; k < call->nout; k++) c->out[k] = call->out[k].data;
}

extern "C" void zk_cuda_pointwise_prepare(const ZkEnv *env, const ZkCall *call) {
  zk_cuda_memo(zk_cu(env), call, sizeof(Plan), make_plan, NULL);
}

extern "C" bool zk_cuda_pointwise_compiled(const ZkEnv *env, const ZkCall *call) {
  return ((const Plan *)zk_cuda_memo(zk_cu(env), call, sizeof(Plan), make_plan, NULL))->kernel;
}

extern "C" void zk_cuda_pointwise(const ZkEnv *env, const ZkCall *call) {
  ZkCuda *cu = zk_cu(env);
  const Plan *plan = (const Plan *)zk_cuda_memo(cu, call, sizeof(Plan), make_plan, NULL);
  if (plan->kernel) {
    ZkcPointwise c = plan->shape.args;
    void *args[] = {&c};
    set_pointers(&c, call);
    unsigned blocks = zk_blocks(cu, zk_ceil_of(c.units.total, THREADS));
    zk_cuda_program_launch(cu, call, plan->kernel, blocks, THREADS, args);
  } else {
    Program p = program_of(call);
    set_pointers(&p.c, call);
    ZK_LAUNCH(cu, call, interpret, zk_blocks(cu, zk_ceil_of(p.c.units.total, THREADS)), THREADS, 0, p);
  }
}
