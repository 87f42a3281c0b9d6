/* The products of a step, found by walking the instructions of its plan. A dot's axes fall into four classes,
 * as in kernels/cpu/dot.c: batch, M, N, K. Attention is six products of whole squares, since no library
 * leaves out what a causal mask hides: q k' and p v forward; g v', p' g, ds k and ds' q backward. Recomputing
 * q k' is not counted. */
#include <string.h>

#include "bench/replay.h"

typedef struct {
  ZbArena *a;
  Products all;
} List;

int64_t replay_batch(const Shape *s) {
  int64_t n = 1;
  for (int i = 0; i < s->nloops; i++) n *= s->loop[i].n;
  return n;
}

int64_t replay_elems(const Shape *s, int operand) {
  int64_t rows = operand == B ? s->K : s->M, cols = operand == A ? s->K : s->N;
  int64_t n = 1 + (rows - 1) * s->rs[operand] + (cols - 1) * s->cs[operand];
  for (int i = 0; i < s->nloops; i++) n += (s->loop[i].n - 1) * s->loop[i].s[operand];
  return n;
}

double replay_flops(const Shape *s) {
  return 2.0 * (double)replay_batch(s) * (double)s->M * (double)s->N * (double)s->K;
}

static void add(List *l, Shape *s, const char *what, const ZkCall *call, bool swapped) {
  if (s->M == 1 && s->N == 1) return; /* a reduction, not a product of matrices */
  if (s->elem[A] != s->elem[B]) s->elem[A] = s->elem[B] = ZK_F32, s->packed = 1; /* the other one converted */
  if (s->elem[A] == ZK_F32) s->elem[C] = ZK_F32;
  for (uint32_t i = 0; i < l->all.n; i++)
    if (!memcmp(&l->all.p[i].shape, s, sizeof *s)) {
      l->all.p[i].count++;
      return;
    }
  Product p = {*s, what, 1, call, swapped};
  ZB_PUSH(l->a, l->all.p, l->all.n, p);
}

/* ---- dots ---- */
static int64_t stride(const ZkView *v, uint16_t axis, int64_t *size) {
  for (int i = 0; i < v->rank; i++)
    if (v->axis[i] == axis) return *size = v->size[i], v->stride[i];
  return 0;
}

static bool has(const ZkView *v, uint16_t axis) {
  int64_t size = 0;
  stride(v, axis, &size);
  return size > 0;
}

static bool contracted(const ZkCall *c, uint16_t axis) {
  for (int i = 0; i < c->nax; i++)
    if (c->ax[i] == axis) return true;
  return false;
}

/* Loops over the axes of `from` that the other operand has or lacks, slowest first by `order`, merged where
 * both operands that have them lie so. */
static int64_t loops(const ZkView *const v[3], int from, bool shared, bool summed, int order, const ZkCall *c,
                     Loop *out) {
  Loop all[ZK_MAX_AXES];
  int64_t n = 0, merged = 0;
  for (int i = 0; i < v[from]->rank; i++) {
    uint16_t axis = v[from]->axis[i];
    if (has(v[from == A ? B : A], axis) != shared || contracted(c, axis) != summed || v[from]->size[i] == 1)
      continue;
    Loop k = {v[from]->size[i], {0}};
    for (int j = 0; j < 3; j++) k.s[j] = stride(v[j], axis, &k.n);
    int64_t at = n++;
    for (; at > 0 && all[at - 1].s[order] < k.s[order]; at--) all[at] = all[at - 1];
    all[at] = k;
  }
  for (int64_t i = 0; i < n; i++) {
    Loop *last = merged ? &out[merged - 1] : NULL;
    bool joins = last != NULL;
    for (int j = 0; j < 3 && joins; j++) joins = last->s[j] == all[i].s[j] * all[i].n;
    if (joins) *last = (Loop){last->n * all[i].n, {all[i].s[A], all[i].s[B], all[i].s[C]}};
    else out[merged++] = all[i];
  }
  return merged;
}

