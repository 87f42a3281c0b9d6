/* dot: the classes of its axes, and who computes it.
 *
 * An axis is of class batch (both operands and the result have it), M (A and C), N (B and C) or K
 * (contracted). Example: a weight gradient x[b s e] . g[b s f] -> [e f] contracts b and s: M = e, N = f, K =
 * b s.
 *
 * An axis of N that numbers products of one A (kernels.h: batched calls) is none that N could go along with
 * the others: it counts as batch, and A lacks it. So with M and B.
 *
 * M = N = 1 is a reduction and has kernels of its own; so have products of few rows in steps of generation
 * (dot_few.cu) and those by packed weights (packed_dot.c). Other products go to cuBLASLt where it is there; else,
 * and where it knows nothing, to ours. All add in f32; operands in f32 are multiplied as they are, but where ZkEnv
 * says tf32: then cuBLASLt may round them to 11 bits. */
#include "kernels/cuda/dot.h"
#include "kernels/cuda/packed.h"

ZkDotAxes zk_dot_in_order(const ZkDotAxes *axes, const ZkView *v) {
  ZkDotAxes o = *axes;
  for (int i = 1; i < o.n; i++)
    for (int j = i; j > 0 && zkc_stride(v, o.ax[j - 1]) < zkc_stride(v, o.ax[j]); j--) {
      uint16_t swap = o.ax[j];
      o.ax[j] = o.ax[j - 1];
      o.ax[j - 1] = swap;
    }
  return o;
}

bool zk_dot_one_loop(const ZkDotAxes *axes, const ZkView *v, int64_t *stride) {
  int64_t next = 0;
  *stride = 1;
  for (int i = axes->n - 1; i >= 0; i--) {
    int at = zkc_find(v, axes->ax[i]);
    if (at < 0) *stride = 0;
    if (at < 0 || v->size[at] == 1) continue;
    if (next == 0) *stride = v->stride[at];
    else if (v->stride[at] != next) return false;
    next = v->stride[at] * v->size[at];
  }
  return true;
}

/* ---- classes ---- */
static bool contracted(const ZkCall *c, uint16_t axis) {
  for (int i = 0; i < c->nax; i++)
    if (c->ax[i] == axis) return true;
  return false;
}

static void add_axis(ZkDotAxes *class, const ZkView *v, int i) {
  class->ax[class->n++] = v->axis[i];
  class->count *= v->size[i];
}

/* ---- batched calls ---- */
static bool one_loop(const ZkDotAxes *class, const ZkView *v) {
  int64_t stride;
  ZkDotAxes o = zk_dot_in_order(class, v);
  return zk_dot_one_loop(&o, v, &stride);
}

/* Takes the axis that is the slowest of both operand v and result c out of the class, if that makes one loop
 * of it over both. */
static bool take_slowest(ZkDotAxes *class, const ZkView *v, const ZkView *c, ZkDotAxes *to) {
  ZkDotAxes rest = {.count = 1};
  if (class->n < 2 || v->rank == 0 || c->rank == 0 || v->axis[0] != c->axis[0] ||
      (one_loop(class, v) && one_loop(class, c)))
    return false;
  for (int k = 0; k < class->n; k++)
    if (class->ax[k] != c->axis[0]) add_axis(&rest, v, zkc_find(v, class->ax[k]));
  if (rest.n == class->n || !one_loop(&rest, v) || !one_loop(&rest, c)) return false;
  add_axis(to, c, 0);
  *class = rest;
  return true;
}

ZkDot zk_dot_of(const ZkCall *c) {
  ZkDot d = {.v = {c->in[0], c->in[1], c->out[0]}, .add = c->accumulate};
  d.batch.count = d.m.count = d.n.count = d.k.count = 1;
  const ZkView *a = &c->in[0], *b = &c->in[1];
  for (int i = 0; i < a->rank; i++) {
    bool shared = zkc_find(b, a->axis[i]) >= 0;
    ZB_ASSERT(shared || !contracted(c, a->axis[i]));
    add_axis(!shared ? &d.m : contracted(c, a->axis[i]) ? &d.k : &d.batch, a, i);
  }
  for (int i = 0; i < b->rank; i++)
    if (zkc_find(a, b->axis[i]) < 0) add_axis(&d.n, b, i);
  if (d.batch.n == 0 && !take_slowest(&d.n, b, &d.v[ZKD_C], &d.batch))
    take_slowest(&d.m, a, &d.v[ZKD_C], &d.batch);
  return d;
}

