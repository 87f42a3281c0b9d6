/* The derivative of every operation against central differences in f64. Sizes are odd and
 * different, operands broadcast both ways. The bound on |difference| / max(1, |gradient|) is 1e-7:
 * differences are good to 1e-12 times the loss, which is below 1e3 here, and some slopes (div, log
 * near 0) have large higher derivatives. */
#include <criterion/criterion.h>
#include <string.h>

#include "compiler/compiler.h"
#include "tests/unit/compiler/grad/interp.h"
#include "tests/unit/graph/make.h"

#define TOLERANCE 1e-7

static Make start(void) {
  Make m = make_graph();
  make_axis(&m, "batch", 0);
  make_axis(&m, "a", 3);
  make_axis(&m, "b", 5);
  make_axis(&m, "c", 2);
  make_axis(&m, "v", 7);
  make_axis(&m, "ab", 8);
  make_axis(&m, "hd", 6);
  return m;
}

static void verify(const Make *m, const char *when) {
  ZbErr err;
  if (zg_verify(m->g, &err)) return;
  ZbText t = {0};
  zg_print(m->g, ZG_NONE, &t);
  cr_assert_fail("%s: %s\n%s", when, err.text, t.s);
}

/* Ends the graph with a loss of y, then compares; before and after simplification. */
static void check(Make *m, uint32_t y) {
  ZbErr err;
  make_loss(m, y);
  verify(m, "forward");
  cr_assert(zc_differentiate(m->g, &err), "%s", err.text);
  verify(m, "backward");
  for (int simplified = 0; simplified < 2; simplified++) {
    double error = interp_check(interp_new(m->g, m->a, 4, 11), 40);
    cr_expect(error < TOLERANCE, "%s: off by %g", simplified ? "simplified" : "as made", error);
    zc_simplify(m->g);
    verify(m, "simplified");
  }
  zb_arena_free(m->a);
}

/* x * x + 0.5: positive, for log and roots. */
static uint32_t positive(Make *m, uint32_t x) {
  return make2(m, ZG_OP_ADD, make2(m, ZG_OP_MUL, x, x), make_fill(m, 0.5));
}

/* ---- elementwise --------------------------------------------------------------------------------------- */
#define UNARY(NAME, OP, X)                                                                                   \
  Test(ops, NAME) {                                                                                          \
    Make t = start(), *m = &t;                                                                               \
    uint32_t x = make_param(m, "x", "a b");                                                                  \
    check(m, make1(m, OP, X));                                                                               \
  }
UNARY(neg, ZG_OP_NEG, x)
UNARY(exp, ZG_OP_EXP, x)
UNARY(log, ZG_OP_LOG, positive(m, x))
UNARY(sqrt, ZG_OP_SQRT, positive(m, x))
UNARY(rsqrt, ZG_OP_RSQRT, positive(m, x))
UNARY(tanh, ZG_OP_TANH, x)
UNARY(erf, ZG_OP_ERF, x)
UNARY(sin, ZG_OP_SIN, x)
UNARY(cos, ZG_OP_COS, x)
UNARY(abs, ZG_OP_ABS, x)
UNARY(sigmoid, ZG_OP_SIGMOID, x)
UNARY(log1p, ZG_OP_LOG1P, make2(m, ZG_OP_MUL, x, x))

/* What has no slope: the derivative of its product with x is itself. */
#define FLAT(NAME, OP)                                                                                       \
  Test(ops, NAME) {                                                                                          \
    Make t = start(), *m = &t;                                                                               \
    uint32_t x = make_param(m, "x", "a b");                                                                  \
    check(m, make2(m, ZG_OP_MUL, make1(m, OP, x), x));                                                       \
  }
FLAT(sign, ZG_OP_SIGN)
FLAT(floor, ZG_OP_FLOOR)

