/* Whole models against central differences: chains of segments by hand, where cotangents must cross repeats,
 * and the examples at tiny sizes. The bound on |difference| / max(1, |gradient|) is 1e-7 as in ops.c. */
#include <criterion/criterion.h>

#include "compiler/compiler.h"
#include "tests/unit/compiler/grad/interp.h"
#include "tests/unit/graph/make.h"

#define TOLERANCE 1e-7

static void verify(const ZgGraph *g, const char *when) {
  ZbErr err;
  if (zg_verify(g, &err)) return;
  ZbText t = {0};
  zg_print(g, ZG_NONE, &t);
  cr_assert_fail("%s: %s\n%s", when, err.text, t.s);
}

/* Differentiates and compares, as made and simplified. */
static void check(ZgGraph *g) {
  ZbErr err;
  verify(g, "forward");
  cr_assert(zc_differentiate(g, &err), "%s", err.text);
  for (int simplified = 0; simplified < 2; simplified++) {
    verify(g, simplified ? "simplified" : "backward");
    double error = interp_check(interp_new(g, g->arena, 3, 5), 20);
    cr_expect(error < TOLERANCE, "%s: off by %g", simplified ? "simplified" : "as made", error);
    zc_simplify(g);
  }
}

static Make start(void) {
  Make m = make_graph();
  make_axis(&m, "batch", 0);
  make_axis(&m, "a", 3);
  make_axis(&m, "b", 3);
  return m;
}

static uint32_t again(Make *m, uint32_t p) { /* another use of parameter p, in the segment at hand */
  return make_with(m, (ZgNode){.op = ZG_OP_PARAM, .opt = {p}}, "", 0, NULL);
}

/* x = tanh(dot(x, w)), back on axis a. */
static uint32_t layer(Make *m, uint32_t x, uint32_t w) {
  uint32_t y = make_with(m, (ZgNode){.op = ZG_OP_DOT}, "a", 2, (uint32_t[]){x, w});
  return make1(m, ZG_OP_TANH, make_with(m, (ZgNode){.op = ZG_OP_RENAME}, "b a", 1, &y));
}

static bool has(const ZgSegment *s, ZgOp op) {
  for (uint32_t i = 0; i < s->nnodes; i++)
    if (s->nodes[i].op == op) return true;
  return false;
}

Test(models, repeat_with_its_own_parameters) {
  Make t = start(), *m = &t;
  uint32_t x = make1(m, ZG_OP_SIN, make_input(m, "x", make_type(m, ZG_REAL, "batch a")));
  x = make2(m, ZG_OP_MUL, x, make_param(m, "gain", "a"));
  x = make_next(m, x, "layer", 4);
  x = layer(m, x, make_param(m, "layer.*.w", "a b"));
  x = make_next(m, x, "", 0);
  make_loss(m, x);
  check(t.g);
  zb_arena_free(t.a);
}

Test(models, a_parameter_of_outside_in_a_repeat_and_around_it) {
  Make t = start(), *m = &t;
  uint32_t w = make_param(m, "w", "a b");
  uint32_t x = layer(m, make_input(m, "x", make_type(m, ZG_REAL, "batch a")), w);
  x = layer(m, x, again(m, 0)); /* a second node of the same parameter */
  x = make_next(m, x, "layer", 3);
  x = layer(m, x, again(m, 0));
  x = make_next(m, x, "", 0);
  make_loss(m, layer(m, x, again(m, 0)));
  check(t.g);
  zb_arena_free(t.a);
}

/* What enters the repeat depends on no parameter; cotangents are still wanted between iterations. */
Test(models, repeat_on_an_input) {
  Make t = start(), *m = &t;
  uint32_t x = make_input(m, "x", make_type(m, ZG_REAL, "batch a"));
  x = make_next(m, x, "layer", 3);
  x = layer(m, x, make_param(m, "layer.*.w", "a b"));
  x = make_next(m, x, "", 0);
  make_loss(m, x);
  check(t.g);
  cr_expect(has(&t.g->segments[0], ZG_OP_DCARRY), "one set of positions on both sides of a repeat");
  zb_arena_free(t.a);
}

/* An iteration that ignores what it gets: the zero it passes back is a cotangent too. */
Test(models, repeat_that_forgets) {
  Make t = start(), *m = &t;
  uint32_t x = make_param(m, "w0", "a b");
  make_next(m, x, "layer", 3);
  x = make1(m, ZG_OP_TANH, make_param(m, "layer.*.w", "a b"));
  x = make_next(m, x, "", 0);
  make_loss(m, x);
  check(t.g);
  Interp *p = interp_new(t.g, t.a, 3, 5);
  interp_run(p, true);
  for (int i = 0; i < 9; i++) cr_expect_float_eq(p->grad[0][i], 0, 0);
  zb_arena_free(t.a);
}

