/* chain: a fused run of elementwise ops, interpreted block by block. A block of each register is 512
 * floats, so that all of them stay in the nearest cache and the interpreter's cost is spread over 512
 * elements.
 *
 * Operands are classed by their strides: `scalar` ones have the same value everywhere, and so have ops
 * on them alone: these are computed once. `direct` ones lie contiguous in f32 and are used in place;
 * others are gathered into a block first. An output is written in place by the op that makes it if it
 * lies so and no input is read later, which makes it legal for an output to share memory with an input
 * of the same layout. */
#include <math.h>

#include "kernels/cpu/math.h"

#define BLOCK 512
#define MAX_REGS (ZK_MAX_IN + ZK_CHAIN_MAX_OPS)
#define NO_SLOT UINT8_MAX

/* ---- the ops on blocks ----------------------------------------------------------------------- */

typedef void BlockFn(float *y, const float *a, const float *b, const float *c, int64_t n);

#define BLOCK_FN(name, expr)                                                                                 \
  ZK_SIMD static void name(float *y, const float *a, const float *b, const float *c, int64_t n) {            \
    (void)a, (void)b, (void)c;                                                                               \
    _Pragma("omp simd") for (int64_t i = 0; i < n; i++) y[i] = (expr);                                       \
  }

BLOCK_FN(f_copy, a[i])
BLOCK_FN(f_neg, -a[i])
BLOCK_FN(f_exp, zk_exp(a[i]))
BLOCK_FN(f_log, zk_log(a[i]))
BLOCK_FN(f_sqrt, __builtin_sqrtf(a[i]))
BLOCK_FN(f_rsqrt, 1.0f / __builtin_sqrtf(a[i]))
BLOCK_FN(f_tanh, zk_tanh(a[i]))
BLOCK_FN(f_erf, zk_erf(a[i]))
BLOCK_FN(f_add, a[i] + b[i])
BLOCK_FN(f_sub, a[i] - b[i])
BLOCK_FN(f_mul, a[i] * b[i])
BLOCK_FN(f_div, a[i] / b[i])
BLOCK_FN(f_max, a[i] > b[i] ? a[i] : b[i])
BLOCK_FN(f_min, a[i] < b[i] ? a[i] : b[i])
BLOCK_FN(f_less, a[i] < b[i] ? 1.0f : 0.0f)
BLOCK_FN(f_equal, a[i] == b[i] ? 1.0f : 0.0f)
BLOCK_FN(f_select, a[i] != 0.0f ? b[i] : c[i])
BLOCK_FN(f_known, a[i] >= 0.0f ? 1.0f : 0.0f)
BLOCK_FN(f_bf16, zk_bf16_to_f32(zk_f32_to_bf16(a[i])))
BLOCK_FN(f_trunc, __builtin_truncf(a[i]))

ZK_SIMD static void sincos_block(float *s, float *c, const float *a, int64_t n) {
#pragma omp simd
  for (int64_t i = 0; i < n; i++) zk_sincos(a[i], &s[i], &c[i]);
}

/* Beyond 2^20 the fast reduction loses digits. */
static bool moderate(const float *a, int64_t n) {
  bool all = true;
  for (int64_t i = 0; i < n; i++) all &= zk_fabs(a[i]) < 0x1p20f;
  return all;
}

static void f_sin(float *y, const float *a, const float *b, const float *c, int64_t n) {
  (void)b, (void)c;
  float other[BLOCK];
  if (moderate(a, n)) sincos_block(y, other, a, n);
  else
    for (int64_t i = 0; i < n; i++) y[i] = sinf(a[i]);
}

static void f_cos(float *y, const float *a, const float *b, const float *c, int64_t n) {
  (void)b, (void)c;
  float other[BLOCK];
  if (moderate(a, n)) sincos_block(other, y, a, n);
  else
    for (int64_t i = 0; i < n; i++) y[i] = cosf(a[i]);
}