/* Each binary op with the narrow operand first, second, scalar, and used twice. */
#define BINARY(NAME, OP, Y)                                                                                  \
  Test(ops, NAME) {                                                                                          \
    const char *const shapes[][2] = {{"a b", "a b"}, {"a b", "b"}, {"a", "a b"}, {"", "a b"}, {"a", ""}};    \
    for (int i = 0; i < 5; i++) {                                                                            \
      Make t = start(), *m = &t;                                                                             \
      uint32_t x = make_param(m, "x", shapes[i][0]), y = make_param(m, "y", shapes[i][1]);                   \
      uint32_t z = make2(m, OP, x, Y);                                                                       \
      check(m, make2(m, ZG_OP_MUL, z, x));                                                                   \
    }                                                                                                        \
  }
BINARY(add, ZG_OP_ADD, y)
BINARY(sub, ZG_OP_SUB, y)
BINARY(mul, ZG_OP_MUL, y)
BINARY(div, ZG_OP_DIV, positive(m, y))
BINARY(max, ZG_OP_MAX, y)
BINARY(min, ZG_OP_MIN, y)

/* Powers of positive numbers, by all operands that vary; `check` of BINARY multiplies by x, which may be
 * negative. */
Test(ops, pow) {
  const char *const shapes[][2] = {{"a b", "a b"}, {"a b", "b"}, {"a", "a b"}, {"", "a b"}, {"a", ""}};
  for (int i = 0; i < 5; i++) {
    Make t = start(), *m = &t;
    uint32_t x = make_param(m, "x", shapes[i][0]), y = make_param(m, "y", shapes[i][1]);
    check(m, make2(m, ZG_OP_MUL, make2(m, ZG_OP_POW, positive(m, x), y), x));
  }
  for (int power = -2; power <= 3; power++) { /* of negative numbers, too, but by whole powers */
    Make t = start(), *m = &t;
    uint32_t x = make_param(m, "x", "a b");
    if (power < 0) x = positive(m, x);
    check(m, make2(m, ZG_OP_POW, x, make_fill(m, power)));
  }
}

/* One operand is a parameter, the other one an input, on either side. */
Test(ops, binary_with_what_is_given) {
  static const ZgOp ops[] = {ZG_OP_ADD, ZG_OP_SUB, ZG_OP_MUL, ZG_OP_DIV, ZG_OP_MAX, ZG_OP_MIN, ZG_OP_POW};
  for (size_t i = 0; i < sizeof ops / sizeof *ops; i++)
    for (int second = 0; second < 2; second++) {
      Make t = start(), *m = &t;
      uint32_t x = positive(m, make_param(m, "x", "a b"));
      uint32_t c = positive(m, make_input(m, "c", make_type(m, ZG_REAL, "b")));
      check(m, second ? make2(m, ops[i], c, x) : make2(m, ops[i], x, c));
    }
}

Test(ops, select) {
  Make t = start(), *m = &t;
  uint32_t x = make_param(m, "x", "a b"), y = make_param(m, "y", "b"), z = make_param(m, "z", "a");
  uint32_t less = make2(m, ZG_OP_LESS, x, z);
  uint32_t both = make2(m, ZG_OP_MUL, x, z);
  check(m, make3(m, ZG_OP_SELECT, less, y, both));
}

Test(ops, select_wide_condition) {
  Make t = start(), *m = &t;
  uint32_t x = make_param(m, "x", "a b"), y = make_param(m, "y", "b");
  check(m, make3(m, ZG_OP_SELECT, make2(m, ZG_OP_EQUAL, x, y), y, make2(m, ZG_OP_MUL, y, y)));
}

Test(ops, cast_and_mixed_elements) {
  Make t = start(), *m = &t;
  uint32_t x = make_param(m, "x", "a b"), y = make_param(m, "y", "b");
  uint32_t wide = make_typed(m, ZG_OP_CAST, x, make_type(m, ZG_F32, "a b"));
  check(m, make2(m, ZG_OP_MUL, wide, y)); /* f32 * real: the cotangent of y is cast back */
}

