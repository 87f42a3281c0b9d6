/* From the ops of a pointwise function to steps on an accumulator.
 *
 * First the ops become nodes: constants are folded, values that are the same for all elements being constants
 * here; signs are moved outwards (a + -b is a - b, -a * b is -(a * b)), which changes no rounding; a product
 * by two constants becomes one by their product. Then each result is computed depth first. A value that is
 * needed once is computed into the accumulator right before its use; one that is needed again, or as a second
 * operand, is stored into a temporary, unless it is in memory anyway. A sum with a product that is needed
 * nowhere else is one step. */
#include <math.h>

#include "kernels/cpu/pointwise.h"
#include "kernels/cpu/math.h"

#define MAX_NODES (2 * ZK_POINTWISE_REGS) /* registers, and what negates them */
#define NONE (-1)

typedef struct {
  int node; /* NONE: the number x */
  float x;
} Arg;
typedef struct {
  int node;
  bool minus;
} Ref; /* a register: a node or what is -node */

typedef struct {
  uint16_t op; /* of ops.def; CAST: `elem` is what to round to */
  uint8_t elem, nargs;
  Arg arg[3];
  int uses;     /* by what is yet to be computed, and as results to be stored */
  int place;    /* where it is; NONE: nowhere yet */
  bool bf16;    /* it is there as bf16 */
  bool visited; /* its operands know that they are used */
} Node;

typedef struct {
  ZkPointwiseCode *code;
  const ZkPointwiseLayout *layout;
  int nin, nout, nnodes, acc; /* acc: the node that the accumulator holds */
  Node node[MAX_NODES];
  Ref ref[ZK_POINTWISE_REGS];
  bool known[ZK_POINTWISE_REGS]; /* a constant: */
  float number[ZK_POINTWISE_REGS];
  Arg result[ZK_POINTWISE_OUT];
  bool stored[ZK_POINTWISE_OUT];
  bool busy[ZK_POINTWISE_PLACES]; /* temporaries */
} Coder;

/* ---- nodes ----------------------------------------------------------------------------------- */

static float evaluate(const ZkPointwiseOp *op, float a, float b, float c) {
  switch (op->op) {
  case ZG_OP_FILL:
  case ZG_OP_AXSIZE: return op->num;
  case ZG_OP_CAST:
    return op->elem == ZK_BF16 ? zb_bf16_to_f32(zb_f32_to_bf16(a)) : op->elem == ZK_I32 ? truncf(a) : a;
    /* clang-format off */
#define FN(name) zk_##name
#define POINTWISE(NAME, formula) case ZG_OP_##NAME: return formula;
#include "graph/pointwise.def"
    /* clang-format on */
  }
  ZB_BUG("op %d cannot be in a pointwise function", op->op);
}

static int new_node(Coder *c, Node n) {
  ZB_ASSERT(c->nnodes < MAX_NODES);
  n.place = NONE;
  c->node[c->nnodes] = n;
  return c->nnodes++;
}

/* A register as an operand; what has a minus gets a node of its own. */
static Arg value_of(Coder *c, int reg) {
  if (c->known[reg]) return (Arg){NONE, c->number[reg]};
  Ref *r = &c->ref[reg];
  if (r->minus)
    *r = (Ref){new_node(c, (Node){.op = ZG_OP_MUL, .nargs = 2, .arg = {{r->node, 0}, {NONE, -1}}}), false};
  return (Arg){r->node, 0};
}

/* A register without its sign. */
static Arg size_of(Coder *c, int reg, bool *minus) {
  *minus = !c->known[reg] && c->ref[reg].minus;
  return c->known[reg] ? (Arg){NONE, c->number[reg]} : (Arg){c->ref[reg].node, 0};
}

static bool power_of_two(float x) {
  return (zk_to_bits(x) & 0x007fffff) == 0 && isnormal(x) && isnormal(1 / x);
}

static Ref sum_node(Coder *c, const ZkPointwiseOp *op) {
  bool sa, sb;
  Arg a = size_of(c, op->a, &sa), b = size_of(c, op->b, &sb);
  sb ^= op->op == ZG_OP_SUB;
  if (b.node == NONE) { /* a constant goes second, and has its own sign */
    if (sb) b.x = -b.x;
    sb = false;
  }
  if (a.node == NONE && !sb) {
    Arg t = a;
    a = b, b = t;
    sa = false;
  }
  if (b.node == NONE && sa) { /* -a + x = x - a */
    Arg t = a;
    a = b, b = t;
    sa = false, sb = true;
  }
  Node n = {.op = sa != sb ? ZG_OP_SUB : ZG_OP_ADD, .nargs = 2, .arg = {a, b}};
  if (sa && !sb) n.arg[0] = b, n.arg[1] = a;
  return (Ref){new_node(c, n), sa && sb};
}