bool zk_dot_shares_operand(const ZkDot *d) {
  return d->batch.n == 1 &&
         (zkc_find(&d->v[ZKD_A], d->batch.ax[0]) < 0 || zkc_find(&d->v[ZKD_B], d->batch.ax[0]) < 0);
}

static bool empty(const ZkDot *d) { return d->batch.count * d->m.count * d->n.count == 0; }

/* What comes in one call with a product is done in one where cuBLASLt can, else after it. */
void zk_cuda_dot(const ZkEnv *env, const ZkCall *c) {
  if (zk_cuda_packed_operand(c) >= 0) {
    zk_cuda_packed_dot(env, c);
    return;
  }
  if (zk_dot_is_few(c)) {
    zk_dot_few(env, c);
    return;
  }
  if (zk_dot_more(c)) {
    if (!zk_dot_lt(env, c)) zk_cuda_run_unfused(env, c);
    return;
  }
  ZkDot d = zk_dot_of(c);
  ZkCuda *cu = env->device;
  if (empty(&d)) return;
  if (d.m.count * d.n.count == 1) zk_dot_inner(cu, c, &d);
  else if (d.k.count == 0 || !zk_dot_lt(env, c)) zk_dot_tiles(cu, c, &d);
}

void zk_cuda_dot_prepare(const ZkEnv *env, const ZkCall *c) {
  if (zk_cuda_packed_operand(c) >= 0) {
    zk_cuda_packed_dot_prepare(env, c);
    return;
  }
  if (zk_dot_is_few(c)) {
    zk_dot_few_prepare(env, c);
    return;
  }
  if (zk_dot_more(c)) {
    if (!zk_dot_lt_prepare(env->device, c)) zk_cuda_prepare_unfused(env, c);
    return;
  }
  ZkDot d = zk_dot_of(c);
  if (!empty(&d)) zk_dot_lt_prepare(env->device, c);
}

/* A product in parts has the way of the product alone, if cuBLASLt does not do that either. */
bool zk_cuda_dot_fallback(const ZkEnv *env, const ZkCall *c, ZkFallback *how) {
  if (zk_cuda_packed_operand(c) >= 0) return zk_cuda_packed_dot_fallback(env, c, how);
  bool more = zk_dot_more(c);
  ZkUnfused u;
  if (zk_dot_is_few(c)) return false;
  zk_unfuse(c, &u);
  ZkDot d = zk_dot_of(&u.call[0]);
  if (empty(&d) || d.k.count == 0 || d.m.count * d.n.count == 1) return false;
  const char *why = zk_dot_lt_why(env->device, c), *untried = zk_dot_lt_untried(env->device, c);
  if (!why && untried)
    *how = (ZkFallback){.what = "by the first algorithm that cuBLASLt proposes", .why = untried};
  if (!why) return untried != NULL;
  if (more && zk_cuda_dot_fallback(env, &u.call[0], how) && how->scalar) return true;
  *how = more ? (ZkFallback){.what = "apart from what follows them", .why = why, .parts = true}
              : (ZkFallback){.what = "by our own kernels on units for f32", .why = why, .scalar = true};
  return true;
}

static size_t scratch_unfused(const ZkCall *c) {
  ZkUnfused u;
  size_t most = zk_dot_lt_scratch(c);
  zk_unfuse(c, &u);
  for (int i = 0; i < u.n; i++) {
    size_t bytes = zk_cuda_scratch(&u.call[i], 1);
    most = bytes > most ? bytes : most;
  }
  return most;
}

size_t zk_cuda_dot_scratch(const ZkCall *c) {
  if (zk_cuda_packed_operand(c) >= 0) return zk_cuda_packed_dot_scratch(c);
  if (zk_dot_more(c)) return scratch_unfused(c);
  ZkDot d = zk_dot_of(c);
  if (empty(&d)) return 0;
  return d.m.count * d.n.count == 1 ? zk_dot_inner_scratch(&d) : zk_dot_lt_scratch(c);
}
