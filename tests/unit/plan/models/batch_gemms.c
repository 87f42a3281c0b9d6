/* Products with one operand in common that have become one: which, and which not. (That such plans compute
 * the same: play.c.) */
#include "tests/unit/plan/models/plan.h"

#include <criterion/criterion.h>

static bool supports_biased(const ZkCall *k) {
  return k->op == ZG_OP_DOT && (supports_batched(k) || k->pointwise);
}

/* One line a batched GEMM: what it makes, by the last axis of its results or the parameters of which they are
 * gradients, and "+" with an epilogue: "hd hd hd +". */
static void put_batched(const ZpPlan *p, ZpPhase phase, ZbText *out) {
  uint32_t n;
  const ZpSegment *s = &p->programs.segments[segment_of(p, "layer", 0)];
  const ZpNode *nodes = phase_nodes(s, phase, &n);
  for (uint32_t i = 0; i < n; i++) {
    const ZpValue *v = nodes[i].call.nout ? &s->values[nodes[i].out[0]] : NULL;
    if (!v || !v->nmembers) continue;
    cr_assert(nodes[i].call.op == ZG_OP_DOT || nodes[i].call.op == ZG_OP_DOT_BIAS_GRAD);
    for (int k = 0; k < v->nmembers; k++) {
      const ZpValue *x = &s->values[v->member[k]];
      zb_text_add(out, "%s%s", k ? " " : "", p->graph->axes[x->axis[x->type.naxes - 1]].name);
    }
    zb_text_add(out, "%s\n", nodes[i].call.pointwise ? " +" : "");
  }
}

static void expect(Model *m, const char *recipe, bool (*supports)(const ZkCall *), const char *forward,
                   const char *backward) {
  Plan q = plan_fused(m->g, recipe, supports);
  const char *wrong = plan_wrong(q.p, q.a);
  cr_assert_str_eq(wrong, "", "%s", wrong);
  const char *const want[ZP_PHASES] = {"", forward, backward};
  for (int phase = 0; phase < ZP_PHASES; phase++) {
    ZbText t = {0};
    put_batched(q.p, (ZpPhase)phase, &t);
    if (want[phase]) expect_text(&t, want[phase], zp_phase_text[phase]);
    zb_text_free(&t);
  }
  plan_close(&q);
}

#define ONE "bind batch = 8, seq = 16 micro 1"

/* Without their biases as epilogues, q, k and v are temporaries, and are contiguous because they are asked to
 * be; so do the cotangents that attention's gradient makes. */
Test(batch_gemms, gpt2) {
  Model m = model_open("gpt2", NULL, "-D layers=4");
  expect(&m, ONE, supports_batched, "hd hd hd\n", "hd hd hd\n");
  expect(&m, ONE, supports_biased, "hd hd hd +\n", "hd hd hd\n");
  expect(&m, "mesh data = 2, tensor = 2 split batch over data split head, ffn over tensor " ONE,
         supports_biased, "hd hd hd +\n", "hd hd hd\n");
  expect(&m, "recompute layer " ONE, supports_biased, "hd hd hd +\n", "hd hd hd +\nhd hd hd\n");
  model_close(&m);
}

/* Of grouped queries q is larger than k and v, and of those one is turned before it is saved. Gate and up are
 * contiguous where they are saved. */
Test(batch_gemms, llama3) {
  Model m = model_open("llama3", NULL, "-D layers=2 -D heads=4 -D kv_heads=2 -D width=32 -D inner=64");
  expect(&m, ONE, supports_batched, "ffn ffn\n", "");
  model_close(&m);
}

static void expect_fused(const char *params, const char *body, bool (*supports)(const ZkCall *),
                         const char *forward, const char *backward) {
  ZbText t = {0};
  Model m;
  zb_text_add(&t,
              "model M() {\n  axis batch, seq\n  axis embed = 16, ffn = 32, odd = 3, few = 5, vocab = 8\n"
              "  input tokens: index(vocab)[batch, seq]\n  input targets: index(vocab)[batch, seq]\n"
              "  param wte[vocab, embed] ~ normal(1)\n  x = lookup(wte, tokens)\n"
              "  repeat 3 as layer {\n    param %s ~ normal(1)\n    %s\n  }\n"
              "  loss xent[vocab](dot[embed](x, wte), targets) per known(targets)\n}\n",
              params, body);
  m = model_open(NULL, t.s, NULL);
  zb_text_free(&t);
  expect(&m, ONE, supports, forward, backward);
  model_close(&m);
}
static void expect_layer(const char *params, const char *body, const char *forward, const char *backward) {
  expect_fused(params, body, supports_batched, forward, backward);
}

/* What comes after them must be the same, number by number. */
Test(batch_gemms, epilogues) {
  static const struct {
    const char *u, *v;
    bool one;
  } c[] = {{"sin(%s + b)", "sin(%s + d)", true},          {"sin(%s + b)", "cos(%s + d)", false},
           {"sin(%s + b) * 2", "sin(%s + d) * 3", false}, {"sin(%s) - b", "d - sin(%s)", false},
           {"sin(%s + b)", "sin(%s) + d", false},         {"sin(%s)", "sin(sin(%s))", false}};
  for (size_t i = 0; i < sizeof c / sizeof *c; i++) {
    char u[64], v[64];
    snprintf(u, sizeof u, c[i].u, "dot[embed](x, u)");
    snprintf(v, sizeof v, c[i].v, "dot[embed](x, v)");
    ZbText t = {0};
    zb_text_add(&t, "p = %s  q = %s  x = x + dot[ffn](p, w) + dot[ffn](q, w)", u, v);
    expect_fused("u[embed, ffn], v[embed, ffn], b[ffn], d[ffn], w[ffn, embed]", t.s, supports_biased,
                 c[i].one ? "ffn ffn +\n" : "", NULL);
    zb_text_free(&t);
  }
}

/* Not if other parameters lie between, if there are gaps, or if one is needed before the other can be; four
 * at most. */
Test(batch_gemms, which) {
  expect_layer("u[embed, ffn], v[embed, ffn], w[ffn, embed]",
               "x = x + dot[ffn](dot[embed](x, u) * sin(dot[embed](x, v)), w)", "ffn ffn\n", "");
  expect_layer("u[embed, ffn], v[embed, ffn], w[ffn, embed]", /* what they share is the second operand */
               "x = x + dot[ffn](dot[embed](u, x) * sin(dot[embed](v, x)), w)", "ffn ffn\n", "");
  expect_layer("u[embed, ffn], w[ffn, embed], v[embed, ffn]",
               "x = x + dot[ffn](dot[embed](x, u) * sin(dot[embed](x, v)), w)", "", "");
  expect_layer(
      "y[embed, odd], u[odd, few], v[odd, few], w[few, embed]", /* 15 elements each, at multiples of 16 */
      "h = dot[embed](x, y) x = x + dot[few](dot[odd](h, u) * sin(dot[odd](h, v)), w)", "", "");
  expect_layer("u[embed, ffn], v[embed, ffn], w[ffn, embed]",
               "h = dot[embed](x, u) x = x + dot[ffn](h, w) x = x + dot[ffn](dot[embed](x, v) * h, w)", "",
               "");
  expect_layer(
      "a[embed, ffn], b[embed, ffn], c[embed, ffn], d[embed, ffn], f[embed, ffn], w[ffn, embed]",
      "h = dot[embed](x, a) * dot[embed](x, b) * dot[embed](x, c) * dot[embed](x, d) * dot[embed](x, f)"
      " x = x + dot[ffn](sin(h), w)",
      "ffn ffn ffn ffn\n", "");
}
