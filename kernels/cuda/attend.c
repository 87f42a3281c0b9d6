/* attend and attend_grad: how heads lie, and who computes them. */
#include "kernels/cuda/attend.h"

/* The axes of q but those of positions and features that view `of` has (in) or lacks. */
static ZkcNest nest_of(const ZkcAttend *a, const ZkView *of, bool in) {
  static const ZkView none = {0};
  const ZkView *views[ZKA_VIEWS];
  uint16_t ax[ZK_MAX_AXES];
  int n = 0;
  for (int i = 0; i < ZKA_VIEWS; i++) views[i] = a->v[i] ? a->v[i] : &none;
  for (int i = 0; i < a->v[ZKA_Q]->rank; i++) {
    uint16_t axis = a->v[ZKA_Q]->axis[i];
    if (axis != a->ax.q && axis != a->ax.h && zk_view_has(of, axis) == in) ax[n++] = axis;
  }
  return zkc_nest(views, ZKA_VIEWS, ax, n, true);
}

/* [heads, groups, queries], the axes of each as the nests have them: by descending stride of q. */
static void lay_out_delta(ZkcAttend *a) {
  const ZkView *q = a->v[ZKA_Q], *k = a->v[ZKA_K];
  ZkView *d = &a->delta;
  int64_t stride = a->S;
  *d = (ZkView){.elem = ZK_F32};
  for (int shared = 0; shared < 2; shared++) /* groups first: they are the inner ones */
    for (int done = 0; done < q->rank; done++) {
      int best = -1;
      for (int i = 0; i < q->rank; i++) {
        uint16_t x = q->axis[i];
        if (x == a->ax.q || x == a->ax.h || zk_view_has(k, x) != (shared == 1) || zk_view_has(d, x)) continue;
        if (best < 0 || q->stride[i] < q->stride[best]) best = i;
      }
      if (best < 0) break;
      d->axis[d->rank] = q->axis[best], d->size[d->rank] = q->size[best], d->stride[d->rank++] = stride;
      stride *= q->size[best];
    }
  d->axis[d->rank] = a->ax.q, d->size[d->rank] = a->S, d->stride[d->rank++] = 1;
}

static void find_views(const ZkCall *c, const ZkAttention *x, ZkcAttend *a) {
  static const uint8_t outs[] = {ZKA_DQ, ZKA_DK, ZKA_DV}, ins[] = {ZKA_G, ZKA_O, ZKA_L};
  a->v[ZKA_Q] = x->q, a->v[ZKA_K] = x->k, a->v[ZKA_V] = x->v;
  a->v[ZKA_BIAS] = x->bias, a->v[ZKA_SINKS] = x->sink, a->v[ZKA_PREFIX] = x->prefix;
  a->v[ZKA_DOCS_Q] = x->docs_q, a->v[ZKA_DOCS_K] = x->docs_k;
  if (!a->grad) a->v[ZKA_O] = &c->out[0], a->v[ZKA_L] = &c->out[1];
  for (int i = 0; a->grad && i < 3; i++) a->v[ins[i]] = &c->in[i];
  for (int i = 0; a->grad && !a->bias_grad && i < 3; i++) a->v[outs[i]] = &c->out[i];
  if (a->bias_grad) a->v[ZKA_DBIAS] = &c->out[0];
  if (a->grad) a->v[ZKA_DELTA] = &a->delta;
}

/* Documents and biases may be there of more positions than queries and keys are. */
static int64_t skip_of(const ZkcAttend *a, int i) {
  const ZkView *v = a->v[i], *q = a->v[ZKA_Q];
  bool bias = ZKA_IS_BIAS(i), ids = i == ZKA_DOCS_Q;
  int64_t skip = 0;
  if (bias || i == ZKA_DOCS_K) skip += zk_view_skip(v, a->ax.k, a->first) * (bias ? a->hs[i] : a->ss[i]);
  if (ids || (bias && a->ax.q != a->ax.k))
    skip += zk_view_skip(v, a->ax.q, zk_view_first(q, a->ax.q)) * a->ss[i];
  return skip;
}

