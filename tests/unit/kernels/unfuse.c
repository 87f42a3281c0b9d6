/* Fused calls taken apart: where what no output stores lies between two calls. */
#include <criterion/criterion.h>

#include "graph/graph.h"
#include "kernels/kernels.h"

#include <string.h>

/* A product whose result is stored as its negative alone, in both types: in between it is not rounded. */
Test(unfuse, keeps_most_bits) {
  static ZkPointwiseOp neg = {.op = ZG_OP_NEG, .a = 0};
  static const ZkPointwise function = {.nops = 1, .nout = 2, .out = {1, 1}, .ops = &neg};
  float f[4];
  uint16_t h[4];
  for (int wide = 0; wide < 2; wide++) {
    ZkCall c = {.op = ZG_OP_DOT, .nin = 2, .nout = 2, .pointwise = &function};
    c.out[wide] = (ZkView){.data = f, .elem = ZK_F32};
    c.out[!wide] = (ZkView){.data = h, .elem = ZK_BF16};
    ZkUnfused u;
    zk_unfuse(&c, &u);
    cr_assert_eq(u.n, 2);
    cr_expect(u.call[0].op == ZG_OP_DOT && u.call[0].nout == 1 && u.call[0].out[0].data == (void *)f);
    cr_expect(u.call[1].op == ZG_OP_POINTWISE && u.call[1].nin == 1 && u.call[1].in[0].data == (void *)f);
    cr_expect(u.call[1].nout == 2 && u.call[1].nax == 0);
  }
}

/* ---- views ---- */
static float memory[12][64]; /* of operand or result i; those of calls are known by where they lie */

static ZkView of(float *data, int rank, int64_t rows, int64_t columns) {
  ZkView v = {.data = data, .elem = ZK_F32, .rank = (uint8_t)rank};
  if (rank == 2) v.axis[0] = 't', v.size[0] = rows, v.stride[0] = columns;
  v.axis[rank - 1] = rank == 2 ? 'e' : 't', v.size[rank - 1] = rank == 2 ? columns : rows;
  v.stride[rank - 1] = 1;
  return v;
}
static ZkView wide(int i) { return of(memory[i], 2, 3, 4); }
static ZkView rows(int i) { return of(memory[i], 1, 3, 0); }

/* What a call is: its op, where its operands and results lie, the axes that it sums over. */
static void is(const ZkCall *c, int op, int nin, const int *in, int nout, const int *out, const char *axes) {
  cr_expect_eq(c->op, op, "%s, not %s", zg_op_info[c->op].text, zg_op_info[op].text);
  cr_assert(c->nin == nin && c->nout == nout, "%s: %d, %d", zg_op_info[op].text, c->nin, c->nout);
  for (int i = 0; i < nin; i++)
    cr_expect(c->in[i].data == memory[in[i]], "%s: operand %d", zg_op_info[op].text, i);
  for (int i = 0; i < nout; i++)
    cr_expect(c->out[i].data == memory[out[i]], "%s: result %d", zg_op_info[op].text, i);
  cr_assert_eq(c->nax, strlen(axes), "%s", zg_op_info[op].text);
  for (int i = 0; i < c->nax; i++) cr_expect_eq(c->ax[i], axes[i]);
}
#define ARE(...)                                                                                             \
  (int)(sizeof(int[]){__VA_ARGS__} / sizeof(int)), (int[]) { __VA_ARGS__ }

/* ---- ops that are several ---- */
Test(unfuse, product_and_sum) {
  ZkCall c = {.op = ZG_OP_DOT_BIAS_GRAD, .nin = 2, .nout = 2, .nax = 1, .ax = {'t'}, .accumulate = true};
  c.in[0] = wide(0), c.in[1] = wide(1), c.out[0] = wide(2), c.out[1] = rows(3);
  ZkUnfused u = {.room = 1};
  zk_unfuse(&c, &u);
  cr_assert(u.n == 2 && u.room == 0);
  is(&u.call[0], ZG_OP_DOT, ARE(0, 1), ARE(2), "t");
  is(&u.call[1], ZG_OP_SUM, ARE(1), ARE(3), "t");
  cr_expect(u.call[0].accumulate && u.call[1].accumulate);
}

Test(unfuse, peak_and_sums) {
  ZkCall c = {.op = ZG_OP_XENT_MAX_SUMS, .nin = 2, .nout = 3, .nax = 1, .ax = {'e'}, .opt = {0, 7}};
  c.in[0] = wide(0), c.in[1] = rows(1);
  for (int i = 0; i < 3; i++) c.out[i] = rows(2 + i);
  ZkUnfused u = {.room = 1};
  zk_unfuse(&c, &u);
  cr_assert(u.n == 2 && u.room == 0);
  is(&u.call[0], ZG_OP_PEAK, ARE(0), ARE(4), "e");
  is(&u.call[1], ZG_OP_XENT_SUMS, ARE(0, 4, 1), ARE(2, 3), "e");
  cr_expect(u.call[0].opt[1] == 7 && u.call[1].opt[1] == 7);
}

