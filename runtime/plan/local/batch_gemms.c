/* GEMMs that share one operand become one batched GEMM if their other tensors are contiguous: q, k and v of
 * one x, gate and up, the gradients of their weights.
 *
 * Such GEMMs agree in everything but which tensors they read and make. The batched GEMM has one axis more,
 * the slowest, which numbers them; the shared operand lacks it. Weights and gradients are contiguous if they
 * are declared one after the other; memory.c is asked to make other tensors so. Hence two passes:
 *
 * zp_group_gemms   before anything is placed, moves such GEMMs to the first of them, in the order of their
 *                  parameters. They are a *group*: nodes that run as one unit until the second pass. A node
 *                  that makes what they read is asked to make it contiguous. The device is shown the batched
 *                  call and says whether it supports it.
 * zp_batch_gemms   when all is placed, makes one node of every group whose tensors are contiguous. Of the
 *                  other groups only the order is left. A value of the batched node names the values that it
 *                  consists of (ZpValue: member).
 *
 * Example: q[b s h] = dot(x, wq), k = dot(x, wk), v = dot(x, wv) become
 * qkv[3 b s h] = dot(x[b s e], w[3 e h]). */
#include "runtime/plan/local/batch_gemms.h"

#include <string.h>

ZpGemmGroups zp_no_groups(ZbArena *a, const ZpSegment *s) {
  return (ZpGemmGroups){ZB_NEWN(a, uint8_t, s->nvalues + 1), ZB_NEWN(a, bool, s->nvalues + 1), s->nvalues};
}

/* ---- the call ---- */
static uint16_t batch_axis(const ZpPlan *p) { return (uint16_t)p->graph->naxes; } /* no model's */

static ZkView batched_view(const ZpPlan *p, const ZpValue *v, uint32_t n) {
  ZkView one = zp_view(p, v), w = one;
  int64_t count = 1;
  for (int a = 0; a < one.rank; a++) {
    count *= one.size[a];
    w.axis[a + 1] = one.axis[a], w.size[a + 1] = one.size[a];
    w.stride[a + 1] = one.stride[a], w.whole[a + 1] = one.whole[a];
  }
  w.axis[0] = batch_axis(p);
  w.size[0] = w.whole[0] = n;
  w.stride[0] = count;
  w.rank++;
  return w;
}

/* Returns whether GEMMs of a group share input i; they all do, or all differ. */
static bool shared(const ZpNode *group, int i) { return group[0].in[i] == group[1].in[i]; }

ZkCall zp_batched_call(const ZpPlan *p, const ZpSegment *s, const ZpNode *group, uint32_t n) {
  ZkCall c = group->call;
  for (int i = 0; i < c.nin; i++) {
    const ZpValue *v = &s->values[group->in[i]];
    c.in[i] = shared(group, i) ? zp_view(p, v) : batched_view(p, v, n);
  }
  for (int i = 0; i < c.nout; i++) c.out[i] = batched_view(p, &s->values[group->out[i]], n);
  return c;
}

/* ---- which go together ---- */
static bool same_function(const ZkPointwise *a, const ZkPointwise *b) {
  if (!a || !b) return !a && !b;
  bool same = a->nops == b->nops && a->nout == b->nout && !memcmp(a->out, b->out, a->nout * sizeof *a->out);
  for (int i = 0; same && i < a->nops; i++) {
    const ZkPointwiseOp *x = &a->ops[i], *y = &b->ops[i];
    same = x->op == y->op && x->a == y->a && x->b == y->b && x->c == y->c && x->elem == y->elem &&
           x->num == y->num;
  }
  return same;
}

/* Returns whether x and y can be contiguous: in one buffer, or where memory.c will put both. */
static bool may_be_contiguous(const ZpRewrite *r, uint32_t x, uint32_t y) {
  const ZpValue *v = zp_value(r, x), *w = zp_value(r, y);
  bool room = v->type.naxes < ZK_MAX_AXES; /* for one axis more */
  bool same =
      v->at.space == w->at.space && v->at.index == w->at.index && r->needed_later[x] == r->needed_later[y];
  return x != y && room && same && zp_same_layout(v, w);
}

