/* Elementwise nodes become chains: one pass over memory for a run of them.
 *
 * Needs a sharded node list; provides one without EW nodes. A value is a *root* if it must exist in memory: another kind
 * of node, another phase or an elementwise node over a larger space reads it. Everything else is computed inside the
 * chains of the roots that need it (cheap work is done twice rather than stored). A chain takes in further roots over
 * the same space when all they read exists where the chain stands, so that the gradients of a gated product, which
 * share their inputs, are one pass with two outputs. */
#include "runtime/plan/impl.h"

#include <string.h>

#define LEAF(i) (-(int)(i) - 1) /* operand: an input of the chain; otherwise the index of an op */

typedef struct {
  ZkChainOp op;
  int arg[3];
  uint32_t value;
} Link;
typedef struct {
  uint32_t at;                 /* index in the new list */
  ZgType space;
  uint32_t leaf[ZK_MAX_IN];
  uint32_t nleaf;
  Link link[ZK_CHAIN_MAX_OPS];
  uint32_t nlink;
  uint32_t out[ZK_MAX_OUT]; /* values */
  int out_link[ZK_MAX_OUT];
  uint32_t nout;
} Chain;

typedef struct {
  ZpPlan *p;
  ZpSegment *s;
  const ZpNode *nodes;
  uint32_t n;
  uint32_t *maker; /* value -> node of this list, or ZP_NONE */
  uint32_t *stands; /* value -> 1 + index in the new list where it is made; 0: before the list */
  bool *root;
  Chain *chains;
  uint32_t nchains;
} Fuse;

static bool is_ew(const ZpNode *n) { return zg_op_info[n->call.op].kind == ZG_EW; }
static bool is_constant(const ZpNode *n) { return n->call.op == ZG_OP_FILL; }

static void find_roots(Fuse *f, const bool *needed_later) {
  for (uint32_t i = 0; i < f->n; i++) {
    const ZpNode *n = &f->nodes[i];
    for (int k = 0; k < n->call.nin; k++) {
      uint32_t v = n->in[k], m = f->maker[v];
      if (m == ZP_NONE || !is_ew(&f->nodes[m])) continue;
      bool grows = is_ew(n) && !zp_same_space(&f->s->values[v].type, &f->s->values[n->out[0]].type);
      if (!is_ew(n) || (grows && !is_constant(&f->nodes[m]))) f->root[v] = true;
    }
    for (int k = 0; is_ew(n) && k < n->call.nout; k++)
      if (needed_later[n->out[k]] || f->s->values[n->out[k]].at.place != ZP_AT_NOWHERE) f->root[n->out[k]] = true;
  }
}

static int find_link(const Chain *c, uint32_t value) {
  for (uint32_t i = 0; i < c->nlink; i++)
    if (c->link[i].value == value) return (int)i;
  return -1;
}

/* Makes `value` available in the chain; false if it does not fit. `limit`: leaves must stand before this place. */
static bool pull(Fuse *f, Chain *c, uint32_t value, bool top, uint32_t limit, int *arg) {
  int have = find_link(c, value);
  if (have >= 0) return *arg = have, true;
  uint32_t m = f->maker[value];
  if (m == ZP_NONE || !is_ew(&f->nodes[m]) || (f->root[value] && !top)) {
    if (f->stands[value] > limit) return false;
    for (uint32_t i = 0; i < c->nleaf; i++)
      if (c->leaf[i] == value) return *arg = LEAF(i), true;
    if (c->nleaf == ZK_MAX_IN) return false;
    c->leaf[c->nleaf] = value;
    *arg = LEAF(c->nleaf++);
    return true;
  }
  const ZpNode *n = &f->nodes[m];
  Link l = {.value = value, .op = {.op = n->call.op, .num = (float)n->call.num[0], .elem = f->s->values[value].elem}};
  for (int i = 0; i < n->call.nin; i++)
    if (!pull(f, c, n->in[i], false, limit, &l.arg[i])) return false;
  if (c->nlink == ZK_CHAIN_MAX_OPS) return false;
  c->link[c->nlink] = l;
  *arg = (int)c->nlink++;
  return true;
}

/* A root too large for one chain gets its largest operand rooted, until it fits. */
static void limit_size(Fuse *f, Chain *scratch) {
  for (uint32_t i = 0; i < f->n; i++) {
    const ZpNode *n = &f->nodes[i];
    if (!is_ew(n)) continue;
    for (;;) {
      int arg;
      scratch->nleaf = scratch->nlink = 0;
      if (pull(f, scratch, n->out[0], true, UINT32_MAX, &arg)) break;
      uint32_t largest = ZP_NONE, most = 0;
      for (int k = 0; k < n->call.nin; k++) {
        uint32_t m = f->maker[n->in[k]];
        if (m == ZP_NONE || !is_ew(&f->nodes[m]) || f->root[n->in[k]]) continue;
        scratch->nleaf = scratch->nlink = 0;
        pull(f, scratch, n->in[k], true, UINT32_MAX, &arg);
        if (scratch->nlink >= most) most = scratch->nlink, largest = n->in[k];
      }
      ZB_ASSERT(largest != ZP_NONE);
      f->root[largest] = true;
    }
  }
}

