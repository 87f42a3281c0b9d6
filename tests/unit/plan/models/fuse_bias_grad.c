/* Gradients of biases made by the dots that make those of weights, and maxima made by the sums of
 * cross-entropy. (That such plans compute the same: play.c.) */
#include "tests/unit/plan/models/plan.h"

#include <criterion/criterion.h>

static bool wants_none(const ZkCall *k) { return k->op == ZG_OP_COUNT; }

/* Backward products of a layer that make a second gradient, and sums that are left. */
typedef struct {
  int fused, sums;
} Found;
static Found find(const ZpPlan *p) {
  Found f = {0, 0};
  uint32_t n;
  const ZpSegment *s = &p->programs.segments[segment_of(p, "layer", 0)];
  const ZpNode *nodes = phase_nodes(s, ZP_BWD, &n);
  for (uint32_t i = 0; i < n; i++) {
    const ZpNode *k = &nodes[i];
    f.sums += k->call.op == ZG_OP_SUM;
    if (k->call.op != ZG_OP_DOT_BIAS_GRAD) continue;
    const ZpValue *dw = &s->values[k->out[0]], *db = &s->values[k->out[1]];
    cr_assert(k->call.accumulate && k->overwrites && dw->at.space == ZP_AT_GRAD &&
              db->at.space == ZP_AT_GRAD);
    cr_assert_eq(db->type.naxes + k->call.nax, s->values[k->in[1]].type.naxes);
    f.fused += dw->nmembers ? dw->nmembers : 1; /* of q, k and v, one: batch_gemms.c */
  }
  return f;
}

static void expect(const char *name, const char *text, const char *recipe, bool (*supports)(const ZkCall *),
                   int fused, int sums) {
  Model m = model_open(name, text, name ? "-D layers=4" : NULL);
  Plan q = plan_fused(m.g, recipe, supports);
  const char *wrong = plan_wrong(q.p, q.a);
  cr_assert_str_eq(wrong, "", "%s", wrong);
  Found f = find(q.p);
  cr_expect_eq(f.fused, fused, "%d fused, expected %d", f.fused, fused);
  cr_expect_eq(f.sums, sums, "%d sums left, expected %d", f.sums, sums);
  plan_close(&q);
  model_close(&m);
}

#define ONE "bind batch = 8, seq = 16 micro 1"

/* What is left are the scales and shifts of two norms. */
Test(fuse_bias_grad, gpt2) {
  expect("gpt2", NULL, ONE, supports_bias_grads, 6, 4);
  expect("gpt2", NULL, ONE, wants_none, 0, 10);
}

/* Each rank's part of both is partial along the same dims. The weights wo and w2 are split and their biases
 * are not: two buckets, but of one unit. */
Test(fuse_bias_grad, split_over_ranks) {
  expect("gpt2", NULL, "mesh data = 2, tensor = 2 split batch over data split head, ffn over tensor " ONE,
         supports_bias_grads, 6, 4);
}

static const char layer[] =
    "model M() {\n  axis batch, seq\n  axis embed = 16, ffn = 32, vocab = 8\n"
    "  input tokens: index(vocab)[batch, seq]\n  input targets: index(vocab)[batch, seq]\n"
    "  param wte[vocab, embed] ~ normal(1)\n  x = lookup(wte, tokens)\n"
    "  repeat 3 as layer {\n"
    "    param w[embed, ffn], v[ffn, embed] ~ normal(1)\n    param b[ffn], c[ffn] = 0\n    %s\n  }\n"
    "  loss xent[vocab](dot[embed](x, wte), targets) per known(targets)\n}\n";

static void expect_layer(const char *body, int fused, int sums) {
  ZbText t = {0};
  zb_text_add(&t, layer, body);
  expect(NULL, t.s, ONE, supports_bias_grads, fused, sums);
  zb_text_free(&t);
}

/* A sum that is the gradient of two biases is added to both by a pointwise node; one of a bias that is added
 * to something else, or along other axes, has no product beside it. */
Test(fuse_bias_grad, which) {
  expect_layer("x = x + dot[ffn](dot[embed](x, w) + b + c, v)", 0, 1);
  expect_layer("x = x + dot[ffn](sin(dot[embed](x, w)) + b, v + 0 * c)", 0, 2);
  expect_layer("x = x + dot[ffn](sin(dot[embed](x, w) + b) * c, v)", 1, 1);
  expect_layer("x = x + dot[ffn](sin(dot[embed](w, x) + b) * c, v)", 1, 1); /* the other way about */
}

/* Both gradients must begin with the same backward: parameters of one unit, with the same users, staged or
 * not alike. */