Test(ops, stop) {
  Make t = start(), *m = &t;
  uint32_t x = make_param(m, "x", "a");
  make_loss(m, make2(m, ZG_OP_MUL, x, make1(m, ZG_OP_STOP, x)));
  cr_assert(zc_differentiate(t.g, NULL));
  Interp *p = interp_new(t.g, t.a, 4, 3);
  interp_run(p, true);
  for (int i = 0; i < 3; i++) cr_expect_float_eq(p->grad[0][i], p->param[0][i] * p->input[0][i] / 2, 1e-12);
  zb_arena_free(t.a);
}

Test(ops, broadcast) {
  Make t = start(), *m = &t;
  uint32_t x = make_param(m, "x", "a");
  uint32_t wide = make_typed(m, ZG_OP_BROADCAST, x, make_type(m, ZG_REAL, "batch a b"));
  check(m, make1(m, ZG_OP_SIN, wide));
}

Test(ops, known) {
  Make t = start(), *m = &t;
  uint32_t x = make_param(m, "x", "a"), ids = make_ids(m, "ids", "v", "batch a");
  check(m, make2(m, ZG_OP_MUL, x, make1(m, ZG_OP_KNOWN, ids)));
}

/* ---- ties ---------------------------------------------------------------------------------------------- */
Test(ops, relu_has_slope_0_at_0) {
  Make t = start(), *m = &t;
  uint32_t x = make_param(m, "x", "a");
  make_loss(m, make2(m, ZG_OP_MAX, x, make_fill(m, 0)));
  cr_assert(zc_differentiate(t.g, NULL));
  Interp *p = interp_new(t.g, t.a, 4, 3);
  p->param[0][0] = 0;
  p->param[0][1] = 1;
  p->param[0][2] = -1;
  interp_run(p, true);
  cr_expect_float_eq(p->grad[0][0], 0, 0);
  cr_expect_float_eq(p->grad[0][1], p->input[0][1] / 2, 1e-15);
  cr_expect_float_eq(p->grad[0][2], 0, 0);
  zb_arena_free(t.a);
}

Test(ops, cumsum) {
  for (int reverse = 0; reverse < 2; reverse++) {
    Make t = start(), *m = &t;
    uint32_t x = make_param(m, "x", "a b c");
    uint32_t y = make_with(m, (ZgNode){.op = ZG_OP_CUMSUM, .opt = {reverse}}, "b", 1, &x);
    check(m, make2(m, ZG_OP_MUL, y, y));
  }
}

Test(ops, scan) {
  static const char *const axes[] = {"a b c", "a c", "b", ""};
  for (int kind = 0; kind < 4; kind++)
    for (size_t i = 0; i < sizeof axes / sizeof *axes; i++) {
      Make t = start(), *m = &t;
      uint32_t in[] = {make_param(m, "f", axes[i]), make_param(m, "x", "a b c")};
      uint32_t y = make_with(m, (ZgNode){.op = ZG_OP_SCAN, .opt = {kind & 1, kind >> 1}}, "b", 2, in);
      check(m, make2(m, ZG_OP_MUL, y, y));
    }
}

/* Every set of operands, of which some lack rows (c), and decays of each feature or not. */
Test(ops, linear_attend) {
  for (int more = 0; more < 8; more++)
    for (int shape = 0; shape < 3; shape++) {
      Make t = start(), *m = &t;
      uint32_t in[7] = {make_param(m, "q", "a b c"), make_param(m, "k", shape ? "a b" : "a b c"),
                        make_param(m, "v", "a v c")};
      int n = 3;
      if (more & ZG_LINEAR_DECAY) {
        uint32_t g = make_param(m, "g", shape == 2 ? "c" : shape ? "a b" : "a c");
        in[n++] = make1(m, ZG_OP_NEG, make2(m, ZG_OP_MUL, g, g));
      }
      if (more & ZG_LINEAR_FEED) in[n++] = make_param(m, "f", "a b c");
      if (more & ZG_LINEAR_PAIR) in[n++] = make_param(m, "k2", "a b"), in[n++] = make_param(m, "v2", "a v");
      uint32_t y = make_with(m, (ZgNode){.op = ZG_OP_LINEAR_ATTEND, .opt = {more}}, "a b v", n, in);
      check(m, make2(m, ZG_OP_MUL, y, y));
    }
}

