/* Every case of tests/data/graphs gives exactly the graphs that are expected: as instantiated, and after all passes.
 * `make regenerate-graphs` writes them anew. tests/unit/compiler/grad tests that derivatives are right; here
 * nothing may change unseen. */
#include "tests/unit/compiler/load.h"
#include "tests/unit/golden.h"

#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

static void print_after(void *arg, const char *pass, const ZgGraph *g) {
  if (strcmp(pass, "elab") && strcmp(pass, "final")) return;
  zb_text_add(arg, "# after %s\n", pass);
  zg_print(g, ZG_NONE, arg);
}

static void check_case(const char *file) {
  Case c = load_file(file);
  ZbText got = {0};
  c.opt.after = print_after;
  c.opt.arg = &got;
  cr_assert(compile(&c), "%s", messages(&c));
  golden_expect(file, got.s);
  zb_text_free(&got);
  done(&c);
}

Test(graphs, golden) {
  int cases = golden_each(ZUG_SRC "/tests/data/graphs", check_case);
  cr_expect(cases >= 5);
}

/* Functions of numbers whose last digits are the C library's: statics, and constant tensors that are
 * folded. */
Test(graphs, functions_of_constants) {
  static const struct {
    const char *call;
    double want;
  } cases[] = {{"exp(0.5)", 1.6487212707001282},
               {"log(3)", 1.0986122886681098},
               {"sin(0.5)", 0.479425538604203},
               {"cos(0.5)", 0.8775825618903728},
               {"tanh(0.5)", 0.46211715726000975},
               {"erf(0.5)", 0.5204998778130465},
               {"sqrt(0.5)", 0.7071067811865476},
               {"rsqrt(0.5)", 1.4142135623730951},
               {"log1p(0.5)", 0.4054651081081644},
               {"sigmoid(0.5)", 0.6224593312018546},
               {"floor(2.5)", 2},
               {"abs(-0.5)", 0.5},
               {"sign(-2.5)", -1}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    int open = (int)strcspn(cases[i].call, "(");
    ZbText text = {0};
    zb_text_add(&text,
                "model M { axis batch, a = 2  input x: real[batch, a]  param w[a] = %s\n  loss x * w * "
                "%.*s(f32%s) per x }",
                cases[i].call, open, cases[i].call, cases[i].call + open);
    Case c = load_text(text.s);
    const ZgGraph *g = compile(&c);
    cr_assert(g, "%s", messages(&c));
    cr_expect_float_eq(g->params[0].num[0], cases[i].want, 1e-12, "%s: %.17g", cases[i].call,
                       g->params[0].num[0]);
    int folded = 0;
    const ZgSegment *s = &g->segments[0];
    for (uint32_t k = 0; k < s->nforward; k++)
      folded += s->nodes[k].op == ZG_OP_FILL && fabs(s->nodes[k].num[0] - cases[i].want) < 1e-12;
    cr_expect_eq(folded, 1, "%s", cases[i].call);
    zb_text_free(&text);
    done(&c);
  }
}

/* A run reports terms of `aux` apart, wherever they stand, and a loss beside them, if the model has one. */
Test(graphs, what_a_model_is_trained_by) {
  static const struct {
    const char *body;
    bool aux, loss;
  } cases[] = {
      {"loss x * w per x", false, true},
      {"aux sum[a](w * w)  loss x * w per x", true, true},
      {"repeat 2 as layer { param v[a] ~ normal(1)  aux sum[a](v * v) }  loss x * w per x", true, true},
      {"aux sum[a](w * w)", true, false},
      {"aux sum[a](w * w)  loss other = 0 * x * w per x", true, true}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    ZbText text = {0};
    zb_text_add(&text, "model M { axis batch, a = 2  input x: real[batch, a]  param w[a] ~ normal(1)  %s }",
                cases[i].body);
    Case c = load_text(text.s);
    const ZgGraph *g = compile(&c);
    cr_assert(g, "%s", messages(&c));
    cr_expect(zg_has_aux(g) == cases[i].aux && zg_has_loss(g) == cases[i].loss, "%s: %d, %d", cases[i].body,
              zg_has_aux(g), zg_has_loss(g));
    zb_text_free(&text);
    done(&c);
  }
}
