/* The CPU's pointwise functions, by every instruction set that this machine has: random functions against
 * f64, element by element, each within the error that its own ops may add up to. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <criterion/criterion.h>

#include "base/base.h"
#include "kernels/cpu/pointwise.h"
#include "tests/unit/breadth.h"

#define EPS 4e-7 /* of one op: a few units in the last place */

static uint64_t draws;
static int draw(int n) { return (int)(zb_random_u64(3, draws++, 0) % (uint64_t)n); }

typedef struct {
  double x, err;
} Value;

static double larger(double a, double b) { return a > b ? a : b; }

/* What an op makes of values that may be off by their err. */
static Value apply(const ZkPointwiseOp *op, Value a, Value b, Value c) {
  Value y = {0, 0};
  switch (op->op) {
  case ZG_OP_FILL: return (Value){op->num, 0};
  case ZG_OP_STOP: return a;
  case ZG_OP_NEG: return (Value){-a.x, a.err};
  case ZG_OP_ADD: y = (Value){a.x + b.x, a.err + b.err}; break;
  case ZG_OP_SUB: y = (Value){a.x - b.x, a.err + b.err}; break;
  case ZG_OP_MUL: y = (Value){a.x * b.x, fabs(a.x) * b.err + fabs(b.x) * a.err + a.err * b.err}; break;
  case ZG_OP_DIV:
    y.x = a.x / b.x;
    y.err = (a.err + fabs(y.x) * b.err) / larger(fabs(b.x) - b.err, 0);
    break;
  case ZG_OP_MAX: return (Value){larger(a.x, b.x), larger(a.err, b.err)};
  case ZG_OP_MIN: return (Value){-larger(-a.x, -b.x), larger(a.err, b.err)};
  case ZG_OP_LESS: return (Value){a.x < b.x, fabs(a.x - b.x) <= a.err + b.err};
  case ZG_OP_EQUAL: return (Value){a.x == b.x, fabs(a.x - b.x) <= a.err + b.err && a.err + b.err > 0};
  case ZG_OP_KNOWN: return (Value){a.x >= 0, fabs(a.x) <= a.err && a.err > 0};
  case ZG_OP_SELECT:
    y = a.x != 0 ? b : c;
    if (a.err > 0) y.err = larger(b.err, c.err) + fabs(b.x - c.x); /* either */
    return y;
  case ZG_OP_TANH: y = (Value){tanh(a.x), a.err}; break;
  case ZG_OP_ERF: y = (Value){erf(a.x), 1.2 * a.err}; break;
  case ZG_OP_SIN: y = (Value){sin(a.x), a.err + 1e-7}; break;
  case ZG_OP_COS: y = (Value){cos(a.x), a.err + 1e-7}; break;
  case ZG_OP_EXP: y = (Value){exp(a.x), exp(a.x) * expm1(a.err)}; break;
  case ZG_OP_LOG: y = (Value){log(a.x), a.err / larger(a.x - a.err, 0) + 1e-7}; break;
  case ZG_OP_SQRT: y = (Value){sqrt(a.x), a.err / sqrt(larger(a.x - a.err, 0))}; break;
  case ZG_OP_RSQRT: y = (Value){1 / sqrt(a.x), a.err / pow(larger(a.x - a.err, 0), 1.5)}; break;
  case ZG_OP_CAST: y = (Value){a.x, a.err + (op->elem == ZK_BF16 ? ldexp(fabs(a.x), -8) : 0)}; break;
  case ZG_OP_SIGN: return (Value){a.x > 0 ? 1 : a.x < 0 ? -1 : a.x, a.err == 0 || fabs(a.x) > a.err ? 0 : 2};
  case ZG_OP_ABS: return (Value){fabs(a.x), a.err};
  case ZG_OP_FLOOR: return (Value){floor(a.x), floor(a.x + a.err) - floor(a.x - a.err)};
  case ZG_OP_SIGMOID: y = (Value){1 / (1 + exp(-a.x)), a.err / 4 + 2e-7}; break;
  case ZG_OP_LOG1P: y = (Value){log1p(a.x), a.err / larger(1 + a.x - a.err, 0) + 2e-7}; break;
  default: cr_assert_fail("op %d", op->op);
  }
  y.err += EPS * fabs(y.x);
  return y;
}