static bool is_gemm(const ZpNode *n) { return n->call.op == ZG_OP_DOT || n->call.op == ZG_OP_DOT_BIAS_GRAD; }

/* Returns whether GEMM m is like GEMM i but for one operand, and what its epilogue reads. Of dot_bias_grad,
 * in[0] is shared. */
static bool alike(const ZpRewrite *r, const ZpNode *i, const ZpNode *m) {
  const ZkCall *a = &i->call, *b = &m->call;
  if (!is_gemm(i) || a->op != b->op || a->nin != b->nin || a->nout != b->nout || a->nax != b->nax)
    return false;
  if (a->accumulate != b->accumulate || memcmp(a->ax, b->ax, a->nax * sizeof *a->ax)) return false;
  if (!same_function(a->pointwise, b->pointwise)) return false;
  bool first = i->in[0] == m->in[0], second = i->in[1] == m->in[1] && a->op == ZG_OP_DOT;
  if (first == second) return false;
  for (int l = 0; l < a->nin; l++)
    if (l != !first && !may_be_contiguous(r, i->in[l], m->in[l])) return false;
  for (int l = 0; l < a->nout; l++)
    if (!may_be_contiguous(r, i->out[l], m->out[l])) return false;
  return true;
}

static bool may_rise(const ZpRewrite *r, uint32_t m, uint32_t i) {
  for (int l = 0; l < r->nodes[m].call.nin; l++)
    if (!zp_made_before(r, r->nodes[m].in[l], i)) return false;
  return true;
}

/* ---- groups ---- */
/* Returns a node's values: its inputs, then its results. */
static uint32_t value_of(const ZpNode *n, int l) {
  return l < n->call.nin ? n->in[l] : n->out[l - n->call.nin];
}

/* Returns the value by whose offset a group is ordered: a parameter or a gradient, else the first result. */
static int key_of(const ZpRewrite *r, const ZpNode *group) {
  for (int l = 0; l < group->call.nin + group->call.nout; l++) {
    uint8_t place = zp_value(r, value_of(group, l))->at.space;
    if ((l >= group->call.nin || !shared(group, l)) && (place == ZP_AT_PARAM || place == ZP_AT_GRAD))
      return l;
  }
  return group->call.nin;
}

static void sort_group(const ZpRewrite *r, ZpNode *group, uint32_t n) {
  int key = key_of(r, group);
  for (uint32_t i = 1; i < n; i++)
    for (uint32_t j = i; j > 0; j--) {
      if (zp_value(r, value_of(&group[j], key))->at.offset >=
          zp_value(r, value_of(&group[j - 1], key))->at.offset)
        break;
      ZpNode swap = group[j];
      group[j] = group[j - 1], group[j - 1] = swap;
    }
}

/* The group stands where its first node did, the other nodes keep their order. which[] ascends. */
static void move_group(ZpRewrite *r, const uint32_t *which, const ZpNode *group, uint32_t n) {
  uint32_t at = which[n - 1] + 1, left = n;
  for (uint32_t i = at; i-- > which[0];) {
    if (left > 0 && which[left - 1] == i) left--;
    else r->nodes[--at] = r->nodes[i];
  }
  memcpy(&r->nodes[which[0]], group, n * sizeof *group);
  zp_set_nodes(r, r->nodes, r->n);
}

/* Asks that operands of the group that one node makes be contiguous. A pointwise node takes its operands'
 * memory instead. */
static void ask_for_contiguous(const ZpRewrite *r, ZpGemmGroups *g, const ZpNode *group, uint32_t n) {
  for (int l = 0; l < group->call.nin; l++) {
    uint32_t m = r->maker[group->in[l]];
    bool one = m != ZP_NONE && !shared(group, l) && r->nodes[m].call.op != ZG_OP_POINTWISE;
    for (uint32_t i = 1; i < n; i++) one = one && r->maker[group[i].in[l]] == m;
    if (one && zp_unplaced(r, group->in[l])) g->contiguous[r->nodes[m].out[0]] = true;
  }
}