Test(ops, peak_shares_ties) {
  Make t = start(), *m = &t;
  uint32_t x = make_param(m, "x", "a");
  make_loss(m, make_with(m, (ZgNode){.op = ZG_OP_PEAK}, "a", 1, &x));
  cr_assert(zc_differentiate(t.g, NULL));
  Interp *p = interp_new(t.g, t.a, 4, 3);
  p->param[0][0] = p->param[0][2] = 4;
  p->param[0][1] = 1;
  interp_run(p, true);
  cr_expect_float_eq(p->grad[0][0], 0.25, 1e-15);
  cr_expect_float_eq(p->grad[0][1], 0, 0);
  cr_expect_float_eq(p->grad[0][2], 0.25, 1e-15);
  zb_arena_free(t.a);
}

/* 0^2 and 0^0 have slope 0 by the base, 0^2 and 1^0 by the power: no infinity comes of the logarithm or of
 * 0^-1. */
Test(ops, powers_of_0) {
  Make t = start(), *m = &t;
  uint32_t x = make_param(m, "x", "a"), y = make_param(m, "y", "a");
  make_loss(m, make2(m, ZG_OP_POW, x, y));
  cr_assert(zc_differentiate(t.g, NULL));
  Interp *p = interp_new(t.g, t.a, 4, 3);
  const double base[] = {0, 0, 1}, power[] = {2, 0, 0};
  for (int i = 0; i < 3; i++) p->param[0][i] = base[i], p->param[1][i] = power[i];
  interp_run(p, true);
  for (int i = 0; i < 3; i++) {
    cr_expect_float_eq(p->grad[0][i], 0, 0);
    if (i != 1) cr_expect_float_eq(p->grad[1][i], 0, 0); /* 0^y falls from 1 to 0 at once */
  }
  zb_arena_free(t.a);
}

/* ---- moving -------------------------------------------------------------------------------------------- */
Test(ops, rename) {
  Make t = start(), *m = &t;
  make_axis(m, "a2", 3);
  uint32_t x = make_param(m, "x", "a b");
  uint32_t y = make_with(m, (ZgNode){.op = ZG_OP_RENAME}, "a a2", 1, &x);
  check(m, make_with(m, (ZgNode){.op = ZG_OP_DOT}, "b", 2, (uint32_t[]){x, y}));
}

Test(ops, slice_and_pad) {
  Make t = start(), *m = &t;
  uint32_t x = make_param(m, "x", "v b");
  uint32_t y = make_with(m, (ZgNode){.op = ZG_OP_SLICE, .opt = {2, 3}}, "v a", 1, &x);
  uint32_t z = make_with(m, (ZgNode){.op = ZG_OP_PAD, .opt = {4}}, "a ab", 1, &y);
  check(m, make1(m, ZG_OP_EXP, z));
}

/* conv and conv_transpose of parameters; the result has `axes`. */
static uint32_t convolve(Make *m, ZgNode n, const char *ax, const char *axes, uint32_t x, uint32_t w) {
  ZgType t = make_type(m, ZG_REAL, axes);
  char *copy = zb_strdup(m->a, ax), *save = NULL;
  for (char *a = strtok_r(copy, " ", &save); a; a = strtok_r(NULL, " ", &save))
    n.ax[n.nax++] = (uint16_t)zg_axis_find(m->g, a);
  n.nin = 2, n.in[0] = x, n.in[1] = w, n.num[0] = n.num[0] ? n.num[0] : 1;
  return zg_node_add(m->g, m->s, n, &t);
}