static int64_t steps(const Loop *l, int64_t n) {
  int64_t all = 1;
  for (int64_t i = 0; i < n; i++) all *= l[i].n;
  return all;
}

/* Dense operands in their obvious order. */
static void pack(Shape *s) {
  int64_t batch = replay_batch(s);
  memset(s->loop, 0, sizeof s->loop);
  s->nloops = batch > 1;
  if (batch > 1) s->loop[0] = (Loop){batch, {s->M * s->K, s->K * s->N, s->M * s->N}};
  s->rs[A] = s->K, s->rs[B] = s->rs[C] = s->N;
  s->cs[A] = s->cs[B] = s->cs[C] = 1;
  s->packed = 1;
}

static void swap_operands(Shape *s) {
  Shape t = *s;
  s->M = t.N, s->N = t.M;
  for (int k = 0; k < 3; k++) {
    int from = k == C ? C : 1 - k;
    s->rs[k] = t.cs[from], s->cs[k] = t.rs[from], s->elem[k] = t.elem[from];
    for (int i = 0; i < s->nloops; i++) s->loop[i].s[k] = t.loop[i].s[from];
  }
}

/* One stride of each operand must be 1; where a side has one element its stride is what makes that so. */
static bool unit(Shape *s, int k) {
  int64_t rows = k == B ? s->K : s->M, cols = k == A ? s->K : s->N;
  if (cols == 1) s->cs[k] = 1, s->rs[k] = s->rs[k] > 0 ? s->rs[k] : 1;
  else if (rows == 1) s->rs[k] = s->cs[k] == 1 ? cols : 1;
  return (s->cs[k] == 1 && s->rs[k] >= cols) || (s->rs[k] == 1 && s->cs[k] >= rows);
}

/* True if the operands changed places, so that rows of C are dense. */
static bool finish(Shape *s) {
  if (!unit(s, A) || !unit(s, B) || !unit(s, C)) return pack(s), false;
  if (s->cs[C] == 1) return false;
  swap_operands(s);
  return true;
}

static void add_dot(List *l, const ZpSegment *g, const ZpNode *n) {
  const ZkCall *c = &n->call;
  const ZkView *v[3] = {&c->in[0], &c->in[1], &c->out[0]};
  Loop batch[ZK_MAX_AXES], m[ZK_MAX_AXES], nn[ZK_MAX_AXES], k[ZK_MAX_AXES];
  int64_t nb = loops(v, A, true, false, C, c, batch), nm = loops(v, A, false, false, C, c, m),
          nk = loops(v, A, true, true, A, c, k), nnn = loops(v, B, false, false, C, c, nn);
  bool swapped = false;
  Shape s;
  memset(&s, 0, sizeof s);
  s.M = nm ? m[nm - 1].n : 1, s.N = nnn ? nn[nnn - 1].n : 1, s.K = nk ? k[nk - 1].n : 1;
  s.rs[A] = nm ? m[nm - 1].s[A] : 0, s.cs[A] = nk ? k[nk - 1].s[A] : 0;
  s.rs[B] = nk ? k[nk - 1].s[B] : 0, s.cs[B] = nnn ? nn[nnn - 1].s[B] : 0;
  s.rs[C] = nm ? m[nm - 1].s[C] : 0, s.cs[C] = nnn ? nn[nnn - 1].s[C] : 0;
  for (int i = 0; i < 3; i++) s.elem[i] = v[i]->elem;
  if (nk > 1 || nb + (nm ? nm - 1 : 0) + (nnn ? nnn - 1 : 0) > MAX_LOOPS) { /* all of it copied */
    s.M = steps(m, nm), s.N = steps(nn, nnn), s.K = steps(k, nk);
    s.nloops = 1, s.loop[0].n = steps(batch, nb);
    pack(&s);
  } else { /* what did not merge is batched */
    for (int64_t i = 0; i < nb; i++) s.loop[s.nloops++] = batch[i];
    for (int64_t i = 0; i + 1 < nm; i++) s.loop[s.nloops++] = m[i];
    for (int64_t i = 0; i + 1 < nnn; i++) s.loop[s.nloops++] = nn[i];
    swapped = finish(&s);
  }
  s.weights = g->values[n->in[swapped ? 0 : 1]].at.space == ZP_AT_PARAM;
  add(l, &s, "dot", c, swapped);
}