/* Returns the GEMMs that may be one with node i, itself the first, into which[]. */
static uint32_t find_group(const ZpRewrite *r, uint32_t i, uint32_t *which) {
  uint32_t count = 1;
  which[0] = i;
  for (uint32_t m = i + 1; m < r->n && count < ZP_MAX_GROUP; m++) {
    bool fits = may_rise(r, m, i);
    for (uint32_t j = 0; j < count; j++) fits = fits && alike(r, &r->nodes[which[j]], &r->nodes[m]);
    if (fits) which[count++] = m;
  }
  return count;
}

void zp_group_gemms(ZpRewrite *r, ZpGemmGroups *g) {
  for (uint32_t i = 0; i < r->n; i++) {
    uint32_t which[ZP_MAX_GROUP], count = find_group(r, i, which);
    if (count == 1) continue;
    ZpNode group[ZP_MAX_GROUP];
    for (uint32_t j = 0; j < count; j++) group[j] = r->nodes[which[j]];
    sort_group(r, group, count);
    ZkCall c = zp_batched_call(r->b->p, r->s, group, count);
    if (!r->b->o->supports(&c)) continue;
    g->group[group->out[0]] = (uint8_t)count;
    move_group(r, which, group, count);
    ask_for_contiguous(r, g, group, count);
    i += count - 1;
  }
}

/* ---- one node of a group ---- */
/* Value l of each node of the group into part[]; whether they are contiguous. */
static bool contiguous(const ZpRewrite *r, const ZpNode *group, uint32_t n, int l, uint32_t *part) {
  for (uint32_t i = 0; i < n; i++) {
    part[i] = value_of(&group[i], l);
    const ZpValue *x = zp_value(r, part[i ? i - 1 : 0]), *y = zp_value(r, part[i]);
    bool behind =
        y->at.space == x->at.space && y->at.index == x->at.index && y->at.offset == x->at.offset + x->bytes;
    if (i && !behind) return false;
  }
  return true;
}

static bool all_contiguous(const ZpRewrite *r, const ZpNode *group, uint32_t n) {
  uint32_t part[ZP_MAX_GROUP];
  for (int l = 0; l < group->call.nin + group->call.nout; l++)
    if ((l >= group->call.nin || !shared(group, l)) && !contiguous(r, group, n, l, part)) return false;
  for (uint32_t i = 1; i < n; i++)
    if (group[i].overwrites != group->overwrites) return false;
  return true;
}

static ZpNode batched_node(ZpRewrite *r, const ZpNode *group, uint32_t n) {
  ZpSegment *s = r->s;
  ZpNode to = *group;
  to.call = zp_batched_call(r->b->p, s, group, n);
  for (uint32_t i = 1; i < n; i++) to.flops += group[i].flops;
  for (int l = 0; l < group->call.nin + group->call.nout; l++) {
    bool in = l < group->call.nin;
    if (in && shared(group, l)) continue;
    ZpValue w = s->values[value_of(group, l)];
    w.bytes *= n;
    w.nmembers = (uint8_t)n;
    contiguous(r, group, n, l, w.member);
    ZB_PUSH(r->b->p->arena, s->values, s->nvalues, w);
    *(in ? &to.in[l] : &to.out[l - group->call.nin]) = s->nvalues - 1;
  }
  return to;
}

void zp_batch_gemms(ZpRewrite *r, const ZpGemmGroups *g) {
  for (uint32_t i = 0, n; i < r->n; i += n ? n : 1) {
    n = zp_group_of(g, &r->nodes[i]);
    if (!n || !all_contiguous(r, &r->nodes[i], n)) continue;
    r->nodes[i] = batched_node(r, &r->nodes[i], n);
    for (uint32_t k = 1; k < n; k++) zp_drop(r, i + k);
  }
  zp_compact(r);
}