Test(ops, conv) {
  static const struct {
    ZgNode n;
    const char *ax, *x, *w, *y;
  } cases[] = {
      {{.opt = {1, ZG_CONV_SAME}}, "h k h", "b h", "c b k", "c h"},
      {{.opt = {1, ZG_CONV_CAUSAL}, .num = {2}}, "h k h", "b h", "b k", "b h"}, /* each channel by itself */
      {{.opt = {2, ZG_CONV_SAME}}, "h k p a k2 q", "a h b", "b c k k2", "p q c"},
      {{.opt = {2, 0}}, "h k2 p", "a h b", "b a k2 c", "p a c"}, /* in groups */
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    for (int transpose = 0; transpose < 2; transpose++) {
      Make t = start(), *m = &t;
      make_axis(m, "h", 6);
      make_axis(m, "k", 3);
      make_axis(m, "k2", 2);
      make_axis(m, "p", 3);
      make_axis(m, "q", 2);
      uint32_t x = make_param(m, "x", cases[i].x), w = make_param(m, "w", cases[i].w),
               y = make_param(m, "y", cases[i].y);
      ZgNode n = cases[i].n;
      n.op = transpose ? ZG_OP_CONV_TRANSPOSE : ZG_OP_CONV;
      uint32_t z = convolve(m, n, cases[i].ax, transpose ? cases[i].x : cases[i].y, transpose ? y : x, w);
      check(m, make2(m, ZG_OP_MUL, z, transpose ? x : y));
    }
}

Test(ops, merge_and_part) {
  Make t = start(), *m = &t;
  make_axis(m, "merged", 6);
  make_axis(m, "two", 2);
  make_axis(m, "three", 3);
  uint32_t x = make_param(m, "x", "two b three"), y = make_param(m, "y", "b merged");
  uint32_t merged = make_with(m, (ZgNode){.op = ZG_OP_MERGE}, "merged three two", 1, &x);
  uint32_t z = make2(m, ZG_OP_MUL, merged, y);
  z = make_with(m, (ZgNode){.op = ZG_OP_PART}, "two three merged", 1, &z);
  check(m, make2(m, ZG_OP_MUL, z, x));
}

Test(ops, concat) {
  Make t = start(), *m = &t;
  uint32_t x = make_param(m, "x", "a c"), y = make_param(m, "y", "b c");
  uint32_t z = make_with(m, (ZgNode){.op = ZG_OP_CONCAT}, "ab a b", 2, (uint32_t[]){x, y});
  check(m, make2(m, ZG_OP_MUL, z, z));
}

/* ---- reductions and products --------------------------------------------------------------------------- */
Test(ops, sum) {
  Make t = start(), *m = &t;
  uint32_t x = make_param(m, "x", "a b c");
  check(m, make1(m, ZG_OP_SIN, make_sum(m, make2(m, ZG_OP_MUL, x, x), "a c")));
}

Test(ops, peak) {
  Make t = start(), *m = &t;
  uint32_t x = make_param(m, "x", "a b c");
  check(m, make_with(m, (ZgNode){.op = ZG_OP_PEAK}, "c a", 1, &x));
}

/* Contracted, batched and single axes on either side; nothing contracted; one side inside the other. */
Test(ops, dot) {
  const char *const shapes[][3] = {{"a b", "b c", "b"},      {"a b c", "b c v", "b"}, {"b a", "b", "b"},
                                   {"b", "c b", "b"},        {"a b", "a c", ""},      {"a b c", "b c", "b c"},
                                   {"a b", "a b", "a b"},    {"a b", "a b", "b"},     {"a b", "b", ""},
                                   {"a b v", "a v c", "a v"}};
  for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
    Make t = start(), *m = &t;
    uint32_t x = make_param(m, "x", shapes[i][0]), y = make_param(m, "y", shapes[i][1]);
    check(m, make_with(m, (ZgNode){.op = ZG_OP_DOT}, shapes[i][2], 2, (uint32_t[]){x, y}));
  }
}

Test(ops, dot_of_a_value_with_itself) {
  Make t = start(), *m = &t;
  uint32_t x = make_param(m, "x", "a b");
  check(m, make_with(m, (ZgNode){.op = ZG_OP_DOT}, "b", 2, (uint32_t[]){x, x}));
}

/* ---- with kernels of their own ------------------------------------------------------------------------- */
Test(ops, softmax) {
  Make t = start(), *m = &t;
  uint32_t x = make_param(m, "x", "a b c");
  check(m, make_with(m, (ZgNode){.op = ZG_OP_SOFTMAX}, "b", 1, &x));
}