static Ref product_node(Coder *c, const ZkPointwiseOp *op) {
  bool sa, sb;
  Arg a = size_of(c, op->a, &sa), b = size_of(c, op->b, &sb);
  Node n = {.op = op->op, .nargs = 2, .arg = {a, b}};
  if (n.op == ZG_OP_MUL && a.node == NONE) n.arg[0] = b, n.arg[1] = a;
  Arg *x = &n.arg[1];
  if (n.op == ZG_OP_DIV && x->node == NONE && power_of_two(x->x)) n.op = ZG_OP_MUL, x->x = 1 / x->x;
  if (n.op == ZG_OP_MUL && x->node == NONE) { /* (a y) x = a (y x) */
    const Node *m = &c->node[n.arg[0].node];
    if (m->op == ZG_OP_MUL && m->arg[1].node == NONE && isnormal(m->arg[1].x * x->x)) {
      x->x *= m->arg[1].x;
      n.arg[0] = m->arg[0];
    }
  }
  return (Ref){new_node(c, n), sa != sb};
}

static void add_op(Coder *c, int reg, const ZkPointwiseOp *op) {
  const uint16_t arg[3] = {op->a, op->b, op->c};
  int n = zg_op_info[op->op].min_in;
  bool known = true;
  float x[3] = {0};
  for (int k = 0; k < n; k++) {
    ZB_ASSERT(arg[k] < reg);
    known &= c->known[arg[k]];
    x[k] = c->number[arg[k]];
  }
  if (known) {
    c->known[reg] = true;
    c->number[reg] = evaluate(op, x[0], x[1], x[2]);
    return;
  }
  Ref *r = &c->ref[reg];
  switch (op->op) {
  case ZG_OP_STOP:
  case ZG_OP_BROADCAST: *r = c->ref[op->a]; return;
  case ZG_OP_NEG: *r = (Ref){c->ref[op->a].node, !c->ref[op->a].minus}; return;
  case ZG_OP_ADD:
  case ZG_OP_SUB: *r = sum_node(c, op); return;
  case ZG_OP_MUL:
  case ZG_OP_DIV: *r = product_node(c, op); return;
  case ZG_OP_CAST:
    if (op->elem != ZK_BF16 && op->elem != ZK_I32) {
      *r = c->ref[op->a];
      return;
    }
  }
  Node node = {.op = op->op, .elem = (uint8_t)op->elem, .nargs = (uint8_t)n};
  for (int k = 0; k < n; k++) node.arg[k] = value_of(c, arg[k]);
  *r = (Ref){new_node(c, node), false};
}

static void use(Coder *c, Arg a) {
  if (a.node == NONE) return;
  Node *n = &c->node[a.node];
  n->uses++;
  if (n->visited) return;
  n->visited = true;
  for (int k = 0; k < n->nargs; k++) use(c, n->arg[k]);
}

static void make_nodes(Coder *c, const ZkPointwise *pointwise) {
  for (int i = 0; i < c->nin; i++) {
    c->known[i] = c->layout->in[i] == ZK_LIES_SAME;
    c->number[i] = c->layout->value[i];
    int node = new_node(c, (Node){.op = ZG_OP_INPUT});
    c->ref[i].node = node;
    c->node[node].place = i;
    c->node[node].bf16 = c->layout->in[i] == ZK_LIES_BF16;
  }
  for (int i = 0; i < pointwise->nops; i++) add_op(c, c->nin + i, &pointwise->ops[i]);
  for (int o = 0; o < c->nout; o++) use(c, c->result[o] = value_of(c, pointwise->out[o]));
}

/* ---- places ---------------------------------------------------------------------------------- */

static void emit(Coder *c, int id, int p, int q, float x, float y) {
  ZkPointwiseCode *k = c->code;
  ZB_ASSERT(k->nsteps < ZK_POINTWISE_MAX_STEPS);
  k->step[k->nsteps++] = (ZkStep){.id = id, .p = (uint8_t)p, .q = (uint8_t)q, .x = x, .y = y};
}

static int take_temp(Coder *c) {
  int i = c->code->temp;
  while (c->busy[i]) i++;
  c->busy[i] = true;
  if (i - c->code->temp >= c->code->ntemps) c->code->ntemps = i - c->code->temp + 1;
  return i;
}

