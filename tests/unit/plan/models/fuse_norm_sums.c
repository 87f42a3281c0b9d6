/* Gradients of norms' scales and shifts made by normalize's gradient. (That such plans compute the same:
 * play.c.) */
#include "tests/unit/plan/models/faults.h"
#include "tests/unit/plan/models/plan.h"

#include <criterion/criterion.h>

#define ONE "bind batch = 8, seq = 16 micro 1"

/* "normalize_grad_sums: 3 out, 2 sums, begins" for each norm of a layer's backward; how many sums are left.
 */
static void put_norms(const ZpPlan *p, ZbText *t) {
  uint32_t n, left = 0;
  const ZpSegment *s = &p->programs.segments[segment_of(p, "layer", 0)];
  const ZpNode *nodes = phase_nodes(s, ZP_BWD, &n);
  for (uint32_t i = 0; i < n; i++) {
    const ZkCall *k = &nodes[i].call;
    left += k->op == ZG_OP_SUM;
    if (k->op != ZG_OP_NORMALIZE_GRAD && k->op != ZG_OP_NORMALIZE_GRAD_SUMS) continue;
    int sums = 0;
    for (int j = 0; j < k->nout; j++) {
      const ZpValue *v = &s->values[nodes[i].out[j]];
      sums += v->at.space == ZP_AT_GRAD;
      cr_assert(!sums || (v->at.space == ZP_AT_GRAD && v->type.naxes == 1), "a sum is not among the last");
    }
    cr_assert_eq(sums > 0, k->op == ZG_OP_NORMALIZE_GRAD_SUMS);
    cr_assert_eq(sums > 0, k->accumulate);
    zb_text_add(t, "%s: %d out, %d sums%s\n", zg_op_info[k->op].text, k->nout, sums,
                nodes[i].overwrites ? ", begins" : "");
  }
  zb_text_add(t, "%u sums\n", left);
}

static void expect(const char *name, const char *text, const char *recipe, bool (*supports)(const ZkCall *),
                   const char *norms) {
  Model m = model_open(name, text, name ? "-D layers=4" : NULL);
  Plan q = plan_fused(m.g, recipe, supports);
  ZbText t = {0};
  const char *wrong = plan_wrong(q.p, q.a);
  cr_assert_str_eq(wrong, "", "%s", wrong);
  put_norms(q.p, &t);
  expect_text(&t, norms, recipe);
  plan_close(&q);
  model_close(&m);
}

/* Of the feed-forward's norm dx and what it made, and its scale and shift; of the other the same. Sums of
 * biases are left: this device does not make them beside products. */
Test(fuse_norm_sums, gpt2) {
  static const char both[] =
      "normalize_grad_sums: 4 out, 2 sums, begins\nnormalize_grad_sums: 4 out, 2 sums, begins\n6 sums\n";
  expect("gpt2", NULL, ONE, supports_norm_sums, both);
  expect("gpt2", NULL, "mesh data = 2 split batch over data " ONE, supports_norm_sums, both);
  expect("gpt2", NULL, "mesh data = 2 split batch over data shard params, grads, states over data " ONE,
         supports_norm_sums, both);
  expect("gpt2", NULL, ONE, supports_norms,
         "normalize_grad: 3 out, 0 sums\nnormalize_grad: 4 out, 0 sums\n10 sums\n");
}

Test(fuse_norm_sums, llama3) {
  static const char both[] =
      "normalize_grad_sums: 3 out, 1 sums, begins\nnormalize_grad_sums: 3 out, 1 sums, begins\n0 sums\n";
  expect("llama3", NULL, ONE, supports_norm_sums, both);
}

/* One call makes as many as the device says. */
static bool one_sum(const ZkCall *k) {
  return supports_norms(k) || (k->op == ZG_OP_NORMALIZE_GRAD_SUMS && zk_sums(k) == 1);
}
Test(fuse_norm_sums, as_the_device_says) {
  expect("gpt2", NULL, ONE, one_sum,
         "normalize_grad_sums: 4 out, 1 sums, begins\nnormalize_grad_sums: 4 out, 1 sums, begins\n8 sums\n");
}

/* Tensor parallelism: shifts' gradients are of what has not been added up over ranks yet, scales' of what
 * has. */
Test(fuse_norm_sums, collectives) {
  expect("gpt2", NULL, "mesh tensor = 2 split head, ffn over tensor " ONE, supports_norm_sums,
         "normalize_grad_sums: 3 out, 1 sums, begins\nnormalize_grad_sums: 2 out, 1 sums, begins\n8 sums\n");
}

static const char layer[] =
    "model M() {\n  axis batch, seq\n  axis embed = 16, ffn = 32, two = 2, vocab = 8\n"
    "  input tokens: index(vocab)[batch, seq]\n  input targets: index(vocab)[batch, seq]\n"
    "  param wte[vocab, embed] ~ normal(1)\n  param g[embed] = 1\n  x = lookup(wte, tokens)\n"
    "  repeat 3 as layer {\n"
    "    param w[embed, ffn], v[ffn, embed] ~ normal(1)\n    param s[embed], b[embed] = 1\n    param h[two, "
    "embed] "
    "= 1\n"
    "    y = normalize[embed](x, mode = rms, eps = 1)\n    %s\n  }\n"
    "  x = x * g\n  loss xent[vocab](dot[embed](x, wte), targets) per known(targets)\n}\n";

static void expect_layer(const char *body, const char *norms) {
  ZbText t = {0};
  zb_text_add(&t, layer, body);
  expect(NULL, t.s, ONE, supports_norm_sums, norms);
  zb_text_free(&t);
}

/* A sum that is not a gradient yet, or one of a parameter that does not begin with the other stays one
 * of its own. */
Test(fuse_norm_sums, which) {
  expect_layer("x = dot[ffn](sin(dot[embed](y * s + b, w)), v)",
               "normalize_grad_sums: 4 out, 2 sums, begins\n0 sums\n");
  expect_layer("x = dot[ffn](sin(dot[embed](y * sum[two](h), w)), v)",
               "normalize_grad: 3 out, 0 sums\n1 sums\n");
  expect_layer("x = dot[ffn](sin(dot[embed](y * s + g, w)), v)",
               "normalize_grad_sums: 4 out, 1 sums, begins\n1 sums\n");
}

/* ---- the proof: what makes such a call wrong ---- */
Test(fuse_norm_sums, proved) {
  Model m = model_open("gpt2", NULL, "-D layers=1 -D heads=2 -D width=16 -D context=16 -D words=32");
  Plan q =
      plan_fused(m.g, "mesh data = 2 split batch over data bind batch = 2, seq = 16", supports_norm_sums);
  ZpSegment *s = &q.p->programs.segments[segment_of(q.p, "layer", 0)];
  int found = 0;
  for (uint32_t i = 0; i < s->list[ZP_BWD].n; i++) {
    ZpNode *n = &s->list[ZP_BWD].nodes[i];
    if (n->call.op != ZG_OP_NORMALIZE_GRAD_SUMS) continue;
    ZkPointwise *f = (ZkPointwise *)n->call.pointwise;
    int last = n->call.nout - 1;
    WITH(f->out[last], 0, "sums what it has not before the gradient");
    WITH(s->values[n->out[last]].state[0].kind, 'R', "");
    WITH(n->call.accumulate, false, "adds no sums to gradients");
    WITH(n->call.ax[0], 0, "");
    WITH(n->call.op, ZG_OP_NORMALIZE_GRAD, "");
    found++;
  }
  cr_assert_eq(found, 2);
  plan_close(&q);
  model_close(&m);
}
