/* Elementwise operations, alone and in pointwise functions, and the two that make values from positions. */
#include "base/base.h"
#include "kernels/ref/ref.h"

static Num apply(int op, const Num x[3], double num, int elem) {
  switch (op) {
  case ZG_OP_FILL:
  case ZG_OP_AXSIZE:
    return num_constant(num); /* the caller puts the axis' size there: no view has the axis */
  case ZG_OP_CAST: return num_round(x[0], elem);
  default: return num_pointwise(op, x[0], x[1], x[2]);
  }
}

/* One operation: operands are repeated along the axes they lack. */
void REF(ew)(const ZkEnv *env, const ZkCall *c) {
  (void)env;
  const ZkView *y = &c->out[0];
  RefIndex i = {0};
  RefAxes all = ref_axes(&i, y, NULL, 0);
  REF_EACH(&i, all) {
    Num x[3] = {NUM_0, NUM_0, NUM_0};
    for (int k = 0; k < c->nin; k++) x[k] = ref_get(&c->in[k], &i);
    ref_put(y, &i, apply(c->op, x, c->num[0], y->elem));
  }
}

/* A register for each input, then one for each instruction. */
void REF(pointwise)(const ZkEnv *env, const ZkCall *c) {
  (void)env;
  const ZkPointwise *pointwise = c->pointwise;
  ZB_ASSERT(pointwise->nops <= ZK_POINTWISE_MAX_OPS && pointwise->nout == c->nout);
  RefIndex i = {0};
  RefAxes all = {0};
  for (int k = 0; k < c->nout; k++) ref_add_axes(&all, &i, &c->out[k], NULL, 0);
  REF_EACH(&i, all) {
    Num reg[ZK_MAX_IN + ZK_POINTWISE_MAX_OPS];
    int n = 0;
    for (int k = 0; k < c->nin; k++) reg[n++] = ref_get(&c->in[k], &i);
    for (int k = 0; k < pointwise->nops; k++) {
      const ZkPointwiseOp *o = &pointwise->ops[k];
      Num x[3] = {NUM_0, NUM_0, NUM_0};
      const uint16_t from[3] = {o->a, o->b, o->c};
      for (int j = 0; j < zg_op_info[o->op].max_in; j++) {
        ZB_ASSERT(from[j] < n);
        x[j] = reg[from[j]];
      }
      reg[n++] = apply(o->op, x, (double)o->num, o->elem);
    }
    for (int k = 0; k < c->nout; k++) ref_put(&c->out[k], &i, reg[pointwise->out[k]]);
  }
}

/* y[s] = s */
void REF(position)(const ZkEnv *env, const ZkCall *c) {
  (void)env;
  const ZkView *y = &c->out[0];
  uint16_t s = c->ax[0];
  RefIndex i = {0};
  RefAxes all = ref_axes(&i, y, NULL, 0);
  REF_EACH(&i, all) ref_put(y, &i, num_of_int(ref_start(y, s) + ref_at(&i, s)));
}

static double drawn(const ZkCall *c, uint64_t seed, uint64_t stream, uint64_t at) {
  switch (c->opt[1]) {
  case ZG_UNIFORM: return zb_random_unit_f32(zb_random_u64(seed, stream, at));
  case ZG_NORMAL: return zb_random_normal(seed, stream, at);
  default: return zb_random_unit(seed, stream, at) < c->num[0];
  }
}

/* 1 with probability p, or noise. The counter is the position in the whole tensor with its axes in
 * ascending number, so that neither the memory order nor a split changes what is drawn. */
void REF(random)(const ZkEnv *env, const ZkCall *c) {
  const ZkView *y = &c->out[0];
  int64_t weight[ZK_MAX_AXES]; /* of each axis in the counter: the product of the sizes of later ones */
  for (int k = 0; k < y->rank; k++) {
    weight[k] = 1;
    for (int j = 0; j < y->rank; j++)
      if (y->axis[j] > y->axis[k]) weight[k] *= y->whole[j];
  }
  uint64_t stream = zb_random_u64(env->step, (uint64_t)c->opt[0], 0);
  RefIndex i = {0};
  RefAxes all = ref_axes(&i, y, NULL, 0);
  REF_EACH(&i, all) {
    uint64_t at = 0;
    for (int k = 0; k < y->rank; k++) at += (uint64_t)(weight[k] * (y->start[k] + ref_at(&i, y->axis[k])));
    ref_put(y, &i, num_of(drawn(c, env->seed, stream, at)));
  }
}