static int constant(Coder *c, float x) {
  ZkPointwiseCode *k = c->code;
  for (int i = 0; i < k->nconstants; i++)
    if (zk_to_bits(k->number[i]) == zk_to_bits(x)) return k->constant + i;
  ZB_ASSERT(k->nconstants < ZK_POINTWISE_REGS);
  k->number[k->nconstants] = x;
  return k->constant + k->nconstants++;
}

/* One use of an operand less. */
static void consume(Coder *c, Arg a) {
  if (a.node == NONE) return;
  Node *n = &c->node[a.node];
  if (--n->uses == 0 && n->place >= c->code->temp) c->busy[n->place] = false;
}

static bool in_memory(const Coder *c, Arg a) { return a.node != NONE && c->node[a.node].place != NONE; }
static bool in_f32(const Coder *c, Arg a) { return in_memory(c, a) && !c->node[a.node].bf16; }

static void keep(Coder *c, int node) { /* the accumulator, in a temporary */
  Node *n = &c->node[node];
  n->place = take_temp(c);
  n->bf16 = false;
  emit(c, ZK_STEP_ST_M, n->place, 0, 0, 0);
}

/* May result o be stored now? An operand that it shares memory with must not be read any more. */
static bool may_store(const Coder *c, int o) {
  for (int i = 0; i < c->nin; i++)
    if (c->layout->shares[o] >> i & 1 && c->node[i].place == i && c->node[i].uses > 0) return false;
  return true;
}

static void store_result(Coder *c, int o) {
  bool bf16 = c->layout->out[o] == ZK_LIES_BF16;
  emit(c, bf16 ? ZK_STEP_ST_H : ZK_STEP_ST_M, c->nin + o, 0, 0, 0);
  c->stored[o] = true;
  if (c->result[o].node == NONE) return;
  Node *n = &c->node[c->result[o].node];
  consume(c, c->result[o]);
  if (n->place == NONE && !bf16) n->place = c->nin + o;
}

/* The accumulator holds a node that was just computed: stores it where it will be wanted. `here`: uses that
 * need no copy of it. */
static void settle(Coder *c, int node, int here) {
  Node *n = &c->node[node];
  c->acc = node;
  for (int o = 0; o < c->nout; o++)
    if (c->result[o].node == node && !c->stored[o] && may_store(c, o)) store_result(c, o);
  if (n->uses > here && n->place == NONE) keep(c, node);
}

/* ---- steps ----------------------------------------------------------------------------------- */

static void compute(Coder *c, int node);

/* Brings a value that is needed at once into the accumulator. */
static void to_acc(Coder *c, Arg a) {
  if (a.node == NONE) {
    emit(c, ZK_STEP_LD_X, 0, 0, a.x, 0);
    c->acc = NONE;
    return;
  }
  const Node *n = &c->node[a.node];
  if (c->acc == a.node) return;
  if (n->place != NONE) {
    emit(c, n->bf16 ? ZK_STEP_LD_H : ZK_STEP_LD_M, n->place, 0, 0, 0);
    c->acc = a.node;
    return;
  }
  compute(c, a.node);
  settle(c, a.node, 1);
}

/* Makes a value lie in memory as f32 and returns where. */
static int to_memory(Coder *c, Arg a) {
  if (a.node == NONE) return constant(c, a.x);
  Node *n = &c->node[a.node];
  if (n->place == NONE) {
    compute(c, a.node);
    settle(c, a.node, 0);
  } else if (n->bf16) {
    to_acc(c, a);
    keep(c, a.node);
  }
  return n->place;
}

/* The steps of an op of two operands: accumulator first or second, other operand M, H, X; NONE: no such. */
typedef struct {
  int first[3], second[3];
} Steps;

static Steps steps_of(uint16_t op) {
#define S(n) ZK_STEP_##n
  static const Steps steps[ZG_OP_COUNT] = {
#define UNARY(NAME, formula)
#define BINARY(NAME, formula) [ZG_OP_##NAME] = {{S(NAME##_M), NONE, S(NAME##_X)}, {NONE, NONE, NONE}},
#define TERNARY(NAME, formula)
#include "graph/pointwise.def"
  };
  switch (op) {
  case ZG_OP_ADD: return (Steps){{S(ADD_M), S(ADD_H), S(ADD_X)}, {S(ADD_M), S(ADD_H), S(ADD_X)}};
  case ZG_OP_SUB: return (Steps){{S(SUB_M), S(SUB_H), S(SUB_X)}, {S(RSUB_M), S(RSUB_H), S(RSUB_X)}};
  case ZG_OP_MUL: return (Steps){{S(MUL_M), S(MUL_H), S(MUL_X)}, {S(MUL_M), S(MUL_H), S(MUL_X)}};
  case ZG_OP_DIV: return (Steps){{S(DIV_M), S(DIV_H), S(DIV_X)}, {S(RDIV_M), S(RDIV_H), S(RDIV_X)}};
  case ZG_OP_EQUAL: return (Steps){{S(EQUAL_M), NONE, S(EQUAL_X)}, {S(EQUAL_M), NONE, S(EQUAL_X)}};
  default: return steps[op];
  }
}