/* ---- convolutions: by libraries' way, of windows that are gathered already ---- */
static void add_conv(List *l, const ZpSegment *g, const ZpNode *n) {
  const ZkCall *c = &n->call;
  const ZkView *t[3];
  for (int i = 0; i < 3; i++) t[zg_conv_tensor(c->op, i)] = i < 2 ? &c->in[i] : &c->out[0];
  int64_t rows = 1, windows = 1, cols = 1, batch = 1, one = 1;
  for (int d = 0; d < c->nax; d += 3)
    stride(t[ZG_CONV_Y], c->ax[d + 2], &one), rows *= one, stride(t[ZG_CONV_W], c->ax[d + 1], &one),
        windows *= one;
  for (int v = 0; v < 3; v++)
    for (int i = 0; i < t[v]->rank; i++) {
      uint16_t axis = t[v]->axis[i];
      bool x = has(t[ZG_CONV_X], axis), w = has(t[ZG_CONV_W], axis), y = has(t[ZG_CONV_Y], axis);
      if (contracted(c, axis) || (v > 0 && x) || (v > 1 && w)) continue; /* spatial, or seen before */
      *(x && w && y ? &batch : x && w ? &windows : x ? &rows : &cols) *= t[v]->size[i];
    }
  Shape s;
  memset(&s, 0, sizeof s);
  s.M = c->op == ZG_OP_CONV_GRAD ? windows : rows;
  s.K = c->op == ZG_OP_CONV ? windows : c->op == ZG_OP_CONV_GRAD ? rows : cols;
  s.N = c->op == ZG_OP_CONV_TRANSPOSE ? windows : cols;
  for (int i = 0; i < 3; i++) s.elem[i] = i < 2 ? c->in[i].elem : c->out[0].elem;
  s.nloops = batch > 1, s.loop[0].n = batch > 1 ? batch : 0;
  pack(&s);
  s.weights = c->op != ZG_OP_CONV_GRAD && g->values[n->in[1]].at.space == ZP_AT_PARAM;
  add(l, &s, zg_op_info[c->op].text, NULL, false);
}

/* ---- experts ---- */
/* Rows of each expert with its own weight: products side by side, each of the average number of rows, in all
 * rounds. */
static void add_grouped(List *l, const ZpNode *n) {
  const ZkCall *c = &n->call;
  const ZkView *x = &c->in[0], *y = &c->in[1];
  bool outer = c->op == ZG_OP_GROUPED_OUTER;
  int64_t experts = x->size[0], k = 1, all = 1;
  for (int i = 2; i < x->rank; i++) k *= x->size[i];
  for (int i = 0; i < y->rank; i++) all *= y->size[i];
  int64_t other = all / experts / (outer ? y->size[1] : k); /* y: rows; or a weight of k x other for each */
  int64_t rows = (int64_t)(n->flops / (2.0 * (double)experts * (double)k * (double)other) + 0.5);
  Shape s;
  memset(&s, 0, sizeof s);
  s.M = outer ? k : rows, s.K = outer ? rows : k, s.N = other;
  s.elem[A] = x->elem, s.elem[B] = y->elem, s.elem[C] = c->out[0].elem;
  s.nloops = 1, s.loop[0].n = experts;
  pack(&s);
  add(l, &s, "of experts", NULL, false);
}

/* ---- attention ---- */
typedef struct {
  const ZkView *v; /* NULL: scores, one square for each loop */
  bool turned;     /* columns are queries or keys instead of rows */
} Side;