static bool add_output(Fuse *f, Chain *c, uint32_t value, uint32_t limit) {
  int arg;
  if (c->nout == ZK_MAX_OUT || !pull(f, c, value, true, limit, &arg)) return false;
  c->out[c->nout] = value;
  c->out_link[c->nout++] = arg;
  return true;
}

/* Tries to let an earlier chain make `value` as well. */
static bool join_earlier(Fuse *f, uint32_t value) {
  const ZgType *space = &f->s->values[value].type;
  for (uint32_t back = 0; back < 8 && back < f->nchains; back++) {
    Chain *c = &f->chains[f->nchains - 1 - back];
    if (!zp_same_space(&c->space, space)) continue;
    Chain before = *c;
    if (add_output(f, c, value, c->at)) {
      f->stands[value] = c->at + 1;
      return true;
    }
    *c = before;
  }
  return false;
}

static void finish(const Fuse *f, const Chain *c, ZpNode *n) {
  ZbArena *a = f->p->arena;
  ZkChain *k = ZB_NEW(a, ZkChain);
  k->nops = (uint16_t)c->nlink;
  k->nout = (uint16_t)c->nout;
  k->ops = ZB_NEWN(a, ZkChainOp, c->nlink + 1);
#define REG(arg) (uint16_t)((arg) < 0 ? -(arg)-1 : (int)c->nleaf + (arg))
  for (uint32_t i = 0; i < c->nlink; i++) {
    k->ops[i] = c->link[i].op;
    k->ops[i].a = REG(c->link[i].arg[0]);
    k->ops[i].b = REG(c->link[i].arg[1]);
    k->ops[i].c = REG(c->link[i].arg[2]);
  }
  for (uint32_t i = 0; i < c->nout; i++) {
    k->out[i] = REG(c->out_link[i]);
    n->out[i] = c->out[i];
  }
#undef REG
  n->call.chain = k;
  n->call.nin = (uint8_t)c->nleaf;
  n->call.nout = (uint8_t)c->nout;
  memcpy(n->in, c->leaf, sizeof n->in);
}

void zp_fuse(ZpPlan *p, ZpSegment *s, ZpNode **nodes, uint32_t *n, const bool *needed_later) {
  ZbArena *tmp = zb_arena_new();
  Fuse f = {.p = p, .s = s, .nodes = *nodes, .n = *n};
  f.maker = ZB_NEWN(tmp, uint32_t, s->nvalues + 1);
  f.stands = ZB_NEWN(tmp, uint32_t, s->nvalues + 1);
  f.root = ZB_NEWN(tmp, bool, s->nvalues + 1);
  f.chains = ZB_NEWN(tmp, Chain, f.n + 1);
  memset(f.maker, 0xff, s->nvalues * sizeof *f.maker);
  for (uint32_t i = 0; i < f.n; i++)
    for (int k = 0; k < f.nodes[i].call.nout; k++) f.maker[f.nodes[i].out[k]] = i;
  find_roots(&f, needed_later);
  limit_size(&f, &f.chains[f.n]);

  ZpNode *out = ZB_NEWN(p->arena, ZpNode, f.n);
  uint32_t count = 0;
  for (uint32_t i = 0; i < f.n; i++) {
    const ZpNode *m = &f.nodes[i];
    if (!is_ew(m)) {
      for (int k = 0; k < m->call.nout; k++) f.stands[m->out[k]] = count + 1;
      out[count++] = *m;
      continue;
    }
    uint32_t v = m->out[0];
    if (!f.root[v] || join_earlier(&f, v)) continue;
    Chain *c = &f.chains[f.nchains++];
    memset(c, 0, sizeof *c);
    c->at = count;
    c->space = s->values[v].type;
    bool fits = add_output(&f, c, v, count);
    ZB_ASSERT(fits);
    f.stands[v] = count + 1;
    out[count] = (ZpNode){.call.op = ZG_OP_CHAIN, .loc = m->loc, .region = m->region, .split = m->split, .again = m->again};
    count++;
  }
  for (uint32_t i = 0; i < f.nchains; i++) finish(&f, &f.chains[i], &out[f.chains[i].at]);
  *nodes = out;
  *n = count;
  zb_arena_free(tmp);
}
