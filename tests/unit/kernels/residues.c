/* The reference kernels over residues agree with those over doubles: on every case of the conformance tests
 * (conform.c), with small integers for operands, and on what no kernel of the CPU does. */
#include "kernels/residue.h"

#include <stdlib.h>

#include "graph/linear.h"
#include "tests/unit/kernels/conform.h"

/* ---- which calls have the same results: those that only add, multiply, compare and move ---- */
static bool is_function(int op) {
  switch (op) {
  case ZG_OP_EXP:
  case ZG_OP_LOG:
  case ZG_OP_SQRT:
  case ZG_OP_RSQRT:
  case ZG_OP_TANH:
  case ZG_OP_ERF:
  case ZG_OP_SIN:
  case ZG_OP_COS:
  case ZG_OP_FLOOR:
  case ZG_OP_SIGMOID:
  case ZG_OP_LOG1P:
  case ZG_OP_POW: return true;
  }
  return false;
}

static bool has_functions(const ZkCall *c) {
  for (int k = 0; c->pointwise && k < c->pointwise->nops; k++) {
    int op = c->pointwise->ops[k].op;
    if (is_function(op) || op == ZG_OP_DIV || op == ZG_OP_CAST) return true; /* doubles are rounded */
  }
  switch (c->op) {
  case ZG_OP_SOFTMAX:
  case ZG_OP_NORMALIZE:
  case ZG_OP_NORMALIZE_GRAD: /* means */
  case ZG_OP_NORMALIZE_GRAD_SUMS:
  case ZG_OP_ROPE:
  case ZG_OP_ROTATE:
  case ZG_OP_ATTEND:
  case ZG_OP_ATTEND_GRAD:
  case ZG_OP_ATTEND_BIAS_GRAD:
  case ZG_OP_XENT_SUMS:
  case ZG_OP_XENT_GRAD:
  case ZG_OP_XENT_MAX_SUMS:
  case ZG_OP_XENT_SUMS_GRAD: return true;
  case ZG_OP_LINEAR_ATTEND:
  case ZG_OP_LINEAR_ATTEND_GRAD: return c->opt[0] & ZG_LINEAR_DECAY;
  }
  return false;
}

/* ---- elements, in an order that does not depend on the view's ---- */
static int64_t elements(const ZkView *v) {
  int64_t n = 1;
  for (int a = 0; a < v->rank; a++) n *= v->size[a];
  return n;
}

/* The same view with its axes named in ascending number. */
static ZkView in_order(const ZkView *v) {
  ZkView to = *v;
  to.rank = 0;
  for (int axis = 0; axis < 256; axis++)
    for (int a = 0; a < v->rank; a++)
      if (v->axis[a] == axis) to.size[to.rank] = v->size[a], to.stride[to.rank++] = v->stride[a];
  return to;
}

/* The offset of element k of such a view. */
static int64_t place(const ZkView *v, int64_t k) {
  int64_t at = 0;
  for (int a = 0; a < v->rank; a++) {
    at += k % v->size[a] * v->stride[a];
    k /= v->size[a];
  }
  return at;
}

typedef union { /* an element of a view of type ZK_F64 */
  double x;
  ZkResidue r;
} Element;

typedef enum { DOUBLES, RESIDUES } Numbers;

/* Gives a view memory of its own. Numbers are -1, 0 and 1, so that a thousand products are still exact;
 * integers are those of the view. */
static void give(ZkView *v, int which, Numbers numbers) {
  int64_t n = elements(v);
  const int32_t *ids = v->data;
  ZkView by = in_order(v);
  v->data = calloc((size_t)n + 1, sizeof(Element));
  for (int64_t k = 0; k < n; k++) {
    int64_t at = place(&by, k), x = (int64_t)(zb_random_u64(3, (uint64_t)which, (uint64_t)k) % 3) - 1;
    Element e = {.x = (double)x};
    if (numbers == RESIDUES) e.r = zk_residue_of_int(x);
    if (v->elem == ZK_I32) ((int32_t *)v->data)[at] = ids[at];
    else ((Element *)v->data)[at] = e;
  }
  if (v->elem != ZK_I32) v->elem = ZK_F64;
}

static ZkCall made(const ZkCall *like, Numbers numbers) {
  ZkEnv env = {.seed = 11, .step = 3};
  ZkCall c = *like;
  for (int k = 0; k < c.nin; k++) give(&c.in[k], k, numbers);
  for (int k = 0; k < c.nout; k++) give(&c.out[k], 100 + k, numbers);
  (numbers == RESIDUES ? zk_residue_run : zk_ref_run)(&env, &c);
  return c;
}

static void drop(ZkCall *c) {
  for (int k = 0; k < c->nin; k++) free(c->in[k].data);
  for (int k = 0; k < c->nout; k++) free(c->out[k].data);
}

/* What a number of either kind is as a residue. */
static ZkResidue residue(const ZkView *v, int64_t at, Numbers numbers) {
  if (v->elem == ZK_I32) return zk_residue_of_int(((int32_t *)v->data)[at]);
  Element e = ((Element *)v->data)[at];
  return numbers == RESIDUES ? e.r : zk_residue_of(e.x);
}

