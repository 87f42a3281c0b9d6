/* Elementwise nodes become pointwise nodes: one pass over memory for many of them.
 *
 * Needs a sharded list; provides one without elementwise nodes. A value is a *root* if it must exist in
 * memory: another kind of node, another phase or an elementwise node over a larger space reads it. Every
 * other value is computed inside the pointwise nodes of the roots that need it: cheap work is done twice
 * rather than stored. A pointwise node takes in further roots over the same space if all that they read
 * exists where it stands. So the gradients of a gated product, which share their inputs, are one pass with
 * two outputs. */
#include "runtime/plan/local/rewrite.h"

#include <string.h>

#define LOOK_BACK 8            /* earlier pointwise nodes that a root may go into */
#define INPUT(i) (-(int)(i)-1) /* operand: an input of the node; otherwise the index of an instruction */

typedef struct {
  ZkPointwiseOp op;
  int arg[3];
  uint32_t value;
} Instr;

typedef struct {
  uint32_t at; /* index in the new list */
  uint32_t rounds;
  uint32_t in[ZK_MAX_IN]; /* values */
  uint32_t nin;
  Instr instr[ZK_POINTWISE_MAX_OPS];
  uint32_t ninstr;
  uint32_t out[ZK_POINTWISE_OUT]; /* values */
  int out_instr[ZK_POINTWISE_OUT];
  uint32_t nout;
} Pointwise;

typedef struct {
  const ZpRewrite *r;
  uint32_t *stands; /* by value: 1 + index in the new list where it is made; 0: before the list */
  bool *root;       /* by value */
  Pointwise *made;
  uint32_t nmade;
} Fuse;

static bool is_ew(const ZpNode *n) { return zg_op_info[n->call.op].kind == ZG_EW; }

/* Returns the elementwise node that makes the value, or NULL. */
static const ZpNode *ew_of(const Fuse *f, uint32_t value) {
  uint32_t m = f->r->maker[value];
  return m != ZP_NONE && is_ew(&f->r->nodes[m]) ? &f->r->nodes[m] : NULL;
}

static void find_roots(Fuse *f) {
  for (uint32_t i = 0; i < f->r->n; i++) {
    const ZpNode *n = &f->r->nodes[i];
    for (int k = 0; k < n->call.nin; k++) {
      const ZpNode *m = ew_of(f, n->in[k]);
      if (!m) continue;
      bool grows = is_ew(n) && !zp_same_space(zp_value(f->r, n->in[k]), zp_value(f->r, n->out[0]));
      if (!is_ew(n) || (grows && m->call.op != ZG_OP_FILL)) f->root[n->in[k]] = true;
    }
    for (int k = 0; is_ew(n) && k < n->call.nout; k++)
      if (f->r->needed_later[n->out[k]] || !zp_unplaced(f->r, n->out[k])) f->root[n->out[k]] = true;
  }
}

static int find_instr(const Pointwise *c, uint32_t value) {
  for (uint32_t i = 0; i < c->ninstr; i++)
    if (c->instr[i].value == value) return (int)i;
  return -1;
}

static bool add_input(Pointwise *c, uint32_t value, int *arg) {
  for (uint32_t i = 0; i < c->nin; i++)
    if (c->in[i] == value) return *arg = INPUT(i), true;
  if (c->nin == ZK_MAX_IN) return false;
  c->in[c->nin] = value;
  *arg = INPUT(c->nin++);
  return true;
}

/* Makes `value` available in the node; false if it does not fit. `top`: computes it though it is a root.
 * `limit`: inputs must be made before this place of the new list. */
static bool pull(Fuse *f, Pointwise *c, uint32_t value, bool top, uint32_t limit, int *arg) {
  int have = find_instr(c, value);
  if (have >= 0) return *arg = have, true;
  const ZpNode *n = ew_of(f, value);
  if (!n || (f->root[value] && !top)) return f->stands[value] <= limit && add_input(c, value, arg);
  Instr q = {.value = value,
             .op = {.op = n->call.op, .num = (float)n->call.num[0], .elem = zp_value(f->r, value)->elem}};
  for (int i = 0; i < n->call.nin; i++)
    if (!pull(f, c, n->in[i], false, limit, &q.arg[i])) return false;
  if (c->ninstr == ZK_POINTWISE_MAX_OPS) return false;
  c->instr[c->ninstr] = q;
  *arg = (int)c->ninstr++;
  return true;
}

/* Instructions that `value` alone takes, as far as they fit. */
static bool pull_alone(Fuse *f, Pointwise *scratch, uint32_t value) {
  int arg;
  scratch->nin = scratch->ninstr = 0;
  return pull(f, scratch, value, true, UINT32_MAX, &arg);
}