/* What lies in the scratch: two rows of numbers, each from a new line of the cache on; behind them what the
 * calls themselves use. */
Test(unfuse, cross_entropy_and_gradient) {
  static const struct {
    int64_t rows;
    size_t each;
  } cases[] = {{1, 64}, {16, 64}, {17, 128}, {32, 128}};
  static char scratch[1024];
  for (size_t k = 0; k < sizeof cases / sizeof *cases; k++)
    for (int given = 0; given < 2; given++) {
      ZkCall c = {.op = ZG_OP_XENT_SUMS_GRAD, .nin = 3, .nout = 4, .nax = 1, .ax = {'e'}};
      int64_t n = cases[k].rows;
      size_t each = cases[k].each;
      c.in[0] = of(memory[0], 2, n, 1), c.in[1] = of(memory[1], 1, n, 0), c.in[2] = of(memory[2], 1, n, 0);
      c.out[0] = of(memory[3], 2, n, 1);
      for (int i = 1; i < 4; i++) c.out[i] = of(memory[3 + i], 1, n, 0);
      c.out[1].stride[0] = 2; /* what lies in the scratch is dense all the same */
      c.scratch = given ? scratch : NULL;
      ZkUnfused u;
      memset(&u, 7, sizeof u);
      void *untouched = u.call[4].scratch;
      zk_unfuse(&c, &u);
      cr_assert_eq(u.n, 4);
      cr_expect_eq(u.room, 2 * each, "%d: %zu", (int)n, u.room);
      cr_expect_eq(u.call[4].scratch, untouched);
      for (int i = 0; i < u.n; i++) cr_expect_eq(u.call[i].scratch, given ? scratch + 2 * each : NULL);
      is(&u.call[0], ZG_OP_PEAK, ARE(0), ARE(6), "e");
      is(&u.call[1], ZG_OP_XENT_SUMS, ARE(0, 6, 1), ARE(4, 5), "e");
      const ZkCall *scales = &u.call[2], *grad = &u.call[3];
      cr_assert(scales->op == ZG_OP_POINTWISE && scales->nin == 2 && scales->nout == 2 && scales->nax == 0);
      cr_expect(scales->in[0].data == memory[2] && scales->in[1].data == memory[4]);
      cr_assert(grad->op == ZG_OP_XENT_GRAD && grad->nin == 5 && grad->nout == 1 && grad->nax == 1);
      cr_expect(grad->in[0].data == memory[0] && grad->in[1].data == memory[6] &&
                grad->in[2].data == memory[1]);
      cr_expect(grad->out[0].data == memory[3]);
      for (int i = 0; i < 2; i++) {
        void *at = given ? scratch + (size_t)i * each : NULL;
        cr_expect(scales->out[i].data == at && grad->in[3 + i].data == at);
        cr_expect_eq(grad->in[3 + i].stride[0], 1);
      }
      const ZkPointwise *f = scales->pointwise; /* g / s, -g */
      cr_assert(f->nops == 2 && f->nout == 2 && f->out[0] == 2 && f->out[1] == 3);
      cr_expect(f->ops[0].op == ZG_OP_DIV && f->ops[0].a == 0 && f->ops[0].b == 1);
      cr_expect(f->ops[1].op == ZG_OP_NEG && f->ops[1].a == 0);
    }
}

/* ---- norms ---- */
/* The gradient of a norm and a sum of an input that is added up: the sum alone is, and no room is wanted. */
Test(unfuse, sums_of_a_norm) {
  static const ZkPointwise function = {.nout = 2, .out = {0, 1}};
  ZkCall c = {.op = ZG_OP_NORMALIZE_GRAD_SUMS, .nin = 4, .nout = 2, .nax = 1, .ax = {'e'}};
  for (int i = 0; i < 4; i++) c.in[i] = wide(i);
  c.out[0] = wide(4), c.out[1] = of(memory[5], 1, 4, 0);
  c.pointwise = &function, c.accumulate = true;
  ZkUnfused u = {.room = 1};
  zk_unfuse(&c, &u);
  cr_assert(u.n == 2 && u.room == 0);
  is(&u.call[0], ZG_OP_SUM, ARE(3), ARE(5), "t");
  is(&u.call[1], ZG_OP_NORMALIZE_GRAD, ARE(0, 1, 2), ARE(4), "e");
  cr_expect(u.call[0].accumulate && !u.call[0].pointwise && !u.call[1].accumulate);
}