Test(ops, normalize) {
  for (int std = 0; std < 2; std++) {
    Make t = start(), *m = &t;
    uint32_t x = make_param(m, "x", "a b c");
    check(m, make_with(m, (ZgNode){.op = ZG_OP_NORMALIZE, .num = {1e-2}, .opt = {std}}, "b", 1, &x));
  }
}

Test(ops, rope) {
  for (int inverse = 0; inverse < 2; inverse++) {
    Make t = start(), *m = &t;
    uint32_t x = make_param(m, "x", "a b hd");
    check(m, make_with(m, (ZgNode){.op = ZG_OP_ROPE, .num = {100}, .opt = {inverse}}, "b hd", 1, &x));
  }
}

static uint32_t constant(Make *m, const char *axes, double x) {
  return make_typed(m, ZG_OP_BROADCAST, make_typed(m, ZG_OP_CAST, make_fill(m, x), make_type(m, ZG_F32, "")),
                    make_type(m, ZG_F32, axes));
}

Test(ops, rotate) {
  for (int form = 0; form < 4; form++) {
    Make t = start(), *m = &t;
    uint32_t x = make_param(m, "x", "a b hd"), at = constant(m, "b", 0.7), speed = constant(m, "hd", 0.9);
    ZgNode n = {.op = ZG_OP_ROTATE, .num = {1.3}, .opt = {form, form < 2 ? 2 : 4}};
    check(m, make_with(m, n, "hd", 3, (uint32_t[]){x, at, speed}));
  }
}

Test(ops, shift) {
  for (int by = -2; by <= 3; by++) {
    Make t = start(), *m = &t;
    uint32_t x = make_param(m, "x", "a b c");
    uint32_t y = make_with(m, (ZgNode){.op = ZG_OP_SHIFT, .opt = {by}}, "b", 1, &x);
    check(m, make2(m, ZG_OP_MUL, y, x));
  }
}

/* Heads that k and v have too, heads that share them, both; with and without a mask. */
Test(ops, attend) {
  const char *const shapes[][2] = {
      {"v hd", "v hd"}, {"a v hd", "a v hd"}, {"a v hd", "v hd"}, {"a c v hd", "c v hd"}};
  for (int i = 0; i < 8; i++) {
    Make t = start(), *m = &t;
    uint32_t q = make_param(m, "q", shapes[i / 2][0]), k = make_param(m, "k", shapes[i / 2][1]);
    uint32_t v = make_param(m, "v", shapes[i / 2][1]);
    ZgNode n = {.op = ZG_OP_ATTEND, .num = {0.6}, .opt = {i % 2}};
    check(m, make_with(m, n, "v hd", 3, (uint32_t[]){q, k, v}));
  }
}

/* Windows, caps, biases of which only some vary, sinks, ids of which some are unknown, two sequences, and
 * values of another width. Scores are small beside the caps: a cap's slope must count. */