/* A root too large for one node gets its largest operand rooted, until it fits. */
static void limit_size(Fuse *f, Pointwise *scratch) {
  for (uint32_t i = 0; i < f->r->n; i++) {
    const ZpNode *n = &f->r->nodes[i];
    while (is_ew(n) && !pull_alone(f, scratch, n->out[0])) {
      uint32_t largest = ZP_NONE, most = 0;
      for (int k = 0; k < n->call.nin; k++) {
        if (!ew_of(f, n->in[k]) || f->root[n->in[k]]) continue;
        pull_alone(f, scratch, n->in[k]);
        if (scratch->ninstr >= most) most = scratch->ninstr, largest = n->in[k];
      }
      ZB_ASSERT(largest != ZP_NONE);
      f->root[largest] = true;
    }
  }
}

static bool add_output(Fuse *f, Pointwise *c, uint32_t value, uint32_t limit) {
  int arg;
  if (c->nout == ZK_POINTWISE_OUT || !pull(f, c, value, true, limit, &arg)) return false;
  c->out[c->nout] = value;
  c->out_instr[c->nout++] = arg;
  return true;
}

/* Tries to let an earlier node make `value` as well. */
static bool add_to_earlier(Fuse *f, uint32_t value, uint32_t rounds) {
  for (uint32_t back = 0; back < LOOK_BACK && back < f->nmade; back++) {
    Pointwise *c = &f->made[f->nmade - 1 - back];
    if (!zp_same_space(zp_value(f->r, c->out[0]), zp_value(f->r, value)) || c->rounds != rounds) continue;
    Pointwise before = *c;
    if (add_output(f, c, value, c->at)) {
      f->stands[value] = c->at + 1;
      return true;
    }
    *c = before;
  }
  return false;
}

static void put_call(const Fuse *f, const Pointwise *c, ZpNode *n) {
  ZbArena *a = f->r->b->p->arena;
  ZkPointwise *k = ZB_NEW(a, ZkPointwise);
  k->nops = (uint16_t)c->ninstr;
  k->nout = (uint16_t)c->nout;
  k->ops = ZB_NEWN(a, ZkPointwiseOp, c->ninstr + 1);
#define REG(arg) (uint16_t)((arg) < 0 ? -(arg)-1 : (int)c->nin + (arg))
  for (uint32_t i = 0; i < c->ninstr; i++) {
    k->ops[i] = c->instr[i].op;
    k->ops[i].a = REG(c->instr[i].arg[0]);
    k->ops[i].b = REG(c->instr[i].arg[1]);
    k->ops[i].c = REG(c->instr[i].arg[2]);
  }
  for (uint32_t i = 0; i < c->nout; i++) {
    k->out[i] = REG(c->out_instr[i]);
    n->out[i] = c->out[i];
  }
#undef REG
  n->call.pointwise = k;
  n->call.nin = (uint8_t)c->nin;
  n->call.nout = (uint8_t)c->nout;
  memcpy(n->in, c->in, sizeof n->in);
}

/* Returns a pointwise node for the root that elementwise node n makes, as number `at` of the new list. */
static ZpNode new_node(Fuse *f, const ZpNode *n, uint32_t at) {
  Pointwise *c = &f->made[f->nmade++];
  memset(c, 0, sizeof *c);
  c->at = at;
  c->rounds = n->rounds;
  bool fits = add_output(f, c, n->out[0], at);
  ZB_ASSERT(fits);
  f->stands[n->out[0]] = at + 1;
  return (ZpNode){.call.op = ZG_OP_POINTWISE,
                  .loc = n->loc,
                  .region = n->region,
                  .rounds = n->rounds,
                  .split = n->split,
                  .recomputed = n->recomputed};
}

void zp_fuse_pointwise(ZpRewrite *r) {
  ZbArena *tmp = zb_arena_new();
  Fuse f = {.r = r,
            .stands = ZB_NEWN(tmp, uint32_t, r->s->nvalues + 1),
            .root = ZB_NEWN(tmp, bool, r->s->nvalues + 1)};
  f.made = ZB_NEWN(tmp, Pointwise, r->n + 1);
  find_roots(&f);
  limit_size(&f, &f.made[r->n]);
  ZpNode *out = ZB_NEWN(r->b->p->arena, ZpNode, r->n);
  uint32_t count = 0;
  for (uint32_t i = 0; i < r->n; i++) {
    const ZpNode *n = &r->nodes[i];
    if (is_ew(n)) {
      if (!f.root[n->out[0]] || add_to_earlier(&f, n->out[0], n->rounds)) continue;
      out[count] = new_node(&f, n, count);
    } else {
      out[count] = *n;
      for (int k = 0; k < n->call.nout; k++) f.stands[n->out[k]] = count + 1;
    }
    count++;
  }
  for (uint32_t i = 0; i < f.nmade; i++) put_call(&f, &f.made[i], &out[f.made[i].at]);
  zp_set_nodes(r, out, count);
  zb_arena_free(tmp);
}