static BlockFn *block_fn(const ZkChainOp *op) {
  switch (op->op) {
  case ZG_OP_NEG: return f_neg;
  case ZG_OP_EXP: return f_exp;
  case ZG_OP_LOG: return f_log;
  case ZG_OP_SQRT: return f_sqrt;
  case ZG_OP_RSQRT: return f_rsqrt;
  case ZG_OP_TANH: return f_tanh;
  case ZG_OP_ERF: return f_erf;
  case ZG_OP_SIN: return f_sin;
  case ZG_OP_COS: return f_cos;
  case ZG_OP_ADD: return f_add;
  case ZG_OP_SUB: return f_sub;
  case ZG_OP_MUL: return f_mul;
  case ZG_OP_DIV: return f_div;
  case ZG_OP_MAX: return f_max;
  case ZG_OP_MIN: return f_min;
  case ZG_OP_LESS: return f_less;
  case ZG_OP_EQUAL: return f_equal;
  case ZG_OP_SELECT: return f_select;
  case ZG_OP_KNOWN: return f_known;
  case ZG_OP_STOP:
  case ZG_OP_BROADCAST: return f_copy;
  case ZG_OP_CAST: return op->elem == ZK_BF16 ? f_bf16 : op->elem == ZK_I32 ? f_trunc : f_copy;
  case ZG_OP_FILL:
  case ZG_OP_AXSIZE: return NULL; /* constants */
  }
  ZB_BUG("op %d cannot be in a chain", op->op);
}

/* How many operands each op takes. */
static const uint8_t operand_count[ZG_OP_COUNT] = {
#define OP(NAME, text, class, lo, hi, outs) [ZG_OP_##NAME] = lo,
#include "graph/ops.def"
};

/* ---- what to do, once per call --------------------------------------------------------------- */

typedef enum { SCALAR, DIRECT, GATHER } Class;

typedef struct {
  BlockFn *fn; /* NULL: fill with num */
  float num;
  uint8_t arg[3], reg;
  uint8_t slot, out; /* where the result goes: a slot, or in place into an output */
} Step;

typedef struct {
  int nin, nout, nscalar, nsteps, nslots; /* steps [0, nscalar) work on scalars */
  ZkView in[ZK_MAX_IN], out[ZK_MAX_OUT];
  Class class[ZK_MAX_IN];
  uint8_t in_slot[ZK_MAX_IN];
  uint8_t out_reg[ZK_MAX_OUT];
  bool out_done[ZK_MAX_OUT]; /* written in place */
  Step step[ZK_CHAIN_MAX_OPS];
  ZkNest outer; /* views: outputs, then inputs */
  ZkLoop run;
  int64_t rows;   /* rows of `run` in a block; 1: a block is (part of) a row */
  int64_t pieces; /* blocks of a row when rows is 1 */
  int64_t nouter, blocks;
} Chain;

/* Do all loops make one contiguous range of view k? */
static bool dense(const Chain *c, int k) {
  int64_t expect = c->run.n;
  if (c->run.n > 1 && c->run.s[k] != 1) return false;
  for (int l = c->outer.nloops - 1; l >= 0; l--) {
    if (c->outer.loop[l].s[k] != expect) return false;
    expect *= c->outer.loop[l].n;
  }
  return true;
}

/* Can a block of view k be used where it lies? */
static bool in_place(const Chain *c, int k) {
  const ZkView *v = k < c->nout ? &c->out[k] : &c->in[k - c->nout];
  if (v->elem != ZK_F32) return false;
  return c->rows > 1 ? dense(c, k) : c->run.s[k] == 1 || c->run.n == 1;
}

static void geometry(Chain *c) {
  const ZkView *views[ZK_NEST_VIEWS];
  int n = 0;
  for (int i = 0; i < c->nout; i++) {
    ZB_ASSERT(c->out[i].rank == c->out[0].rank);
    views[n++] = &c->out[i];
  }
  for (int i = 0; i < c->nin; i++) views[n++] = &c->in[i];
  c->outer = zk_nest(views, n, NULL, 0, false);
  zk_nest_order(&c->outer, 0);
  c->run = zk_nest_pop(&c->outer);
  c->nouter = zk_nest_count(&c->outer);
  c->rows = c->run.n > 0 && c->run.n <= BLOCK / 4 && c->nouter > 1 ? zk_min(BLOCK / c->run.n, c->nouter) : 1;
  c->pieces = c->rows > 1 ? 1 : zk_ceil_div(c->run.n, BLOCK);
  c->blocks = c->rows > 1 ? zk_ceil_div(c->nouter, c->rows) : c->nouter * c->pieces;
  for (int i = 0; i < c->nin; i++) {
    int k = c->nout + i;
    bool scalar = c->run.s[k] == 0 || c->run.n == 1;
    for (int l = 0; l < c->outer.nloops; l++) scalar &= c->outer.loop[l].s[k] == 0;
    c->class[i] = scalar ? SCALAR : in_place(c, k) ? DIRECT : GATHER;
  }
}

