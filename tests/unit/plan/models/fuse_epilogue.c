/* Epilogues: which pointwise nodes become some, with what results, and which not. (That fused plans compute
 * the same: play.c.) */
#include "tests/unit/plan/models/plan.h"

#include <criterion/criterion.h>
#include <string.h>

static bool supports_dots(const ZkCall *k) { return k->op == ZG_OP_DOT && k->pointwise; }
static bool supports_none(const ZkCall *k) { return k->op == ZG_OP_COUNT; }

/* One line a fused node: the op, its epilogue, how many inputs, and its outputs; those that are results of
 * the op in brackets: "dot: add tanh, 3 in, out ffn [ffn]" by their last axis. */
static void put_fused(const ZpPlan *p, uint32_t segment, ZpPhase phase, ZbText *out) {
  uint32_t n;
  const ZpSegment *s = &p->programs.segments[segment];
  const ZpNode *nodes = phase_nodes(s, phase, &n);
  for (uint32_t i = 0; i < n; i++) {
    const ZkCall *k = &nodes[i].call;
    if (!k->pointwise || k->op == ZG_OP_POINTWISE) continue;
    zb_text_add(out, "%s:", zg_op_info[k->op].text);
    for (int j = 0; j < k->pointwise->nops; j++)
      zb_text_add(out, " %s", zg_op_info[k->pointwise->ops[j].op].text);
    zb_text_add(out, ", %d in, out", k->nin);
    for (int j = 0; j < k->nout; j++) {
      const ZpValue *v = &s->values[nodes[i].out[j]];
      bool result = k->pointwise->out[j] == 0;
      zb_text_add(out, result ? " [%s]" : " %s", p->graph->axes[v->axis[v->type.naxes - 1]].name);
    }
    zb_text_add(out, "\n");
  }
}

static void expect_fused(const ZpPlan *p, ZpPhase phase, const char *expect) {
  ZbText t = {0};
  put_fused(p, segment_of(p, "layer", 0), phase, &t);
  expect_text(&t, expect, zp_phase_text[phase]);
}

/* Pointwise nodes of a phase that are left. */
static uint32_t passes(const ZpPlan *p, ZpPhase phase) {
  uint32_t n, count = 0;
  const ZpNode *nodes = phase_nodes(&p->programs.segments[segment_of(p, "layer", 0)], phase, &n);
  for (uint32_t i = 0; i < n; i++) count += nodes[i].call.op == ZG_OP_POINTWISE;
  return count;
}

/* Forward, no pointwise node is left that follows a product: those of the norms stay. What GELU is of is
 * saved with the bias. (q, k and v, which are alike, have become one: batch_gemms.c.) */
Test(fuse_epilogue, gpt2_layer) {
  Model m = model_open("gpt2", NULL, "-D layers=4");
  Plan q = plan_fused(m.g, "bind batch = 8, seq = 16 micro 1", supports_dots);
  cr_assert_str_eq(plan_wrong(q.p, q.a), "");
  expect_fused(q.p, ZP_FWD,
               "dot: add, 3 in, out hd\n"
               "dot: add add, 4 in, out embed\n"
               "dot: add fill mul fill fill fill mul mul mul add mul tanh add mul, 3 in, out ffn ffn\n"
               "dot: add add, 4 in, out embed\n");
  cr_assert_eq(passes(q.p, ZP_FWD), 2);
  ZbText t = {0};
  put_fused(q.p, segment_of(q.p, "layer", 0), ZP_BWD, &t);
  cr_assert(t.s && strstr(t.s, "tanh add mul mul mul sub"), "%s", t.s); /* the gradient of GELU's input */
  zb_text_free(&t);
  plan_close(&q);
  model_close(&m);
}

/* y is a layer's result, of what it takes in. */
static Plan layer_on(Model *m, const char *mesh, const char *body, bool (*supports)(const ZkCall *)) {
  ZbText t = {0};
  zb_text_add(
      &t,
      "use std.nn as nn\nmodel M() {\n  axis batch, seq\n  axis embed = 16, ffn = 32, vocab = 8, mid = 8\n"
      "  input tokens: index(vocab)[batch, seq]\n  input targets: index(vocab)[batch, seq]\n"
      "  param wte[vocab, embed] ~ normal(1)\n  x = lookup(wte, tokens)\n"
      "  repeat 3 as layer {\n"
      "    param w[embed, ffn], u[embed, ffn], v[ffn, embed] ~ normal(1)\n    param b[ffn] = 0\n    %s\n  }\n"
      "  loss xent[vocab](dot[embed](x, wte), targets) per known(targets)\n}\n",
      body);
  *m = model_open(NULL, t.s, NULL);
  zb_text_free(&t);
  zb_text_add(&t, "%s bind batch = 8, seq = 16 micro 1", mesh);
  Plan q = plan_fused(m->g, t.s, supports);
  zb_text_free(&t);
  cr_assert_str_eq(plan_wrong(q.p, q.a), "");
  return q;
}
static Plan layer(Model *m, const char *body, bool (*supports)(const ZkCall *)) {
  return layer_on(m, "", body, supports);
}