/* A prologue makes operand 0 and what is summed, in result 0 before that is there. Registers: the gradient 0;
 * inputs 1 and 2; their product 3, of the prologue; what follows the gradient 4. */
Test(unfuse, sums_of_what_a_prologue_makes) {
  static ZkPointwiseOp ops[] = {{.op = ZG_OP_MUL, .a = 1, .b = 2}, {.op = ZG_OP_ADD, .a = 0, .b = 1}};
  static const ZkPointwise function = {
      .nops = 2, .prologue = 1, .operand = 3, .nout = 3, .out = {4, 3, 2}, .ops = ops};
  ZkCall c = {.op = ZG_OP_NORMALIZE_GRAD_SUMS, .nin = 4, .nout = 3, .nax = 1, .ax = {'e'}};
  for (int i = 0; i < 4; i++) c.in[i] = wide(i);
  c.out[0] = wide(4), c.out[1] = of(memory[5], 1, 4, 0), c.out[2] = of(memory[6], 1, 4, 0);
  c.pointwise = &function, c.accumulate = true;
  ZkUnfused u = {.room = 1};
  zk_unfuse(&c, &u);
  cr_assert_eq(u.n, 6);
  is(&u.call[0], ZG_OP_POINTWISE, ARE(2, 2, 3), ARE(4), "");
  cr_expect(u.call[0].pointwise->nops == 1 && u.call[0].pointwise->nout == 1 &&
            u.call[0].pointwise->out[0] == 3);
  is(&u.call[1], ZG_OP_SUM, ARE(4), ARE(5), "t");
  is(&u.call[2], ZG_OP_SUM, ARE(3), ARE(6), "t");
  is(&u.call[3], ZG_OP_POINTWISE, ARE(2, 2, 3), ARE(4), "");
  cr_expect(u.call[3].pointwise->nops == 1 && u.call[3].pointwise->out[0] == 3);
  is(&u.call[4], ZG_OP_NORMALIZE_GRAD, ARE(4, 0, 1), ARE(4), "e");
  is(&u.call[5], ZG_OP_POINTWISE, ARE(4, 2, 3), ARE(4), "");
  cr_expect(u.call[5].pointwise->nops == 2 && u.call[5].pointwise->nout == 1 &&
            u.call[5].pointwise->out[0] == 4);
  cr_expect(!u.call[5].pointwise->prologue && !u.call[5].pointwise->operand);
}

/* ---- prologues and epilogues ---- */
/* A result that is stored as it is, and otherwise too: it lies where it is stored, and is not made again. */
Test(unfuse, stored_results_are_kept) {
  static ZkPointwiseOp neg = {.op = ZG_OP_NEG, .a = 0};
  static const ZkPointwise function = {.nops = 1, .nout = 2, .out = {2, 0}, .ops = &neg};
  ZkCall c = {.op = ZG_OP_DOT, .nin = 3, .nout = 2, .nax = 1, .ax = {'k'}, .pointwise = &function};
  for (int i = 0; i < 3; i++) c.in[i] = wide(i);
  c.out[0] = wide(3), c.out[1] = wide(4);
  ZkUnfused u;
  zk_unfuse(&c, &u);
  cr_assert_eq(u.n, 2);
  is(&u.call[0], ZG_OP_DOT, ARE(0, 1), ARE(4), "k");
  is(&u.call[1], ZG_OP_POINTWISE, ARE(4, 2), ARE(3), "");
  cr_expect(!u.call[0].pointwise && u.call[1].pointwise->nout == 1 && u.call[1].pointwise->out[0] == 2);
}

/* Nothing follows where all is stored as it is; what is no fused call stays as it is. */
Test(unfuse, nothing_to_take_apart) {
  static const ZkPointwise function = {.nout = 1, .out = {0}};
  ZkCall c = {.op = ZG_OP_DOT, .nin = 2, .nout = 1, .nax = 1, .ax = {'k'}};
  c.in[0] = wide(0), c.in[1] = wide(1), c.out[0] = wide(2);
  for (int fused = 0; fused < 2; fused++) {
    ZkUnfused u = {.room = 1};
    c.pointwise = fused ? &function : NULL;
    zk_unfuse(&c, &u);
    cr_assert(u.n == 1 && u.room == 0);
    is(&u.call[0], ZG_OP_DOT, ARE(0, 1), ARE(2), "k");
    cr_expect(!u.call[0].pointwise);
  }
  c.op = ZG_OP_POINTWISE, c.nax = 0, c.pointwise = &function;
  ZkUnfused u;
  zk_unfuse(&c, &u);
  cr_expect(u.n == 1 && u.call[0].pointwise == &function);
}