Test(fuse_bias_grad, begin_together) {
  static const char outside[] =
      "model M() {\n  axis batch, seq\n  axis embed = 16, ffn = 32, vocab = 8\n"
      "  input tokens: index(vocab)[batch, seq]\n  input targets: index(vocab)[batch, seq]\n"
      "  param wte[vocab, embed] ~ normal(1)\n  param v[ffn, embed] ~ normal(1)\n"
      "  param w[embed, ffn], w2[embed, ffn] ~ normal(1)\n  param b[ffn], b2[ffn] = 0\n  x = lookup(wte, "
      "tokens)\n"
      "  repeat 3 as layer {\n    param wl[embed, ffn], bl[ffn] ~ normal(1)\n"
      "    x = x + dot[ffn](sin(dot[embed](x, %s) + %s), v)\n  }\n"
      "  x = x + dot[ffn](sin(dot[embed](x, %s) + %s), v)\n"
      "  loss xent[vocab](dot[embed](x, wte), targets) per known(targets)\n}\n";
  static const struct {
    const char *in[2], *after[2];
    int fused;
  } c[] = {{{"wl", "bl"}, {"w", "b"}, 1}, /* of the layer alone */
           {{"w", "b"}, {"w", "b"}, 1},   /* of both parts */
           {{"w", "b"}, {"w2", "b2"}, 1}, {{"w", "b"}, {"w", "b2"}, 0}, {{"w", "b"}, {"w2", "b"}, 0},
           {{"w", "bl"}, {"w", "b"}, 0},  {{"wl", "b"}, {"w", "b"}, 0}, {{"w", "bl"}, {"w2", "b2"}, 0},
           {{"wl", "b"}, {"w2", "b2"}, 0}};
  for (size_t i = 0; i < sizeof c / sizeof *c; i++) {
    ZbText t = {0};
    zb_text_add(&t, outside, c[i].in[0], c[i].in[1], c[i].after[0], c[i].after[1]);
    expect(NULL, t.s, ONE, supports_bias_grads, c[i].fused, !c[i].fused);
    zb_text_free(&t);
  }
}

/* A bias that is whole, and staged to be scattered, beside a weight that is split over the same ranks, and so
 * is neither. */
Test(fuse_bias_grad, staged_alike) {
  static const char body[] = "param d[embed] = 0  x = x + dot[ffn](sin(dot[embed](x, w)), v) + d";
  static const struct {
    const char *recipe;
    int fused;
  } c[] = {{"split ffn over t", 1},
           {"split ffn over t shard states over t", 1},
           {"split ffn over t shard grads, states over t", 0},
           {"split batch over t shard states over t", 1},
           {"split batch over t shard grads, states over t", 1}};
  for (size_t i = 0; i < sizeof c / sizeof *c; i++) {
    ZbText t = {0}, r = {0};
    zb_text_add(&t, layer, body);
    zb_text_add(&r, "mesh t = 2 %s " ONE, c[i].recipe);
    expect(NULL, t.s, r.s, supports_bias_grads, c[i].fused, !c[i].fused);
    zb_text_free(&t);
    zb_text_free(&r);
  }
}

/* ---- maxima ---- */
/* Of all segments and phases. */
static int count(const ZpPlan *p, ZgOp op) {
  int found = 0;
  for (uint32_t i = 0; i < p->graph->nsegments; i++)
    for (int phase = 0; phase < ZP_PHASES; phase++) {
      uint32_t n;
      const ZpNode *nodes = phase_nodes(&p->programs.segments[i], (ZpPhase)phase, &n);
      for (uint32_t k = 0; k < n; k++) found += nodes[k].call.op == op;
    }
  return found;
}

static void expect_maxima(const char *recipe, bool (*supports)(const ZkCall *), int maxima) {
  Model m = model_open("gpt2", NULL, "-D layers=4");
  Plan q = plan_fused(m.g, recipe, supports);
  const char *wrong = plan_wrong(q.p, q.a);
  cr_assert_str_eq(wrong, "", "%s", wrong);
  cr_expect_eq(count(q.p, ZG_OP_PEAK), maxima);
  cr_expect_eq(count(q.p, maxima ? ZG_OP_XENT_SUMS : ZG_OP_XENT_MAX_SUMS), 1);
  cr_expect_eq(count(q.p, maxima ? ZG_OP_XENT_MAX_SUMS : ZG_OP_XENT_SUMS), 0);
  plan_close(&q);
  model_close(&m);
}

/* Where the vocabulary is split, the ranks' maxima come first. */
Test(fuse_xent_max, gpt2) {
  expect_maxima(ONE, supports_xent_max, 0);
  expect_maxima(ONE, wants_none, 1);
  expect_maxima("mesh data = 2 split batch over data " ONE, supports_xent_max, 0);
  expect_maxima("mesh tensor = 2 split head, ffn, vocab over tensor pad vocab to 64 " ONE, supports_xent_max,
                1);
}