/* Near the end of f32's range a value promises nothing, nor does what is made of it: zero times infinity is
 * no number. */
static bool promises(Value v) { return isfinite(v.x) && isfinite(v.err) && fabs(v.x) + v.err <= 1e30; }

static Value apply_to(const ZkPointwiseOp *op, const Value *reg) {
  const uint16_t arg[] = {op->a, op->b, op->c};
  for (int k = 0; k < zg_op_info[op->op].min_in; k++)
    if (!promises(reg[arg[k]])) return (Value){NAN, NAN};
  return apply(op, reg[op->a], reg[op->b], reg[op->c]);
}

enum { ROWS = 7, MOST = 301 };

/* A function over [b, s], b = ROWS, of operands [b, s], [s], [b] and [], some results in the memory of
 * operands. */
typedef struct {
  ZkPointwise pointwise;
  ZkPointwiseOp ops[ZK_POINTWISE_MAX_OPS];
  ZkCall call;
  int64_t n;
  float in[ZK_MAX_IN][ROWS * MOST];                     /* what operands are */
  char memory[ZK_MAX_IN + ZK_MAX_OUT][4 * ROWS * MOST]; /* as they lie */
} Random;

static ZkView view(int kind, int64_t n, ZkElem elem, void *data) {
  ZkView v = {.data = data, .elem = (uint8_t)elem};
  if (kind == 0 || kind == 2) v.axis[v.rank] = 'b', v.size[v.rank++] = ROWS;
  if (kind == 0 || kind == 1) v.axis[v.rank] = 's', v.size[v.rank++] = n;
  int64_t stride = 1;
  for (int i = v.rank - 1; i >= 0; stride *= v.size[i--]) v.stride[i] = stride;
  return v;
}

static void put(const ZkView *v, int64_t at, float x) {
  uint32_t u;
  memcpy(&u, &x, 4);
  if (v->elem == ZK_F32) ((float *)v->data)[at] = x;
  else ((uint16_t *)v->data)[at] = (uint16_t)(u >> 16); /* exact: operands have few digits */
}

static double get(const ZkView *v, int64_t at) {
  if (v->elem == ZK_F32) return (double)((float *)v->data)[at];
  uint32_t u = (uint32_t)((uint16_t *)v->data)[at] << 16;
  float x;
  memcpy(&x, &u, 4);
  return (double)x;
}

static void make_ops(Random *r) {
  static const uint16_t kinds[] = {
      ZG_OP_ADD,  ZG_OP_SUB,  ZG_OP_MUL,  ZG_OP_ADD, ZG_OP_SUB,   ZG_OP_MUL,     ZG_OP_MUL,   ZG_OP_FILL,
      ZG_OP_NEG,  ZG_OP_DIV,  ZG_OP_MAX,  ZG_OP_MIN, ZG_OP_LESS,  ZG_OP_EQUAL,   ZG_OP_KNOWN, ZG_OP_SELECT,
      ZG_OP_TANH, ZG_OP_ERF,  ZG_OP_SIN,  ZG_OP_COS, ZG_OP_EXP,   ZG_OP_LOG,     ZG_OP_SQRT,  ZG_OP_RSQRT,
      ZG_OP_CAST, ZG_OP_STOP, ZG_OP_SIGN, ZG_OP_ABS, ZG_OP_FLOOR, ZG_OP_SIGMOID, ZG_OP_LOG1P, ZG_OP_TANH};
  static const float numbers[] = {0.5f, -1, 1, 2, 0, 0.044715f, -3, 0.79788456f};
  int nin = r->call.nin, many = (int)(sizeof kinds / sizeof *kinds),
      most = draw(3) ? 12 : ZK_POINTWISE_MAX_OPS;
  r->pointwise = (ZkPointwise){.nops = (uint16_t)(1 + draw(most)), .ops = r->ops};
  for (int i = 0; i < r->pointwise.nops; i++) {
    int have = nin + i;
    uint16_t op = have ? kinds[draw(draw(3) ? 9 : many)] : ZG_OP_FILL;
    ZkPointwiseOp *o = &r->ops[i];
    *o = (ZkPointwiseOp){.op = op, .num = numbers[draw(8)], .elem = draw(2) ? ZK_BF16 : ZK_F32};
    if (!have) continue;
    uint16_t *arg[] = {&o->a, &o->b, &o->c};
    for (int k = 0; k < 3; k++) /* mostly what is new */
      *arg[k] = (uint16_t)(draw(2) ? have - 1 - draw(have < 4 ? have : 4) : draw(have));
  }
}

