/* What a call of attend or of its gradients says, for the kernels of every device. */
#ifndef ZUG_KERNELS_ATTEND_CALL_H
#define ZUG_KERNELS_ATTEND_CALL_H

#include "graph/attend.h"
#include "kernels/kernels.h"

/* l of a query that sees nothing, and a peak before any score. Finite: exp(-inf - -inf) would be NaN. */
#define ZK_ATTEND_LOW (-1e30)

/* Views are NULL where the call has none. */
typedef struct {
  ZgAttendAxes ax;
  const ZkView *q, *k, *v, *bias, *sink;
  const ZkView *prefix;          /* ids: so many keys are seen by all, in spite of a causal mask */
  const ZkView *docs_q, *docs_k; /* ids; a query sees keys of its own, and none that are below 0 */
  double scale, cap;             /* scores are cap tanh(scale q.k / cap) + bias; cap 0: scale q.k + bias */
  bool causal;
  int64_t window; /* 0: none */
  /* Where queries and keys are parts of their sequences: the place of the first key, and how much farther
   * that of the first query is. */
  int64_t first, ahead;
} ZkAttention;

static inline bool zk_view_has(const ZkView *v, uint16_t axis) {
  for (int i = 0; i < v->rank; i++)
    if (v->axis[i] == axis) return true;
  return false;
}

/* The place of the first element along an axis; 0 without it. */
static inline int64_t zk_view_first(const ZkView *v, uint16_t axis) {
  for (int i = 0; i < v->rank; i++)
    if (v->axis[i] == axis) return v->start[i];
  return 0;
}

/* How many elements of `v` along `axis` come before the one at `place`. */
static inline int64_t zk_view_skip(const ZkView *v, uint16_t axis, int64_t place) {
  return zk_view_has(v, axis) ? place - zk_view_first(v, axis) : 0;
}

/* The roles of the operands behind v follow from their types and axes (graph/OPS.md). */
static inline ZkAttention zk_attention(const ZkCall *c) {
  int first = zg_attend_first(c->op);
  const ZkView *q = &c->in[first];
  ZkAttention a = {zg_attend_axes(c->ax, c->nax),
                   q,
                   q + 1,
                   q + 2,
                   NULL,
                   NULL,
                   NULL,
                   NULL,
                   NULL,
                   c->num[0],
                   c->num[1],
                   c->opt[0] != 0,
                   c->opt[1],
                   0,
                   0};
  for (int i = first + 3; i < c->nin; i++) {
    const ZkView *x = &c->in[i];
    bool key = zk_view_has(x, a.ax.k), query = zk_view_has(x, a.ax.q);
    if (x->elem == ZK_I32) *(key ? &a.docs_k : query ? &a.docs_q : &a.prefix) = x;
    else *(key ? &a.bias : &a.sink) = x;
  }
  if (a.ax.q == a.ax.k) a.docs_q = a.docs_k;
  a.first = zk_view_first(a.k, a.ax.k);
  a.ahead = zk_view_first(q, a.ax.q) - a.first;
  return a;
}

#endif
