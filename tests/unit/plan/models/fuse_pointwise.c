/* Runs of elementwise ops: how many, and what is in them. */
#include "tests/unit/plan/models/plan.h"

#include <criterion/criterion.h>
#include <string.h>

static const char sizes[] = "bind batch = 8, seq = 16 micro 1\n";

static void expect_pointwise(const ZpPlan *p, const char *label, ZpPhase phase, const char *expect) {
  ZbText t = {0};
  put_pointwise(p, segment_of(p, label, 0), phase, &t);
  expect_text(&t, expect, zp_phase_text[phase]);
}

Test(fuse, gpt2_layer) {
  Model m = model_open("gpt2", NULL, "-D layers=4");
  Plan q = plan_of(m.g, sizes);
  expect_pointwise(
      q.p, "layer", ZP_FWD,
      "mul add, 3 in, 1 out\n"                                                      /* ln1: gain, bias */
      "add, 2 in, 1 out\nadd, 2 in, 1 out\nadd, 2 in, 1 out\n"                      /* biases of q, k, v */
      "add add, 3 in, 1 out\n"                                                      /* bias, residual */
      "mul add, 3 in, 1 out\n"                                                      /* ln2 */
      "fill add mul fill fill fill mul mul mul add mul tanh add mul, 2 in, 1 out\n" /* bias and GELU */
      "add add, 3 in, 1 out\n");
  ZbText t = {0};
  put_pointwise(q.p, segment_of(q.p, "layer", 0), ZP_BWD, &t);
  /* GELU again for w2's gradient, and its derivative, in one pass over the saved product */
  cr_assert(strstr(t.s, "tanh add mul mul mul sub"), "%s", t.s);
  uint32_t tanh = 0, lines = 0;
  for (const char *s = t.s; (s = strstr(s, "tanh")); s++) tanh++;
  for (const char *s = t.s; (s = strchr(s, '\n')); s++) lines++;
  cr_assert_eq(tanh, 1);
  cr_assert_eq(lines, 6);
  zb_text_free(&t);
  plan_close(&q);
  model_close(&m);
}

Test(fuse, llama3_layer) {
  Model m = model_open("llama3", NULL, "-D layers=4");
  Plan q = plan_of(m.g, sizes);
  expect_pointwise(q.p, "layer", ZP_FWD,
                   "mul, 2 in, 1 out\nadd, 2 in, 1 out\nmul, 2 in, 1 out\n"
                   "sigmoid mul mul, 2 in, 1 out\n" /* silu(gate) * up */
                   "add, 2 in, 1 out\n");
  /* of the gated product: itself again and the gradients of both factors, one pass over three tensors */
  const ZpSegment *s = &q.p->programs.segments[segment_of(q.p, "layer", 0)];
  uint32_t ffn = zg_axis_find(m.g, "ffn"), wide = 0;
  for (uint32_t i = 0; i < s->list[ZP_BWD].n; i++) {
    const ZpNode *k = &s->list[ZP_BWD].nodes[i];
    if (k->call.op != ZG_OP_POINTWISE || !zg_type_has(&s->values[k->out[0]].type, (uint16_t)ffn)) continue;
    wide++;
    cr_assert_eq(k->call.nin, 3);
    cr_assert_eq(k->call.nout, 3);
  }
  cr_assert_eq(wide, 1);
  plan_close(&q);
  model_close(&m);
}

/* A function of 3 n and more ops; of products of many tensors; of many results: all are cut to what a kernel
 * takes. */
typedef struct {
  uint32_t pointwise, ops, in, out;
} Most;
static Most most_of(const ZpPlan *p, ZpPhase phase) {
  Most most = {0};
  for (uint32_t s = 0; s < p->graph->nsegments; s++) {
    uint32_t n;
    const ZpNode *nodes = phase_nodes(&p->programs.segments[s], phase, &n);
    for (uint32_t i = 0; i < n; i++) {
      const ZkCall *k = &nodes[i].call;
      if (k->op != ZG_OP_POINTWISE) continue;
      most.pointwise++;
      if (k->pointwise->nops > most.ops) most.ops = k->pointwise->nops;
      if (k->nin > most.in) most.in = k->nin;
      if (k->nout > most.out) most.out = k->nout;
      cr_assert_leq(k->pointwise->nops, ZK_POINTWISE_MAX_OPS);
      cr_assert_leq(k->nin, ZK_MAX_IN);
      cr_assert_leq(k->nout, ZK_POINTWISE_OUT);
      for (uint32_t j = 0; j < k->pointwise->nops; j++) { /* operands are inputs or earlier ops */
        const ZkPointwiseOp *o = &k->pointwise->ops[j];
        int nin = zg_op_info[o->op].max_in;
        cr_assert(nin < 1 || o->a < k->nin + j);
        cr_assert(nin < 2 || o->b < k->nin + j);
        cr_assert(nin < 3 || o->c < k->nin + j);
      }
    }
  }
  return most;
}

static Plan planned(Model *m, const char *statements, const char *params) {
  ZbText t = {0};
  zb_text_add(
      &t,
      "model M() {\n  axis batch\n  axis a = 8, vocab = 8\n  input x: real[batch, a]\n  input t: "
      "index(vocab)[batch]\n"
      "  param w[a, vocab]%s ~ normal(1)\n  y = x\n%s\n  loss xent[vocab](dot[a](y, w), t) per known(t)\n}\n",
      params, statements);
  *m = model_open(NULL, t.s, NULL);
  zb_text_free(&t);
  Plan q = plan_of(m->g, "bind batch = 4");
  cr_assert_str_eq(plan_wrong(q.p, q.a), "");
  return q;
}

