/* Simplification, rewrite by rewrite: what goes, what must stay. That it changes no number is checked beside
 * every derivative in ops.c and models.c. */
#include <criterion/criterion.h>

#include "compiler/compiler.h"
#include "tests/unit/graph/make.h"

static Make start(void) {
  Make m = make_graph();
  make_axis(&m, "batch", 0);
  make_axis(&m, "a", 3);
  make_axis(&m, "a2", 3);
  make_axis(&m, "b", 5);
  return m;
}

static void simplify(Make *m) {
  ZbErr err;
  cr_assert(zg_verify(m->g, &err), "%s", err.text);
  zc_simplify(m->g);
  cr_assert(zg_verify(m->g, &err), "%s", err.text);
}

static int count(const ZgSegment *s, ZgOp op) {
  int n = 0;
  for (uint32_t i = 0; i < s->nnodes; i++) n += s->nodes[i].op == op;
  return n;
}

/* What the loss numerator is the sum of, after simplification: the node before `* weights` and sum. */
static const ZgNode *simplified(Make *m, uint32_t y) {
  make_loss(m, y);
  simplify(m);
  ZgSegment *s = m->s = &m->g->segments[m->g->nsegments - 1];
  for (uint32_t i = 0; i < s->nnodes; i++) {
    if (s->nodes[i].op != ZG_OP_LOSS_NUM) continue;
    const ZgNode *sum = &s->nodes[s->values[s->nodes[i].in[0]].node];
    if (sum->op != ZG_OP_SUM) return sum;
    return &s->nodes[s->values[s->nodes[s->values[sum->in[0]].node].in[0]].node];
  }
  return NULL;
}

static uint32_t size_of(Make *m, const char *axis) {
  return make_with(m, (ZgNode){.op = ZG_OP_AXSIZE}, axis, 0, NULL);
}

Test(simpl, constants_are_folded) {
  Make m = start();
  uint32_t c =
      make2(&m, ZG_OP_DIV, make_fill(&m, 3), make2(&m, ZG_OP_SUB, make_fill(&m, 5), make_fill(&m, 1)));
  const ZgNode *n = simplified(&m, make1(&m, ZG_OP_SQRT, make1(&m, ZG_OP_NEG, make1(&m, ZG_OP_NEG, c))));
  cr_expect(n->op == ZG_OP_FILL && n->num[0] * n->num[0] > 0.75 - 1e-15 &&
            n->num[0] * n->num[0] < 0.75 + 1e-15);
  zb_arena_free(m.a);
}

Test(simpl, sizes_that_the_model_knows_are_constants) {
  Make m = start();
  const ZgNode *n = simplified(&m, size_of(&m, "b"));
  cr_expect(n->op == ZG_OP_FILL && n->num[0] == 5);
  zb_arena_free(m.a);
  m = start();
  n = simplified(&m, size_of(&m, "batch")); /* the recipe's */
  cr_expect_eq(n->op, ZG_OP_AXSIZE);
  zb_arena_free(m.a);
}

Test(simpl, what_is_no_finite_number_is_left_to_run_time) {
  Make m = start();
  const ZgNode *n = simplified(&m, make2(&m, ZG_OP_DIV, make_fill(&m, 1), make_fill(&m, 0)));
  cr_expect_eq(n->op, ZG_OP_DIV);
  zb_arena_free(m.a);
  m = start();
  n = simplified(&m, make1(&m, ZG_OP_EXP, make_fill(&m, 100))); /* f32 overflows */
  cr_expect_eq(n->op, ZG_OP_EXP);
  zb_arena_free(m.a);
}

/* x op c and c op x, which equal x. */
Test(simpl, neutral_elements) {
  const struct {
    ZgOp op;
    double c;
    bool left, goes;
  } cases[] = {{ZG_OP_MUL, 1, true, true},  {ZG_OP_MUL, 1, false, true}, {ZG_OP_ADD, 0, true, true},
               {ZG_OP_ADD, 0, false, true}, {ZG_OP_SUB, 0, false, true}, {ZG_OP_DIV, 1, false, true},
               {ZG_OP_SUB, 0, true, false}, {ZG_OP_DIV, 1, true, false}, {ZG_OP_MUL, 0, false, false},
               {ZG_OP_MUL, 2, false, false}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    Make m = start();
    uint32_t x = make_param(&m, "x", "a"), c = make_fill(&m, cases[i].c);
    const ZgNode *n =
        simplified(&m, cases[i].left ? make2(&m, cases[i].op, c, x) : make2(&m, cases[i].op, x, c));
    cr_expect_eq(n->op, cases[i].goes ? ZG_OP_PARAM : cases[i].op, "case %zu", i);
    zb_arena_free(m.a);
  }
}