/* Who reads a register last: an index of an op, MAX_REGS for outputs, -1 for nobody (then it is not
 * computed). */
typedef struct {
  int last[MAX_REGS], last_input;
} Lives;

static Lives lives(const ZkChain *chain, int nin) {
  Lives l = {.last_input = -1};
  for (int r = 0; r < MAX_REGS; r++) l.last[r] = -1;
  for (int i = 0; i < chain->nout; i++) l.last[chain->out[i]] = MAX_REGS;
  for (int i = chain->nops - 1; i >= 0; i--) {
    const ZkChainOp *op = &chain->ops[i];
    const uint16_t arg[3] = {op->a, op->b, op->c};
    if (l.last[nin + i] < 0) continue;
    for (int k = 0; k < operand_count[op->op]; k++) {
      ZB_ASSERT(arg[k] < nin + i);
      if (l.last[arg[k]] < i) l.last[arg[k]] = i;
      if (arg[k] < nin && l.last_input < i) l.last_input = i;
    }
  }
  return l;
}

/* Slots are blocks of local memory. Scalars and gathered inputs take theirs first and keep them
 * throughout, other registers until their last use. */
typedef struct {
  bool busy[MAX_REGS], scalar[MAX_REGS];
  uint8_t slot[MAX_REGS];
} Slots;

static uint8_t take_slot(Chain *c, Slots *t) {
  int i = 0;
  while (t->busy[i]) i++;
  t->busy[i] = true;
  if (i >= c->nslots) c->nslots = i + 1;
  return (uint8_t)i;
}

/* The output that register r, made by op i, can be written into as it is made; NO_SLOT if there is none. */
static uint8_t output_in_place(const Chain *c, const Lives *l, int r, int i) {
  if (i < l->last_input) return NO_SLOT;
  for (int o = 0; o < c->nout; o++)
    if (c->out_reg[o] == r && in_place(c, o)) return (uint8_t)o;
  return NO_SLOT;
}

static void add_step(Chain *c, Slots *t, const Lives *l, const ZkChainOp *op, int i) {
  int r = c->nin + i, nop = operand_count[op->op];
  const uint16_t arg[3] = {op->a, op->b, op->c};
  Step *s = &c->step[c->nsteps++];
  *s = (Step){.fn = block_fn(op), .reg = (uint8_t)r, .num = op->num, .slot = NO_SLOT};
  for (int k = 0; k < nop; k++) s->arg[k] = (uint8_t)arg[k];
  s->out = t->scalar[r] ? NO_SLOT : output_in_place(c, l, r, i);
  for (int k = 0; k < nop; k++) /* what dies here gives its slot: results may be written over operands */
    if (arg[k] >= c->nin && l->last[arg[k]] == i && !t->scalar[arg[k]] && t->slot[arg[k]] != NO_SLOT)
      t->busy[t->slot[arg[k]]] = false;
  if (s->out != NO_SLOT) c->out_done[s->out] = true;
  else s->slot = t->slot[r] = take_slot(c, t);
}

static void plan(Chain *c, const ZkChain *chain) {
  Lives l = lives(chain, c->nin);
  Slots t = {0};
  memset(t.slot, NO_SLOT, sizeof t.slot);
  for (int i = 0; i < c->nin; i++) {
    t.scalar[i] = c->class[i] == SCALAR;
    c->in_slot[i] = c->class[i] == DIRECT || l.last[i] < 0 ? NO_SLOT : take_slot(c, &t);
  }
  for (int i = 0; i < chain->nops; i++) {
    const ZkChainOp *op = &chain->ops[i];
    const uint16_t arg[3] = {op->a, op->b, op->c};
    t.scalar[c->nin + i] = true;
    for (int k = 0; k < operand_count[op->op]; k++) t.scalar[c->nin + i] &= t.scalar[arg[k]];
    if (l.last[c->nin + i] >= 0 && t.scalar[c->nin + i]) add_step(c, &t, &l, op, i);
  }
  c->nscalar = c->nsteps;
  for (int i = 0; i < chain->nops; i++)
    if (l.last[c->nin + i] >= 0 && !t.scalar[c->nin + i]) add_step(c, &t, &l, &chain->ops[i], i);
}

/* ---- doing it -------------------------------------------------------------------------------- */

typedef struct {
  const float *reg[MAX_REGS];
  float slot[MAX_REGS][BLOCK] __attribute__((aligned(64)));
} Block;