static bool fits(const Coder *c, const int step[3], Arg a) {
  if (a.node == NONE) return step[2] != NONE;
  return in_memory(c, a) && step[c->node[a.node].bf16 ? 1 : 0] != NONE;
}

/* acc = acc op other, or the other way round, for an `other` that fits. */
static void apply(Coder *c, const int step[3], Arg acc, Arg other) {
  to_acc(c, acc);
  ZB_ASSERT(fits(c, step, other));
  if (other.node == NONE) {
    emit(c, step[2], 0, 0, other.x, 0);
  } else {
    const Node *n = &c->node[other.node];
    emit(c, step[n->bf16 ? 1 : 0], n->place, 0, 0, 0);
  }
}

static void compute_binary(Coder *c, const Node *n) {
  Steps s = steps_of(n->op);
  Arg a = n->arg[0], b = n->arg[1];
  if (fits(c, s.second, a) && ((b.node != NONE && c->acc == b.node) || !fits(c, s.first, b))) {
    apply(c, s.second, b, a);
  } else {
    if (!fits(c, s.first, b)) to_memory(c, b);
    apply(c, s.first, a, b);
  }
}

/* acc = x * y + z, z - x * y or x * y - z; y and z are in memory as f32, or numbers. */
static void multiply_add(Coder *c, Arg x, Arg y, Arg z, bool minus_product, bool minus_z) {
  int p = y.node == NONE ? 0 : c->node[y.node].place, q = z.node == NONE ? 0 : c->node[z.node].place;
  bool yk = y.node == NONE, zk = z.node == NONE;
  to_acc(c, x);
  if (yk && minus_product) y.x = -y.x, minus_product = false;
  ZB_ASSERT(!(minus_z && zk));
  int id = minus_product ? (zk ? ZK_STEP_NMAD_MX : ZK_STEP_NMAD_MM)
           : minus_z     ? (yk ? ZK_STEP_MSUB_XM : ZK_STEP_MSUB_MM)
           : yk          ? (zk ? ZK_STEP_MAD_XX : ZK_STEP_MAD_XM)
                         : (zk ? ZK_STEP_MAD_MX : ZK_STEP_MAD_MM);
  emit(c, id, p, q, y.x, z.x);
}

/* acc = z + x * y or z - x * y; x is in memory as f32, and y too or a number. */
static void add_product(Coder *c, Arg x, Arg y, Arg z, bool minus) {
  int p = c->node[x.node].place, q = y.node == NONE ? 0 : c->node[y.node].place;
  to_acc(c, z);
  if (y.node == NONE) emit(c, ZK_STEP_MAC_MX, p, q, 0, minus ? -y.x : y.x);
  else emit(c, minus ? ZK_STEP_NMAC_MM : ZK_STEP_MAC_MM, p, q, 0, 0);
}

/* A sum or difference as one step with the product that is its operand k; false if that gains nothing. */
static bool fuse(Coder *c, const Node *n, int k) {
  Arg z = n->arg[1 - k];
  if (n->arg[k].node == NONE) return false;
  const Node *m = &c->node[n->arg[k].node];
  if (m->op != ZG_OP_MUL || m->place != NONE || m->uses != 1 || n->arg[k].node == z.node) return false;
  Arg x = m->arg[0], y = m->arg[1];
  bool minus_product = n->op == ZG_OP_SUB && k == 1, minus_z = n->op == ZG_OP_SUB && k == 0;
  bool ready = in_f32(c, x) && (y.node == NONE || in_f32(c, y));
  if (ready && !minus_z && z.node != NONE && !in_memory(c, z)) {
    add_product(c, x, y, z, minus_product);
  } else {
    bool turn = y.node != NONE && (c->acc == y.node || (in_f32(c, x) && !in_f32(c, y)));
    if (turn) x = m->arg[1], y = m->arg[0];
    if (in_memory(c, y) && !in_f32(c, y)) return false;
    if (in_memory(c, z) && !in_f32(c, z)) return false;
    if (x.node == y.node && !in_f32(c, x)) return false; /* a square */
    if (z.node != NONE) to_memory(c, z);
    if (y.node != NONE) to_memory(c, y);
    multiply_add(c, x, y, z, minus_product, minus_z);
  }
  consume(c, x);
  consume(c, y);
  return true;
}