/* Returns whether doubles were exact all the way: a recurrence that comes to large numbers was perhaps not, even
 * where they cancel. */
static bool exact(const ZkCall *c) {
  bool small = true;
  for (int o = 0; o < c->nout; o++)
    for (int64_t k = elements(&c->out[o]); k-- > 0 && c->out[o].elem != ZK_I32;)
      small &= fabs(((Element *)c->out[o].data)[place(&c->out[o], k)].x) < 0x1p40;
  return small;
}

static void same(const ZkCall *a, Numbers of_a, const ZkCall *b) {
  if (of_a == DOUBLES && !exact(a)) return;
  for (int o = 0; o < a->nout; o++) {
    ZkView x = in_order(&a->out[o]), y = in_order(&b->out[o]);
    for (int64_t k = elements(&x); k-- > 0;) {
      int64_t at = place(&x, k);
      EACH_ASSERT(residue(&x, at, of_a).r == residue(&y, place(&y, k), RESIDUES).r,
                  "%s: element %lld of result %d differs", zg_op_info[a->op].text, (long long)k, o);
    }
  }
}

/* ---- a case ---- */
typedef struct {
  int n;
  ZkCall first; /* over residues */
} Seen;

/* The results of doubles; and whatever the order of axes, and so of sums, those of the first order. */
static void agree(const ZkCall *call, void *arg) {
  Seen *seen = arg;
  if (seen->n++ > 1) return;
  ZkCall c = made(call, RESIDUES);
  if (seen->n > 1) {
    same(&seen->first, RESIDUES, &c);
    drop(&c);
    return;
  }
  seen->first = c;
  if (has_functions(call)) return;
  ZkCall d = made(call, DOUBLES);
  same(&d, DOUBLES, &c);
  drop(&d);
}

void residues_agree(const Case *c) {
  Seen seen = {0};
  Case once = *c;
  once.f32_only = true;
  each_call(&once, agree, &seen);
  drop(&seen.first);
}

#define AGREE(...) residues_agree(&(Case){__VA_ARGS__})

Test(residues, fused_calls_agree) {
  static ZkPointwiseOp ops[] = {{.op = ZG_OP_ADD, .a = 0, .b = 1}, {.op = ZG_OP_MUL, .a = 2, .b = 0}};
  const ZkPointwise function = {.nops = 2, .nout = 2, .out = {2, 3}, .ops = ops};
  AGREE(.op = ZG_OP_DOT, .dims = "m=5 k=7 n=3", .ax = "k", .in = {{"mk"}, {"kn"}, {"n"}},
        .out = {{"mn"}, {"mn"}}, .pointwise = &function);
  for (int add = 0; add < 2; add++)
    AGREE(.op = ZG_OP_DOT_BIAS_GRAD, .dims = "m=5 k=7 n=3", .ax = "m", .in = {{"mk"}, {"mn"}},
          .out = {{"kn"}, {"n"}}, .accumulate = add);
  AGREE(.op = ZG_OP_XENT_SUMS_GRAD, .dims = "s=3 v=8@8/24", .ax = "v", .opt = {0, 20},
        .in = {{"sv"}, {"s", ID, 0, 19, NULL}, {"s"}}, .out = {{"sv"}, {"s"}, {"s"}, {"s"}});
}

/* ---- numbers ---- */
static bool is(ZkResidue a, int64_t n) { return zk_residue_int(a) == n; }

Test(residues, constants_are_exact) {
  cr_expect(is(zk_residue_mul(zk_residue_of(1 / 1024.), zk_residue_of(1024)), 1));
  cr_expect(is(zk_residue_mul(zk_residue_of(-0.375), zk_residue_of_int(8)), -3));
  cr_expect(is(zk_residue_mul(zk_residue_of(0x1p-1074),
                              zk_residue_mul(zk_residue_of(0x1p1000), zk_residue_of(0x1p74))),
               1));
  cr_expect(zk_residue_equal(zk_residue_mul(zk_residue_of(1e-30), zk_residue_of(0x1p100)),
                             zk_residue_of(1e-30 * 0x1p100)));
  double sum = 0.1 + 0x1p-5; /* has all their bits */
  cr_expect(zk_residue_equal(zk_residue_add(zk_residue_of(0.1), zk_residue_of(0x1p-5)), zk_residue_of(sum)));
  cr_expect(is(zk_residue_of(0), 0) && is(zk_residue_of_int(ZK_RESIDUE_PRIME), 0));
  for (int64_t n = 1; n < 1000; n++) {
    ZkResidue r = zk_residue_of_int(n * n * n * 12345 - 7);
    EACH_ASSERT(is(zk_residue_div(r, r), 1) && is(zk_residue_sub(r, r), 0), "%lld", (long long)n);
    EACH_ASSERT(is(zk_residue_of_int(-n), -n) && is(zk_residue_of((double)n), n), "%lld", (long long)n);
  }
  cr_expect(zk_residue_div(zk_residue_of_int(5), (ZkResidue){0}).r);
}