Test(ops, attend_with_more) {
  static const struct {
    const char *q, *k, *v, *ax, *bias, *docs_q, *docs_k, *sinks, *prefix;
    int64_t causal, window;
    double cap;
  } kinds[] = {
      {"a v hd", "v hd", "v hd", "v hd", NULL, NULL, NULL, NULL, NULL, 1, 3, 0},
      {"a v hd", "v hd", "v hd", "v hd", NULL, NULL, NULL, NULL, NULL, 0, 2, 1.5},
      {"a v hd", "v hd", "v hd", "v hd", "a v", NULL, NULL, NULL, NULL, 1, 0, 0},
      {"a v hd", "v hd", "v hd", "v hd", "v", NULL, NULL, "a", NULL, 0, 0, 1},
      {"a v hd", "v hd", "v hd", "v hd", NULL, NULL, "v", "a", NULL, 1, 0, 0},
      {"a v hd", "v hd", "v b", "v hd v b", NULL, NULL, NULL, NULL, NULL, 1, 0, 2},
      {"a v hd", "a b hd", "a b c", "v hd b c", "a v b", "v", "a b", "", NULL, 0, 0, 1},
      {"a v hd", "b hd", "b hd", "v hd b hd", "b", NULL, "b", NULL, NULL, 0, 0, 0},
      {"a c v hd", "c b hd", "c b hd", "v hd b hd", "v b", NULL, NULL, "c a", NULL, 0, 0, 0},
      {"a v hd", "v hd", "v hd", "v hd", "v", NULL, "v", "a", "a", 2, 4, 1},
      {"a v hd", "a v hd", "a v hd", "v hd", NULL, NULL, NULL, NULL, "", 2, 0, 0},
  };
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
    Make t = start(), *m = &t;
    uint32_t in[ZG_MAX_IN] = {make_param(m, "q", kinds[i].q), make_param(m, "k", kinds[i].k),
                              make_param(m, "val", kinds[i].v)};
    int n = 3;
    if (kinds[i].bias) in[n++] = make_param(m, "bias", kinds[i].bias);
    if (kinds[i].docs_q) in[n++] = make_ids(m, "dq", "c", kinds[i].docs_q);
    if (kinds[i].docs_k) in[n++] = make_ids(m, "dk", "c", kinds[i].docs_k);
    if (kinds[i].prefix) in[n++] = make_ids(m, "prefix", "c", kinds[i].prefix);
    if (kinds[i].sinks) in[n++] = make_param(m, "sinks", kinds[i].sinks);
    ZgNode node = {.op = ZG_OP_ATTEND, .num = {0.6, kinds[i].cap}, .opt = {kinds[i].causal, kinds[i].window}};
    check(m, make_with(m, node, kinds[i].ax, n, in));
  }
}

/* One operand alone has a derivative: the others are given. */
static uint32_t one_of(Make *m, bool given, const char *name, const char *axes) {
  return given ? make_input(m, name, make_type(m, ZG_REAL, axes)) : make_param(m, name, axes);
}
Test(ops, of_one_operand) {
  for (int i = 0; i < 5; i++) {
    Make t = start(), *m = &t;
    uint32_t in[] = {one_of(m, i != 0, "q", "a v hd"), one_of(m, i != 1, "k", "v hd"),
                     one_of(m, i != 2, "val", "v hd"), one_of(m, i != 3, "bias", "a v"),
                     one_of(m, i != 4, "sinks", "a")};
    check(m, make_with(m, (ZgNode){.op = ZG_OP_ATTEND, .num = {0.6}, .opt = {1}}, "v hd", 5, in));
  }
  for (int i = 0; i < 2; i++) {
    Make t = start(), *m = &t;
    uint32_t x = one_of(m, i, "x", "a b"), y = one_of(m, !i, "y", "b c");
    check(m, make_with(m, (ZgNode){.op = ZG_OP_DOT}, "b", 2, (uint32_t[]){x, y}));
  }
  for (int i = 0; i < 2; i++) {
    Make t = start(), *m = &t;
    uint32_t x = one_of(m, i, "f", "a b"), y = one_of(m, !i, "x", "a b");
    check(m, make_with(m, (ZgNode){.op = ZG_OP_SCAN}, "b", 2, (uint32_t[]){x, y}));
  }
}
Test(ops, attend_to_itself) { /* one value as query, key and value */
  Make t = start(), *m = &t;
  uint32_t x = make_param(m, "x", "v hd");
  ZgNode n = {.op = ZG_OP_ATTEND, .num = {0.3}, .opt = {1}};
  check(m, make_with(m, n, "v hd", 3, (uint32_t[]){x, x, x}));
}

Test(ops, lookup) {
  Make t = start(), *m = &t;
  uint32_t table = make_param(m, "t", "v b"), ids = make_ids(m, "ids", "v", "batch a");
  check(m, make_with(m, (ZgNode){.op = ZG_OP_LOOKUP}, "v", 2, (uint32_t[]){table, ids}));
}