/* Behind a stop nothing is differentiated, and simplification drops the cotangents that nobody reads. */
Test(models, no_cotangent_where_none_is_wanted) {
  Make t = start(), *m = &t;
  uint32_t x = make_input(m, "x", make_type(m, ZG_REAL, "batch a"));
  x = make_next(m, x, "layer", 2);
  x = make1(m, ZG_OP_SIN, x);
  x = make_next(m, x, "", 0);
  make_loss(m, make2(m, ZG_OP_MUL, x, make_param(m, "w", "a")));
  check(t.g);
  cr_expect(!has(&t.g->segments[0], ZG_OP_DCARRY) && !has(&t.g->segments[1], ZG_OP_DCARRY));
  cr_expect_eq(t.g->segments[1].nnodes, t.g->segments[1].nforward);
  zb_arena_free(t.a);
}

Test(models, aux_in_a_repeat) {
  Make t = start(), *m = &t;
  uint32_t x = make_param(m, "x0", "a");
  x = make_next(m, x, "layer", 3);
  x = layer(m, x, make_param(m, "layer.*.w", "a b"));
  make_sink(m, ZG_OP_AUX, make_sum(m, make2(m, ZG_OP_MUL, x, x), "a"));
  x = make_next(m, x, "", 0);
  make_sink(m, ZG_OP_AUX, make_sum(m, x, "a"));
  make_loss(m, x);
  check(t.g);
  zb_arena_free(t.a);
}

/* ---- the examples -------------------------------------------------------------------------------------- */
static ZgGraph *compiled(ZbArena *a, const char *file, const ZcDefine *defines, uint32_t n) {
  ZlSources *sources = zl_sources_new(a);
  ZlDiags *d = zl_diags_new(a, sources);
  ZlOptions none = {0};
  ZcOptions opt = {.defines = defines, .ndefines = n};
  ZlProgram *p = zl_load(a, sources, d, zb_printf(a, "%s/%s", ZUG_SRC, file), &none);
  ZgGraph *g = p && !zl_errors(d) ? zc_compile(a, sources, d, p, &opt) : NULL;
  ZbText t = {0};
  zl_print_text(d, &t);
  cr_assert(g, "%s", t.s);
  zb_text_free(&t);
  return g;
}

static void check_example(const char *file, const ZcDefine *defines, uint32_t n, uint64_t seed) {
  ZbArena *a = zb_arena_new();
  ZgGraph *g = compiled(a, file, defines, n);
  double error = interp_check(interp_new(g, a, 3, seed), 12);
  cr_expect(error < TOLERANCE, "%s: off by %g", file, error);
  zb_arena_free(a);
}

Test(models, mlp) {
  const ZcDefine d[] = {{"inputs", "5"}, {"hidden", "7"}, {"classes", "4"}};
  check_example("examples/mlp.zug", d, 3, 5);
}

Test(models, gpt2) {
  const ZcDefine d[] = {{"layers", "2"}, {"heads", "3"}, {"width", "6"}, {"context", "5"}, {"words", "7"}};
  check_example("examples/gpt2.zug", d, 5, 5);
}

Test(models, llama3) {
  const ZcDefine d[] = {{"layers", "2"}, {"heads", "4"}, {"kv_heads", "2"}, {"width", "8"},
                        {"inner", "5"},  {"words", "7"}, {"base", "100"}};
  check_example("examples/llama3.zug", d, 7, 5);
}

/* Scaled positions, and one table at both ends. */
Test(models, llama31) {
  const ZcDefine d[] = {{"layers", "2"}, {"heads", "4"},    {"kv_heads", "2"}, {"width", "8"},
                        {"inner", "5"},  {"words", "7"},    {"base", "100"},   {"factor", "4"},
                        {"tied", "1"},   {"original", "20"}};
  check_example("examples/llama3.zug", d, 10, 5);
}

Test(models, qwen3) {
  const ZcDefine d[] = {{"layers", "2"},   {"heads", "4"}, {"kv_heads", "2"}, {"width", "6"},
                        {"head_dim", "4"}, {"inner", "5"}, {"words", "7"},    {"base", "100"}};
  check_example("examples/qwen3.zug", d, 8, 5);
}

/* Several losses, each with its own denominator, in different segments. */
Test(models, losses) {
  const ZcDefine d[] = {{"layers", "2"}, {"width", "4"}, {"inner", "3"}, {"words", "5"}};
  check_example("tests/data/graphs/losses.zug", d, 4, 5);
}