Test(residues, order_is_of_integers) {
  double up[] = {-INFINITY, -1000, -1, 0, 1, 1000, INFINITY};
  for (int i = 0; i < 7; i++)
    for (int j = 0; j < 7; j++)
      cr_expect_eq(zk_residue_less(zk_residue_of(up[i]), zk_residue_of(up[j])), i < j);
}

/* ---- elementwise operations ---- */
static ZkResidue apply(int op, const int64_t x[3]) {
  ZkResidue r[3], y;
  ZkCall c = {.op = (uint16_t)op, .nin = zg_op_info[op].max_in, .nout = 1, .num = {2.5}};
  for (int k = 0; k < c.nin; k++) {
    r[k] = zk_residue_of_int(x[k]);
    c.in[k] = (ZkView){.data = &r[k], .elem = ZK_F64};
  }
  c.out[0] = (ZkView){.data = &y, .elem = ZK_F64};
  zk_residue_run(&(ZkEnv){0}, &c);
  return y;
}

static double apply_f64(int op, const int64_t n[3]) {
  double x[3], y;
  ZkCall c = {.op = (uint16_t)op, .nin = zg_op_info[op].max_in, .nout = 1, .num = {2.5}};
  for (int k = 0; k < c.nin; k++) {
    x[k] = (double)n[k];
    c.in[k] = (ZkView){.data = &x[k], .elem = ZK_F64};
  }
  c.out[0] = (ZkView){.data = &y, .elem = ZK_F64};
  zk_ref_run(&(ZkEnv){0}, &c);
  return y;
}

/* Functions differ from each other, and wherever one of their arguments does; the rest are as on doubles. */
Test(residues, elementwise) {
  enum { MOST = 9 * ZG_OP_COUNT };
  uint64_t got[MOST];
  int n = 0;
  for (int op = 0; op < ZG_OP_COUNT; op++) {
    if (zg_op_info[op].kind != ZG_EW) continue;
    for (int i = 0; i < 9; i++) {
      int64_t x[3] = {i % 3 - 1, zg_op_info[op].max_in > 1 ? i / 3 - 1 : 0, 7};
      int64_t large[3] = {x[0] + 1000, x[1] + 1000, 7};
      if (zg_op_info[op].max_in < 2 && i / 3) break;
      ZkResidue y = apply(op, x), exact = zk_residue_of(apply_f64(op, x));
      cr_expect(zk_residue_equal(y, apply(op, x)), "%s", zg_op_info[op].text);
      if (isfinite(apply_f64(op, x)) && (op != ZG_OP_DIV || x[1]) && (op != ZG_OP_POW || x[0] > 0))
        cr_expect(zk_residue_equal(y, exact), "%s at small numbers", zg_op_info[op].text);
      if (is_function(op)) got[n++] = apply(op, large).r;
    }
  }
  cr_assert_gt(n, 30);
  for (int i = 0; i < n; i++)
    for (int j = 0; j < i; j++) EACH_ASSERT(got[i] != got[j], "%d and %d", i, j);
}

/* Pointwise functions have constants as floats: a graph's constant is the same one there. */
Test(residues, fill_is_a_float) {
  ZkResidue alone, fused;
  ZkPointwiseOp op = {.op = ZG_OP_FILL, .num = (float)0.1};
  ZkPointwise function = {.nops = 1, .nout = 1, .out = {0}, .ops = &op};
  ZkCall a = {.op = ZG_OP_FILL, .nout = 1, .num = {0.1}, .out = {{.data = &alone, .elem = ZK_F64}}};
  ZkCall b = {
      .op = ZG_OP_POINTWISE, .nout = 1, .pointwise = &function, .out = {{.data = &fused, .elem = ZK_F64}}};
  zk_residue_run(&(ZkEnv){0}, &a);
  zk_residue_run(&(ZkEnv){0}, &b);
  cr_expect(zk_residue_equal(alone, fused));
}

/* Operations made of functions have those of elementwise ones. */
Test(residues, softmax_is_exp_by_sum) {
  enum { N = 5 };
  ZkResidue x[N], y[N], sum = {0};
  ZkView v = {.data = x, .elem = ZK_F64, .rank = 1, .axis = {'e'}, .size = {N}, .stride = {1}, .whole = {N}};
  for (int i = 0; i < N; i++) x[i] = zk_residue_of_int(i * i - 6 * i);
  ZkCall c = {.op = ZG_OP_SOFTMAX, .nin = 1, .nout = 1, .nax = 1, .ax = {'e'}, .in = {v}, .out = {v}};
  c.out[0].data = y;
  zk_residue_run(&(ZkEnv){0}, &c);
  for (int i = 0; i < N; i++) sum = zk_residue_add(sum, apply(ZG_OP_EXP, (int64_t[3]){i * i - 6 * i}));
  for (int i = 0; i < N; i++) {
    ZkResidue e = apply(ZG_OP_EXP, (int64_t[3]){i * i - 6 * i}); /* the peak is 0 */
    cr_expect(zk_residue_equal(zk_residue_mul(y[i], sum), e));
  }
}