Test(ops, lookup_of_positions) {
  Make t = start(), *m = &t;
  uint32_t table = make_param(m, "t", "v b");
  uint32_t at = make_with(m, (ZgNode){.op = ZG_OP_POSITION}, "a v", 0, NULL);
  check(m, make_with(m, (ZgNode){.op = ZG_OP_LOOKUP}, "v", 2, (uint32_t[]){table, at}));
}

Test(ops, random_is_a_constant) {
  Make t = start(), *m = &t;
  uint32_t x = make_param(m, "x", "a b");
  ZgType type = make_type(m, ZG_REAL, "a b");
  ZgNode n = {.op = ZG_OP_RANDOM, .num = {0.7}, .opt = {99}};
  uint32_t keep = zg_node_add(m->g, m->s, n, &type);
  check(m, make2(m, ZG_OP_MUL, x, keep));
}

/* Both sums, each alone, and through the shift m, which need not be the maximum. */
Test(ops, xent_sums) {
  for (int i = 0; i < 4; i++) {
    Make t = start(), *m = &t;
    uint32_t z = make_param(m, "z", "a v"), ids = make_ids(m, "ids", "v", "a");
    uint32_t shift = i < 3 ? make_typed(m, ZG_OP_BROADCAST, make_fill(m, 0.3), make_type(m, ZG_REAL, "a"))
                           : make_param(m, "m", "a");
    uint32_t s = make_with(m, (ZgNode){.op = ZG_OP_XENT_SUMS}, "v", 3, (uint32_t[]){z, shift, ids}),
             p = s + 1;
    uint32_t y = i == 1 ? s : i == 2 ? p : make2(m, ZG_OP_SUB, make1(m, ZG_OP_LOG, s), p);
    check(m, y);
  }
}

Test(ops, xent_of_the_language) {
  Make t = start(), *m = &t;
  uint32_t z = make_param(m, "z", "a v"), ids = make_ids(m, "ids", "v", "a");
  uint32_t shift = make1(m, ZG_OP_STOP, make_with(m, (ZgNode){.op = ZG_OP_PEAK}, "v", 1, &z));
  uint32_t s = make_with(m, (ZgNode){.op = ZG_OP_XENT_SUMS}, "v", 3, (uint32_t[]){z, shift, ids});
  uint32_t nll = make2(m, ZG_OP_SUB, make2(m, ZG_OP_ADD, make1(m, ZG_OP_LOG, s), shift), s + 1);
  check(m, make2(m, ZG_OP_MUL, nll, make1(m, ZG_OP_KNOWN, ids)));
}

/* ---- what has no derivative says so -------------------------------------------------------------------- */
Test(ops, no_derivative) {
  Make t = start(), *m = &t;
  ZbErr err = {0};
  uint32_t x = make_param(m, "x", "a b");
  uint32_t y = make_with(m, (ZgNode){.op = ZG_OP_NORMALIZE, .num = {1e-5}}, "b", 1, &x);
  make_loss(m, y + 1); /* the scale */
  cr_assert(!zc_differentiate(t.g, &err));
  cr_expect(strstr(err.text, "normalize has no derivative of its scale"), "%s", err.text);
  zb_arena_free(t.a);
}

Test(ops, no_derivative_of_positions) {
  for (int i = 1; i < 3; i++) {
    Make t = start(), *m = &t;
    ZbErr err = {0};
    uint32_t x = make_param(m, "x", "b hd"), in[3] = {x, constant(m, "b", 1), constant(m, "hd", 1)};
    const char *axes = i == 1 ? "b" : "hd";
    in[i] = make_typed(m, ZG_OP_CAST, make_param(m, "w", axes), make_type(m, ZG_F32, axes));
    make_loss(m, make_with(m, (ZgNode){.op = ZG_OP_ROTATE, .num = {1}, .opt = {0, 6}}, "hd", 3, in));
    cr_assert(!zc_differentiate(t.g, &err));
    cr_expect(strstr(err.text, "rotate has no derivative of its positions and speeds"), "%s", err.text);
    zb_arena_free(t.a);
  }
}