static void make(Random *r) {
  memset(&r->call, 0, sizeof r->call);
  r->n = 1 + draw(draw(2) ? MOST : 40);
  r->call.op = ZG_OP_POINTWISE;
  r->call.nin = (uint8_t)draw(6);
  r->call.nout = (uint8_t)(1 + draw(ZK_POINTWISE_OUT));
  r->call.pointwise = &r->pointwise;
  int place = 0;
  for (int i = 0; i < r->call.nin; i++) {
    r->call.in[i] = view(draw(2) ? 0 : draw(4), r->n, draw(2) ? ZK_F32 : ZK_BF16, r->memory[place++]);
    for (int64_t k = 0; k < ROWS * r->n; k++) r->in[i][k] = (float)(draw(129) - 64) / 32;
  }
  make_ops(r);
  r->pointwise.nout = r->call.nout;
  for (int o = 0; o < r->call.nout; o++) {
    r->pointwise.out[o] =
        (uint16_t)(draw(2) ? r->call.nin + r->pointwise.nops - 1 : draw(r->call.nin + r->pointwise.nops));
    r->call.out[o] = view(0, r->n, draw(2) ? ZK_F32 : ZK_BF16, r->memory[place++]);
    int i = draw(ZK_MAX_IN);
    bool free = i < r->call.nin && r->call.in[i].rank == 2; /* may lie in the operand's memory */
    for (int k = 0; k < o && free; k++) free = r->call.out[k].data != r->call.in[i].data;
    if (free) r->call.out[o] = r->call.in[i];
  }
}

static int64_t offset(const ZkView *v, int64_t b, int64_t s) {
  int64_t at = 0;
  for (int i = 0; i < v->rank; i++) at += v->stride[i] * (v->axis[i] == 'b' ? b : s);
  return at;
}

static void check(const Random *r, const char *set, int number, int64_t b, int64_t s) {
  Value reg[ZK_MAX_IN + ZK_POINTWISE_MAX_OPS];
  for (int i = 0; i < r->call.nin; i++) {
    reg[i] = (Value){(double)r->in[i][offset(&r->call.in[i], b, s)], 0};
  }
  for (int i = 0; i < r->pointwise.nops; i++) {
    const ZkPointwiseOp *o = &r->ops[i];
    reg[r->call.nin + i] = apply_to(o, reg);
  }
  for (int o = 0; o < r->call.nout; o++) {
    const ZkView *v = &r->call.out[o];
    Value want = reg[r->pointwise.out[o]];
    double got = get(v, offset(v, b, s));
    if (v->elem == ZK_BF16) want.err += ldexp(fabs(want.x) + want.err, -8);
    if (!promises(want)) continue;
    if (!(fabs(got - want.x) <= want.err + 1e-37)) /* Criterion sends a message for every assertion */
      cr_assert_fail("%s, function %d, result %d at %d, %d: %.9g, not %.9g +- %.3g", set, number, o, (int)b,
                     (int)s, got, want.x, want.err);
  }
}

Test(pointwise, random) {
  Random *r = malloc(sizeof *r);
  ZkPool *pool = zk_pool_new(2);
  ZkEnv env = {.pool = pool};
  int sets = 0;
  for (int number = 0; number < (int)breadth_many(300); number++) {
    make(r);
    for (int set = 0; set < ZK_POINTWISE_SETS; set++) {
      if (!zk_pointwise_set(set)) continue;
      sets |= 1 << set;
      for (int i = 0; i < r->call.nin; i++)
        for (int64_t k = 0; k < zk_view_count(&r->call.in[i]); k++) put(&r->call.in[i], k, r->in[i][k]);
      zk_pointwise_run(&env, &r->call, zk_pointwise_set(set));
      for (int64_t b = 0; b < ROWS; b++)
        for (int64_t s = 0; s < r->n; s++) check(r, zk_pointwise_set(set)->name, number, b, s);
    }
  }
  cr_assert(sets & 1);
  zk_pool_free(pool);
  free(r);
}