Test(simpl, a_neutral_element_that_widens_stays) {
  Make m = start();
  uint32_t x = make_param(&m, "x", "a"), one = make_fill(&m, 1);
  one = make_typed(&m, ZG_OP_CAST, one, make_type(&m, ZG_F32, "")); /* real * f32 is f32 */
  const ZgNode *n = simplified(&m, make2(&m, ZG_OP_MUL, x, one));
  cr_expect_eq(n->op, ZG_OP_MUL);
  zb_arena_free(m.a);
  m = start();
  x = make_param(&m, "x", "a");
  uint32_t zeros = make_typed(&m, ZG_OP_BROADCAST, make_fill(&m, 0), make_type(&m, ZG_REAL, "a b"));
  n = simplified(&m, make2(&m, ZG_OP_ADD, x, zeros));
  cr_expect_eq(n->op, ZG_OP_ADD);
  zb_arena_free(m.a);
}

Test(simpl, casts_and_renames_that_do_nothing) {
  Make m = start();
  uint32_t x = make_param(&m, "x", "a");
  uint32_t y = make_typed(&m, ZG_OP_CAST, x, make_type(&m, ZG_REAL, "a"));
  y = make_typed(&m, ZG_OP_BROADCAST, y, make_type(&m, ZG_REAL, "a"));
  y = make_with(&m, (ZgNode){.op = ZG_OP_RENAME}, "a a2", 1, &y);
  y = make_with(&m, (ZgNode){.op = ZG_OP_RENAME}, "a2 a", 1, &y);
  cr_expect_eq(simplified(&m, y)->op, ZG_OP_PARAM);
  zb_arena_free(m.a);
}

Test(simpl, elementwise_operations_need_no_broadcast) {
  Make m = start();
  uint32_t x = make_param(&m, "x", "a b"), y = make_param(&m, "y", "a");
  uint32_t wide = make_typed(&m, ZG_OP_BROADCAST, y, make_type(&m, ZG_REAL, "a b"));
  const ZgNode *n = simplified(&m, make2(&m, ZG_OP_MUL, x, wide));
  cr_expect_eq(n->op, ZG_OP_MUL);
  cr_expect_eq(count(m.s, ZG_OP_BROADCAST), 0);
  zb_arena_free(m.a);
}

Test(simpl, equal_nodes_are_shared) {
  Make m = start();
  uint32_t x = make_param(&m, "x", "a"), y = make_param(&m, "y", "a");
  uint32_t p = make1(&m, ZG_OP_EXP, make2(&m, ZG_OP_ADD, x, y)),
           q = make1(&m, ZG_OP_EXP, make2(&m, ZG_OP_ADD, y, x));
  uint32_t r = make2(&m, ZG_OP_SUB, x, y), s = make2(&m, ZG_OP_SUB, y, x); /* these differ */
  simplified(&m, make2(&m, ZG_OP_MUL, make2(&m, ZG_OP_MUL, p, q), make2(&m, ZG_OP_MUL, r, s)));
  cr_expect_eq(count(m.s, ZG_OP_EXP), 1);
  cr_expect_eq(count(m.s, ZG_OP_SUB), 2);
  zb_arena_free(m.a);
}

Test(simpl, equal_but_for_type_or_attribute) {
  Make m = start();
  uint32_t x = make_param(&m, "x", "a");
  uint32_t p = make_with(&m, (ZgNode){.op = ZG_OP_NORMALIZE, .num = {1e-5}}, "a", 1, &x);
  uint32_t q = make_with(&m, (ZgNode){.op = ZG_OP_NORMALIZE, .num = {1e-6}}, "a", 1, &x);
  uint32_t r = make_typed(&m, ZG_OP_BROADCAST, x, make_type(&m, ZG_REAL, "a b"));
  uint32_t s = make_typed(&m, ZG_OP_BROADCAST, x, make_type(&m, ZG_REAL, "batch a b"));
  uint32_t pq = make2(&m, ZG_OP_ADD, p, q);
  simplified(
      &m, make2(&m, ZG_OP_ADD, make1(&m, ZG_OP_SIN, s), make2(&m, ZG_OP_MUL, make1(&m, ZG_OP_SIN, r), pq)));
  cr_expect_eq(count(m.s, ZG_OP_NORMALIZE), 2);
  cr_expect_eq(count(m.s, ZG_OP_BROADCAST), 2);
  zb_arena_free(m.a);
}