static int unary_step(const Node *n) {
  static const int steps[ZG_OP_COUNT] = {
#define UNARY(NAME, formula) [ZG_OP_##NAME] = S(NAME),
#define BINARY(NAME, formula)
#define TERNARY(NAME, formula)
#include "graph/pointwise.def"
  };
  switch (n->op) {
  case ZG_OP_SIN: return S(FAST_SIN);
  case ZG_OP_COS: return S(FAST_COS);
  case ZG_OP_CAST: return n->elem == ZK_BF16 ? S(BF16) : S(TRUNC);
  default: return steps[n->op];
  }
}

/* Computes a node into the accumulator. */
static void compute(Coder *c, int node) {
  const Node *n = &c->node[node];
  bool sum = n->op == ZG_OP_ADD || n->op == ZG_OP_SUB;
  if (sum && (fuse(c, n, 0) || fuse(c, n, 1))) {
    /* done */
  } else if (n->op == ZG_OP_SELECT) {
    int yes = to_memory(c, n->arg[1]), no = to_memory(c, n->arg[2]);
    to_acc(c, n->arg[0]);
    emit(c, ZK_STEP_SELECT_MM, yes, no, 0, 0);
  } else if (n->nargs == 2 && n->op == ZG_OP_MUL && n->arg[0].node == n->arg[1].node) {
    consume(c, n->arg[1]); /* one copy is enough */
    to_acc(c, n->arg[0]);
    emit(c, ZK_STEP_SQUARE, 0, 0, 0, 0);
    consume(c, n->arg[0]);
    return;
  } else if (n->nargs == 2) {
    compute_binary(c, n);
  } else {
    to_acc(c, n->arg[0]);
    emit(c, unary_step(n), 0, 0, 0, 0);
  }
  for (int k = 0; k < n->nargs; k++) consume(c, n->arg[k]);
}

/* An operand that is a result, while another result takes its memory. */
static void save_operands(Coder *c) {
  for (int o = 0; o < c->nout; o++) {
    int i = c->result[o].node;
    if (i == NONE || i >= c->nin) continue;
    bool lost = false;
    for (int k = 0; k < c->nout; k++) lost |= k != o && (c->layout->shares[k] >> i & 1);
    if (lost && c->node[i].place == i) {
      to_acc(c, c->result[o]);
      keep(c, i);
    }
  }
}

static void make_steps(Coder *c) {
  save_operands(c);
  for (int o = 0; o < c->nout; o++) {
    int node = c->result[o].node;
    if (node != NONE && c->node[node].place == NONE && c->node[node].uses > 0) {
      compute(c, node);
      settle(c, node, 0);
    }
    if (c->stored[o] || !may_store(c, o)) continue;
    to_acc(c, c->result[o]);
    store_result(c, o);
  }
  for (int o = 0; o < c->nout; o++) { /* those that had to wait until all operands were read */
    if (c->stored[o]) continue;
    to_acc(c, c->result[o]);
    store_result(c, o);
  }
  emit(c, ZK_STEP_END, 0, 0, 0, 0);
}

void zk_pointwise_code(ZkPointwiseCode *code, const ZkPointwise *pointwise, int nin,
                       const ZkPointwiseLayout *layout) {
  Coder c = {.code = code, .layout = layout, .nin = nin, .nout = pointwise->nout, .acc = NONE};
  code->nsteps = code->ntemps = code->nconstants = 0;
  code->temp = nin + pointwise->nout;
  code->constant = ZK_POINTWISE_PLACES - ZK_POINTWISE_REGS;
  make_nodes(&c, pointwise);
  make_steps(&c);
  ZB_ASSERT(code->temp + code->ntemps <= code->constant);
}

void zk_pointwise_link(ZkPointwiseCode *code, const ZkPointwiseSet *set) {
  for (int i = 0; i < code->nsteps; i++) {
    int64_t id = code->step[i].id;
    code->step[i].fn = id == ZK_STEP_ST_H && set->store_bf16 ? set->store_bf16 : set->fn[id];
  }
}