/* Two operands change places: each is a result that lies in the other's memory. */
Test(pointwise, swap) {
  float x[150], y[150];
  for (int i = 0; i < 150; i++) x[i] = (float)i, y[i] = (float)-i;
  ZkPointwise pointwise = {.nout = 2, .out = {1, 0}};
  ZkCall call = {.op = ZG_OP_POINTWISE, .nin = 2, .nout = 2, .pointwise = &pointwise};
  call.in[0] = call.out[0] = view(1, 150, ZK_F32, x);
  call.in[1] = call.out[1] = view(1, 150, ZK_F32, y);
  zk_cpu_pointwise(&(ZkEnv){0}, &call);
  for (int i = 0; i < 150; i++)
    if (x[i] != (float)-i || y[i] != (float)i)
      cr_assert_fail("at %d: %g and %g", i, (double)x[i], (double)y[i]);
}

/* Rows of two that lie as far from each other as two neighbours would, and whose elements are none. */
Test(pointwise, apart) {
  float x[8] = {0, 1, 2, 3, 4, 5, 6, 7}, y[4];
  ZkPointwise pointwise = {.nout = 1, .out = {0}};
  ZkCall call = {.op = ZG_OP_POINTWISE, .nin = 1, .nout = 1, .pointwise = &pointwise};
  ZkView v = {.elem = ZK_F32, .rank = 2, .axis = {'b', 's'}, .size = {2, 2}, .whole = {2, 2}};
  call.in[0] = call.out[0] = v;
  call.in[0].data = x, call.in[0].stride[0] = 2, call.in[0].stride[1] = 5;
  call.out[0].data = y, call.out[0].stride[0] = 2, call.out[0].stride[1] = 1;
  zk_cpu_pointwise(&(ZkEnv){0}, &call);
  for (int i = 0; i < 4; i++) cr_expect_eq(y[i], (float)(i / 2 * 2 + i % 2 * 5));
}

/* The code of (x + y) x - y: what stays in the accumulator, and what is one step. */
Test(pointwise, code) {
  ZkPointwiseOp ops[] = {{.op = ZG_OP_ADD, .a = 0, .b = 1}, {.op = ZG_OP_MUL, .a = 2, .b = 0},
                         {.op = ZG_OP_SUB, .a = 3, .b = 1}, {.op = ZG_OP_FILL, .num = 0.5f},
                         {.op = ZG_OP_MUL, .a = 5, .b = 4}, {.op = ZG_OP_FILL, .num = 1},
                         {.op = ZG_OP_ADD, .a = 6, .b = 7}};
  ZkPointwise pointwise = {.nops = 7, .nout = 1, .out = {8}, .ops = ops};
  ZkPointwiseLayout layout = {.in = {ZK_LIES_F32, ZK_LIES_F32}, .out = {ZK_LIES_F32}};
  ZkPointwiseCode *code = malloc(sizeof *code);
  static const int64_t want[] = {ZK_STEP_LD_M,   ZK_STEP_ADD_M, ZK_STEP_MSUB_MM,
                                 ZK_STEP_MAD_XX, ZK_STEP_ST_M,  ZK_STEP_END};
  zk_pointwise_code(code, &pointwise, 2, &layout);
  cr_assert(code->nsteps == 6 && code->ntemps == 0 && code->nconstants == 0, "%d steps", code->nsteps);
  for (int i = 0; i < 6; i++)
    cr_assert(code->step[i].id == want[i], "step %d is %d", i, (int)code->step[i].id);
  layout.in[1] = ZK_LIES_SAME; /* (x + 3) x - 3 */
  layout.value[1] = 3;
  zk_pointwise_code(code, &pointwise, 2, &layout);
  cr_assert(code->step[1].id == ZK_STEP_ADD_X && code->step[2].id == ZK_STEP_MAD_MX && code->step[2].y == -3);
  free(code);
}