Test(simpl, nodes_without_a_sink_go_and_places_stay) {
  Make m = start();
  uint32_t x = make_param(&m, "x", "a"), y = make1(&m, ZG_OP_TANH, x);
  m.s->nodes[m.s->nnodes - 1].loc = zg_loc_add(m.g, "f.zug", 7, 2);
  make1(&m, ZG_OP_EXP, y);
  make_param(&m, "unused", "a b");
  const ZgNode *n = simplified(&m, y);
  cr_expect_eq(m.g->locs[n->loc].line, 7);
  cr_expect_eq(count(m.s, ZG_OP_EXP), 0);
  cr_expect_eq(count(m.s, ZG_OP_PARAM), 1);
  cr_expect_eq(m.g->nparams, 2, "the parameter itself is part of the model");
  zb_arena_free(m.a);
}

Test(simpl, stop_goes_once_differentiated) {
  Make m = start();
  uint32_t x = make_param(&m, "x", "a");
  const ZgNode *n = simplified(&m, make2(&m, ZG_OP_MUL, x, make1(&m, ZG_OP_STOP, x)));
  cr_expect_eq(n->op, ZG_OP_MUL);
  cr_expect_eq(count(m.s, ZG_OP_STOP), 1);
  cr_assert(zc_differentiate(m.g, NULL));
  simplify(&m);
  cr_expect_eq(count(m.s, ZG_OP_STOP), 0);
  zb_arena_free(m.a);
}

/* ---- carried values ------------------------------------------------------------------------------------ */
/* Two positions: x is used at the end, y only by itself from iteration to iteration. */
static Make two_carried(bool use_y) {
  Make m = start();
  ZgType *t = ZB_NEWN(m.a, ZgType, 2);
  t[0] = make_type(&m, ZG_REAL, "batch a");
  t[1] = make_type(&m, ZG_REAL, "a");
  uint32_t v[2] = {make_input(&m, "x", t[0]), make_param(&m, "y0", "a")};
  for (int i = 0; i < 3; i++) {
    if (i) {
      uint32_t region = i == 1 ? zg_region_add(m.g, ZG_REGION_REPEAT, 0, "layer", "") : 0;
      m.s = zg_segment_add(m.g, i == 1 ? "layer" : "", region, i == 1, i == 1 ? 4 : 1);
      m.s->ncarry_in = 2;
      m.s->carry_in = t;
      for (int k = 0; k < 2; k++) v[k] = make_with(&m, (ZgNode){.op = ZG_OP_CARRY, .opt = {k}}, "", 0, NULL);
    }
    if (i == 1) {
      v[0] = make2(&m, ZG_OP_MUL, v[0], make_param(&m, "layer.*.g", "a"));
      v[1] = make1(&m, ZG_OP_SIN, v[1]);
    }
    if (i == 2) break;
    m.s->ncarry_out = 2;
    m.s->carry_out = t;
    for (int k = 0; k < 2; k++) make_with(&m, (ZgNode){.op = ZG_OP_CARRY_OUT, .opt = {k}}, "", 1, &v[k]);
  }
  make_loss(&m, use_y ? make2(&m, ZG_OP_MUL, v[0], v[1]) : v[0]);
  return m;
}

Test(simpl, a_position_that_nobody_needs_is_dropped_along_the_chain) {
  for (int differentiated = 0; differentiated < 2; differentiated++) {
    Make m = two_carried(false);
    if (differentiated) cr_assert(zc_differentiate(m.g, NULL));
    simplify(&m);
    cr_expect_eq(m.g->segments[0].ncarry_out, 1);
    cr_expect_eq(m.g->segments[1].ncarry_in, 1);
    cr_expect_eq(m.g->segments[2].ncarry_in, 1);
    cr_expect_eq(count(&m.g->segments[1], ZG_OP_SIN), 0);
    cr_expect_eq(count(&m.g->segments[0], ZG_OP_PARAM), 0);
    zb_arena_free(m.a);
  }
}

Test(simpl, a_position_in_use_stays) {
  Make m = two_carried(true);
  cr_assert(zc_differentiate(m.g, NULL));
  simplify(&m);
  for (int i = 0; i < 2; i++) cr_expect_eq(m.g->segments[i].ncarry_out, 2);
  cr_expect_eq(count(&m.g->segments[1], ZG_OP_DCARRY_IN), 2);
  zb_arena_free(m.a);
}

Test(simpl, twice_is_once) {
  Make m = two_carried(true);
  cr_assert(zc_differentiate(m.g, NULL));
  zc_simplify(m.g);
  ZbText once = {0}, twice = {0};
  zg_print(m.g, ZG_NONE, &once);
  zc_simplify(m.g);
  zg_print(m.g, ZG_NONE, &twice);
  cr_expect_str_eq(once.s, twice.s);
  zb_text_free(&once);
  zb_text_free(&twice);
  zb_arena_free(m.a);
}