void zkc_attend_of(const ZkCall *c, ZkcAttend *a) {
  ZkAttention x = zk_attention(c);
  *a = (ZkcAttend){.grad = c->op != ZG_OP_ATTEND, .bias_grad = c->op == ZG_OP_ATTEND_BIAS_GRAD};
  a->causal = x.causal, a->window = x.window, a->scale = (float)x.scale, a->cap = (float)x.cap, a->ax = x.ax;
  a->first = x.first, a->ahead = x.ahead, a->on = c->accumulate;
  a->more = x.cap > 0 || x.window > 0 || x.bias || x.docs_k || x.sink || x.prefix || a->on || a->ahead < 0;
  a->one = x.ax.q == x.ax.k && x.ax.h == x.ax.w;
  a->repeatable = c->repeatable, a->room = (int64_t)c->room;
  a->S = zkc_size(x.q, x.ax.q), a->K = zkc_size(x.k, x.ax.k);
  a->H = zkc_size(x.q, x.ax.h), a->W = zkc_size(x.v, x.ax.w);
  ZB_ASSERT(zkc_size(x.k, x.ax.h) == a->H && zkc_size(x.v, x.ax.k) == a->K);
  find_views(c, &x, a);
  lay_out_delta(a);
  for (int i = 0; i < ZKA_VIEWS; i++) {
    if (!a->v[i]) continue;
    bool bias = ZKA_IS_BIAS(i);
    a->ss[i] = bias && a->ax.q == a->ax.k ? 0 : zkc_stride(a->v[i], ZKA_OF_KEYS(i) ? a->ax.k : a->ax.q);
    a->hs[i] = zkc_stride(a->v[i], bias ? a->ax.k : ZKA_OF_VALUES(i) ? a->ax.w : a->ax.h);
    a->skip[i] = skip_of(a, i);
  }
  a->heads = nest_of(a, a->v[ZKA_K], true);
  a->groups = nest_of(a, a->v[ZKA_K], false);
  if (!a->bias_grad) return;
  a->own = nest_of(a, a->v[ZKA_DBIAS], true);
  a->shared = nest_of(a, a->v[ZKA_DBIAS], false);
}

bool zkc_attend_wide(const ZkcAttend *a, int v) {
  if (a->hs[v] != 1 || (ZKA_OF_VALUES(v) ? a->W : a->H) % 8 != 0 ||
      a->ss[v] * (int64_t)zk_plain_bytes((ZkElem)a->v[v]->elem) % 16 != 0)
    return false;
  return zkc_aligned(a->v[v], &a->heads, v, 1) && zkc_aligned(a->v[v], &a->groups, v, 1);
}

bool zkc_attend_mma(const ZkcAttend *a) {
  static const uint8_t operands[] = {ZKA_Q, ZKA_K, ZKA_V, ZKA_G};
  bool fits = a->grad && !a->bias_grad && a->H <= 128 && a->W <= 128;
  for (int i = 0; fits && i < 4; i++)
    fits = a->v[operands[i]]->elem == ZK_BF16 && a->skip[operands[i]] == 0 && zkc_attend_wide(a, operands[i]);
  return fits;
}

void zk_cuda_attend(const ZkEnv *env, const ZkCall *c) {
  ZkcAttend a;
  zkc_attend_of(c, &a);
  if (zkc_attend_rows(&a) && !zk_attend_dnn(env, c, &a)) zk_attend_own(env->device, c, &a);
}

void zk_cuda_attend_grad(const ZkEnv *env, const ZkCall *c) { zk_cuda_attend(env, c); }
void zk_cuda_attend_bias_grad(const ZkEnv *env, const ZkCall *c) { zk_cuda_attend(env, c); }

void zk_cuda_attend_prepare(const ZkEnv *env, const ZkCall *c) {
  ZkcAttend a;
  zkc_attend_of(c, &a);
  if (zkc_attend_rows(&a)) zk_attend_dnn_prepare(env->device, c);
}

bool zk_cuda_attend_fallback(const ZkEnv *env, const ZkCall *c, ZkFallback *how) {
  ZkcAttend a;
  zkc_attend_of(c, &a);
  const char *why = zkc_attend_rows(&a) ? zk_attend_dnn_why(env->device, c) : NULL;
  if (!why) return false;
  /* Backward makes the scores twice: seven products, where cuDNN's has five. */
  if (zkc_attend_mma(&a))
    *how = (ZkFallback){.what = "by our own kernels, not by cuDNN", .why = why, .work = 1.4};
  else *how = (ZkFallback){.what = "by our own kernels on units for f32", .why = why, .scalar = true};
  return true;
}

size_t zk_cuda_attend_scratch(const ZkCall *c) {
  ZkcAttend a;
  zkc_attend_of(c, &a);
  if (zkc_attend_rows(&a) == 0) return 0;
  size_t own = a.grad ? (size_t)zkc_attend_rows(&a) * sizeof(float) : 0, dnn = zk_attend_dnn_scratch(&a);
  return own > dnn ? own : dnn; /* which of them it is may depend on pointers */
}