static void add_square(List *l, const ZkCall *c, const ZkView *q, const char *what, const Side side[3]) {
  Shape s;
  memset(&s, 0, sizeof s);
  int64_t S = 0, H = 0, len[3][2], one;
  stride(q, c->ax[0], &S);
  stride(q, c->ax[1], &H);
  for (int k = 0; k < 3; k++) {
    const ZkView *v = side[k].v;
    int64_t along = v ? stride(v, c->ax[0], &one) : S, across = v ? stride(v, c->ax[1], &one) : 1;
    s.rs[k] = side[k].turned ? across : along, s.cs[k] = side[k].turned ? along : across;
    len[k][0] = side[k].turned && v ? H : S, len[k][1] = side[k].turned || !v ? S : H;
    s.elem[k] = q->elem;
  }
  s.M = len[A][0], s.K = len[A][1], s.N = len[B][1];
  int64_t dense[3] = {S * S, S * S, S * S};
  for (int i = q->rank; i-- > 0;) {
    uint16_t axis = q->axis[i];
    if (axis == c->ax[0] || axis == c->ax[1] || q->size[i] == 1) continue;
    Loop *p = &s.loop[s.nloops++];
    p->n = q->size[i];
    for (int k = 0; k < 3; k++) {
      p->s[k] = side[k].v ? stride(side[k].v, axis, &one) : dense[k];
      dense[k] *= q->size[i];
    }
  }
  for (int i = 0; i < s.nloops; i++)
    if (s.loop[i].s[C] == 0) s.packed = 1; /* gradients of keys that groups share: one for each group */
  if (s.packed) pack(&s);
  else finish(&s);
  add(l, &s, what, NULL, false);
}

static void add_attend(List *l, const ZkCall *c) {
  const ZkView *q = &c->in[0], *k = &c->in[1], *v = &c->in[2], *o = &c->out[0];
  add_square(l, c, q, "attend q k'", (Side[]){{q, false}, {k, true}, {NULL, false}});
  add_square(l, c, q, "attend p v", (Side[]){{NULL, false}, {v, false}, {o, false}});
}

static void add_attend_grad(List *l, const ZkCall *c) {
  const ZkView *g = &c->in[0], *q = &c->in[3], *k = &c->in[4], *v = &c->in[5];
  const ZkView *dq = &c->out[0], *dk = &c->out[1], *dv = &c->out[2];
  add_square(l, c, q, "attend g v'", (Side[]){{g, false}, {v, true}, {NULL, false}});
  add_square(l, c, q, "attend p' g", (Side[]){{NULL, true}, {g, false}, {dv, false}});
  add_square(l, c, q, "attend ds k", (Side[]){{NULL, false}, {k, false}, {dq, false}});
  add_square(l, c, q, "attend ds' q", (Side[]){{NULL, true}, {q, false}, {dk, false}});
}

/* ---- the walk ---- */
static void add_nodes(List *l, const ZpSegment *g, const ZpList *list) {
  for (const ZpNode *n = list->nodes; n < list->nodes + list->n; n++) {
    const ZkCall *c = &n->call;
    if (n->dims) continue;
    if (c->op == ZG_OP_DOT) add_dot(l, g, n);
    if (zg_is_conv(c->op)) add_conv(l, g, n);
    if (c->op == ZG_OP_GROUPED_DOT || c->op == ZG_OP_GROUPED_OUTER) add_grouped(l, n);
    if (c->op == ZG_OP_ATTEND) add_attend(l, c);
    if (c->op == ZG_OP_ATTEND_GRAD) add_attend_grad(l, c);
  }
}

Products replay_list(ZbArena *a, const ZpPlan *p) {
  List l = {.a = a};
  const ZpStage *st = &p->programs.stages[0];
  for (uint32_t i = 0; i < st->prog.ninstrs; i++) {
    const ZpInstr *in = &st->prog.instrs[i];
    if (in->op != ZP_I_FWD && in->op != ZP_I_BWD) continue;
    const ZpSegment *g = &p->programs.segments[st->insts[in->inst].segment];
    add_nodes(&l, g, &g->list[zp_phase(in->op)]);
  }
  return l.all;
}