Test(fuse, many_ops) {
  Model m;
  ZbText body = {0};
  for (int i = 0; i < 100; i++) zb_text_add(&body, "  y = sin(y * p)\n");
  Plan q = planned(&m, body.s, ", p[a]");
  Most f = most_of(q.p, ZP_FWD), b = most_of(q.p, ZP_BWD);
  cr_assert_geq(f.pointwise, 200 / 64 + 1);
  cr_assert_leq(f.pointwise, 12);
  cr_assert_gt(f.ops, 32);
  cr_assert_leq(b.ops, 64);
  zb_text_free(&body);
  plan_close(&q);
  model_close(&m);
}

Test(fuse, many_operands) {
  Model m;
  ZbText body = {0}, params = {0};
  for (int i = 0; i < 40; i++) {
    zb_text_add(&params, ", p%d[a]", i);
    zb_text_add(&body, i ? " * (y + p%d)" : "  y = (y + p%d)", i);
  }
  Plan q = planned(&m, body.s, params.s);
  Most f = most_of(q.p, ZP_FWD);
  cr_assert_geq(f.pointwise, 40 / 12);
  cr_assert_leq(f.pointwise, 12);
  cr_assert_geq(f.in, 11);
  zb_text_free(&body);
  zb_text_free(&params);
  plan_close(&q);
  model_close(&m);
}

Test(fuse, many_results) {
  Model m;
  ZbText body = {0};
  zb_text_add(&body, "  z = 0 * y\n");
  for (int i = 0; i < 11; i++) /* each is read by a sum, so must exist */
    zb_text_add(&body, "  z = z + sum[a](sin(%d * y * p)) * y\n", i + 1);
  zb_text_add(&body, "  y = z\n");
  Plan q = planned(&m, body.s, ", p[a]");
  Most f = most_of(q.p, ZP_FWD);
  cr_assert_eq(f.out, ZK_POINTWISE_OUT);
  zb_text_free(&body);
  plan_close(&q);
  model_close(&m);
}

/* x is whole and y comes of it by a product, so a pointwise node over both cannot stand where x's does:
 * nothing is read before it is made (brute force says so for every plan of this file). */
Test(fuse, order) {
  Model m;
  Plan q = planned(&m,
                   "  u = sin(y * p)\n  s = sum[a](u)\n  v = cos(y * p) * s\n  r = sum[a](v)\n  y = u * r + "
                   "v * s + y * p * r\n",
                   ", p[a]");
  ZbText t = {0};
  put_pointwise(q.p, 0, ZP_FWD, &t);
  cr_assert(strstr(t.s, "mul sin, 2 in, 1 out\nmul cos mul, 3 in, 1 out\n") == t.s, "%s", t.s);
  zb_text_free(&t);
  plan_close(&q);
  model_close(&m);
}

/* An expert that all tokens go to: of the gradients of its input h, one is a part of a sum over all positions
 * and one is of those of this rank, in the same list and of one type. No pointwise node makes both. */
Test(fuse, sizes) {
  static const char text[] =
      "use std.nn as nn\nmodel M {\n  axis batch, seq, d = 8, f = 6, expert = 4, choice = 2, slot\n"
      "  input x: real[batch, seq, d]\n  param g[d] ~ normal(1)\n  y = x * g\n  repeat 2 as layer {\n"
      "    h = nn.RMSNorm[d](y) as norm\n"
      "    param router[d, expert], up[expert, d, f], down[expert, f, d] ~ normal(1)\n"
      "    w, e = topk[expert, choice](softmax[expert](f32(dot[d](h, router))))\n"
      "    rows = dispatch[expert, slot](h, e)\n"
      "    rows = dot[f](tanh(dot[d](rows, up)), down)\n"
      "    y = y + (combine[expert, slot, choice](rows, e, w) + nn.SwiGLU[d, f](h) as shared)\n  }\n"
      "  loss y * y per samples() }";
  static const char *const recipes[] = {
      "mesh tp = 2 split f over tp else seq",
      "mesh tp = 2, ep = 2 split f over tp else seq split batch, expert over ep",
      "mesh tp = 2, cp = 2 split f over tp else seq split seq over cp",
      "mesh pipe = 2, tp = 2 stages over pipe by cost split f over tp else seq"};
  Model m = model_open(NULL, text, NULL);
  for (size_t i = 0; i < sizeof recipes / sizeof *recipes; i++) {
    char recipe[200];
    snprintf(recipe, sizeof recipe, "%s bind batch = 4, seq = 8 micro 2", recipes[i]);
    Plan q = plan_of(m.g, recipe);
    const ZpSegment *s = &q.p->programs.segments[segment_of(q.p, "layer", 0)];
    uint16_t d = (uint16_t)zg_axis_find(m.g, "d"), seq = (uint16_t)zg_axis_find(m.g, "seq");
    bool sum = false, own = false;
    for (uint32_t k = 0; k < s->list[ZP_BWD].n; k++) {
      const ZpNode *n = &s->list[ZP_BWD].nodes[k];
      for (int j = 0; n->call.op == ZG_OP_POINTWISE && j < n->call.nout; j++) {
        const ZpValue *v = &s->values[n->out[j]];
        int tp = i == 3 ? 1 : 0;
        bool of_h = zg_type_has(&v->type, d) && zg_type_has(&v->type, seq);
        sum |= of_h && v->state[tp].kind == 'P';
        own |= of_h && v->state[tp].kind == 'S';
      }
    }
    cr_assert(sum && own, "%s", recipes[i]);
    plan_close(&q);
    Plan f = plan_fused(m.g, recipe, supports_norms);
    plan_close(&f);
  }
  model_close(&m);
}