static void do_steps(const Chain *c, Block *b, int from, int to, const int64_t *off, int64_t n) {
  for (int i = from; i < to; i++) {
    const Step *s = &c->step[i];
    float *y = s->slot != NO_SLOT ? b->slot[s->slot] : (float *)c->out[s->out].data + off[s->out];
    if (s->fn) s->fn(y, b->reg[s->arg[0]], b->reg[s->arg[1]], b->reg[s->arg[2]], n);
    else zk_run_fill(y, s->num, n);
    b->reg[s->reg] = y;
  }
}

static void gather_row(float *dst, const ZkView *v, int64_t off, int64_t stride, int64_t n) {
  if (stride == 0) zk_run_fill(dst, zk_get(v, off), n);
  else zk_load(dst, v, off, stride, n);
}

/* One block: `rows` rows from the walk's position, or `n` elements from `at` of one row. */
static void do_block(const Chain *c, Block *b, const ZkWalk *w, int64_t at, int64_t rows, int64_t n) {
  int64_t off[ZK_NEST_VIEWS];
  for (int k = 0; k < c->nout + c->nin; k++) off[k] = w->off[k] + at * c->run.s[k];
  for (int i = 0; i < c->nin; i++)
    if (c->class[i] == DIRECT) b->reg[i] = (const float *)c->in[i].data + off[c->nout + i];
  ZkWalk each = *w;
  for (int64_t r = 0; r < rows; r++) {
    for (int i = 0, k = c->nout; i < c->nin; i++, k++)
      if (c->class[i] == GATHER && c->in_slot[i] != NO_SLOT)
        gather_row(b->slot[c->in_slot[i]] + r * n, &c->in[i], each.off[k] + at * c->run.s[k], c->run.s[k], n);
    if (r + 1 < rows) zk_walk_next(&c->outer, &each);
  }
  do_steps(c, b, c->nscalar, c->nsteps, off, rows * n);
  each = *w;
  for (int64_t r = 0; r < rows; r++) {
    for (int o = 0; o < c->nout; o++)
      if (!c->out_done[o])
        zk_store(&c->out[o], each.off[o] + at * c->run.s[o], c->run.s[o], n, b->reg[c->out_reg[o]] + r * n,
                 false);
    if (r + 1 < rows) zk_walk_next(&c->outer, &each);
  }
}

static void run_blocks(void *arg, int64_t from, int64_t to, int part) {
  (void)part;
  const Chain *c = arg;
  Block b;
  for (int r = 0; r < MAX_REGS; r++) b.reg[r] = NULL;
  int64_t width = c->rows > 1 ? c->rows * c->run.n : zk_min(BLOCK, c->run.n);
  for (int i = 0; i < c->nin; i++) {
    if (c->in_slot[i] == NO_SLOT) continue;
    b.reg[i] = b.slot[c->in_slot[i]];
    if (c->class[i] == SCALAR) zk_run_fill(b.slot[c->in_slot[i]], zk_get(&c->in[i], 0), width);
  }
  do_steps(c, &b, 0, c->nscalar, NULL, width);
  ZkWalk w;
  zk_walk_seek(&c->outer, &w, c->rows > 1 ? from * c->rows : from / c->pieces);
  for (int64_t t = from; t < to; t++) {
    if (c->rows > 1) {
      int64_t rows = zk_min(c->rows, c->nouter - t * c->rows);
      do_block(c, &b, &w, 0, rows, c->run.n);
      for (int64_t r = 0; r < rows; r++) zk_walk_next(&c->outer, &w);
    } else {
      int64_t piece = t % c->pieces;
      do_block(c, &b, &w, piece * BLOCK, 1, zk_min(BLOCK, c->run.n - piece * BLOCK));
      if (piece + 1 == c->pieces) zk_walk_next(&c->outer, &w);
    }
  }
}

void zk_cpu_chain(const ZkEnv *env, const ZkCall *call) {
  const ZkChain *chain = call->chain;
  ZB_ASSERT(chain->nops <= ZK_CHAIN_MAX_OPS && chain->nout == call->nout && chain->nout >= 1);
  Chain c = {.nin = call->nin, .nout = call->nout};
  for (int i = 0; i < c.nin; i++) c.in[i] = call->in[i];
  for (int i = 0; i < c.nout; i++) {
    c.out[i] = call->out[i];
    c.out_reg[i] = (uint8_t)chain->out[i];
  }
  geometry(&c);
  plan(&c, chain);
  zk_for(env, c.blocks, 32, run_blocks, &c);
}