static void expect_layer_on(const char *mesh, const char *body, const char *expect) {
  Model m;
  Plan q = layer_on(&m, mesh, body, supports_dots);
  expect_fused(q.p, ZP_FWD, expect);
  plan_close(&q);
  model_close(&m);
}

static void expect_layer(const char *body, const char *expect) { expect_layer_on("", body, expect); }

/* A product that is also saved is one more result; so is one that is read later. */
Test(fuse_epilogue, results) {
  expect_layer("x = x + dot[ffn](nn.relu(dot[embed](x, w)), v)",
               "dot: fill max, 2 in, out ffn [ffn]\ndot: add, 3 in, out embed\n");
  expect_layer("h = dot[embed](x, w) k = h + b x = dot[ffn](k, v) + dot[ffn](sin(h), v)",
               "dot: add sin, 3 in, out ffn ffn [ffn]\ndot: add, 3 in, out embed\n");
}

/* Somebody reads the product before the pointwise node can be. */
Test(fuse_epilogue, read_between) {
  expect_layer("h = dot[embed](x, w) z = dot[ffn](h, v) x = z + dot[ffn](h + b, v)",
               "dot: add, 3 in, out embed\n"); /* the last sum */
}

/* A product that is made before a collective does not wait for it with the pointwise node that does. */
Test(fuse_epilogue, collective_between) {
  static const char body[] = "param p[embed, mid], q[mid, embed] ~ normal(1)\n"
                             "y = dot[mid](dot[embed](x, p), q) x = y + dot[ffn](dot[embed](x, w), v)";
  expect_layer_on("mesh tensor = 2 split ffn over tensor", body, "");
  expect_layer(body, "dot: add, 3 in, out embed\n");
}

/* What takes keys of other ranks by turns is more than one call, whatever the device says. */
static bool supports_attend(const ZkCall *k) { return k->op == ZG_OP_ATTEND; }

Test(fuse_epilogue, of_a_ring) {
  Model m;
  Plan q = layer_on(&m, "mesh c = 2 split seq over c attention ring",
                    "x = x + attend[seq, embed](x, sin(x), x, mask = causal)", supports_attend);
  expect_fused(q.p, ZP_FWD, "");
  cr_assert_eq(count_collectives(q.p, segment_of(q.p, "layer", 0), ZP_FWD, ZG_OP_ATTEND, "c"), 1);
  plan_close(&q);
  model_close(&m);
}

Test(fuse_epilogue, as_the_device_says) {
  Model m, n;
  Plan none = layer(&m, "x = x + dot[ffn](nn.gelu(dot[embed](x, w) + b), v)", supports_none);
  Plan all = layer(&n, "x = x + dot[ffn](nn.gelu(dot[embed](x, w) + b), v)", supports_dots);
  expect_fused(none.p, ZP_FWD, "");
  cr_assert_eq(passes(none.p, ZP_FWD), 2);
  cr_assert_eq(passes(all.p, ZP_FWD), 0);
  plan_close(&none), plan_close(&all);
  model_close(&m), model_close(&n);
}

/* GELU again and its gradient, one pointwise node, of which the device wants the second: the first stays, and
 * computes what it did. */
Test(fuse_epilogue, part_of_a_node) {
  Model m;
  Plan q = layer(&m, "x = x + dot[ffn](nn.gelu_tanh(dot[embed](x, w) + b), v)", supports_single);
  expect_fused(q.p, ZP_FWD, "dot: add, 3 in, out embed\n");
  expect_fused(q.p, ZP_BWD,
               "dot: fill mul fill fill fill mul mul mul add mul tanh add mul mul sub mul mul mul add mul "
               "mul add mul mul "
               "add mul mul add, 3 in, out ffn\n"
               "dot: add, 3 in, out embed\n");
  ZbText t = {0};
  put_pointwise(q.p, segment_of(q.p, "layer", 0), ZP_BWD, &t);
  expect_text(&t, "fill mul fill fill fill mul mul mul add mul tanh add mul, 1 in, 1 out\n",
              "pointwise nodes");
  plan_close(&q);
  model_close(&m);
}
