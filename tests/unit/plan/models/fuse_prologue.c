/* Prologues: where, with what, and where not. (That such plans compute the same: play.c.) */
#include "tests/unit/plan/models/plan.h"

#include <criterion/criterion.h>
#include <string.h>

static bool supports_after(const ZkCall *k) { return supports_norms(k) && !k->pointwise->prologue; }
static bool supports_small(const ZkCall *k) {
  return supports_norms(k) && (!k->pointwise->prologue || k->nout < 4);
}

/* One line a fused node: "normalize: 1 ops before, 2 after, 4 in, 4 out". */
static void expect_amid(const ZpPlan *p, ZpPhase phase, const char *expect) {
  ZbText t = {0};
  uint32_t n;
  const ZpSegment *s = &p->programs.segments[segment_of(p, "layer", 0)];
  const ZpNode *nodes = phase_nodes(s, phase, &n);
  for (uint32_t i = 0; i < n; i++) {
    const ZkCall *k = &nodes[i].call;
    if (k->pointwise && k->op != ZG_OP_POINTWISE)
      zb_text_add(&t, "%s: %d ops before, %d after, %d in, %d out\n", zg_op_info[k->op].text,
                  k->pointwise->prologue, k->pointwise->nops - k->pointwise->prologue, k->nin, k->nout);
  }
  expect_text(&t, expect, zp_phase_text[phase]);
}

static uint32_t passes(const ZpPlan *p, ZpPhase phase) {
  uint32_t n, count = 0;
  const ZpNode *nodes = phase_nodes(&p->programs.segments[segment_of(p, "layer", 0)], phase, &n);
  for (uint32_t i = 0; i < n; i++) count += nodes[i].call.op == ZG_OP_POINTWISE;
  return count;
}

/* What is wanted of a layer's norms, forward and backward, and how many pointwise nodes are left in the
 * latter. */
static void expect_layer(const char *name, const char *recipe, bool (*supports)(const ZkCall *),
                         const char *forward, const char *backward, uint32_t pointwise) {
  Model m = model_open(name, NULL, "-D layers=4");
  Plan q = plan_fused(m.g, recipe, supports);
  cr_assert_str_eq(plan_wrong(q.p, q.a), "");
  expect_amid(q.p, ZP_FWD, forward);
  expect_amid(q.p, ZP_BWD, backward);
  cr_assert_eq(passes(q.p, ZP_BWD), pointwise, "%u pointwise nodes in backward", passes(q.p, ZP_BWD));
  plan_close(&q);
  model_close(&m);
}

/* Forward, the first norm is of what is carried in; the second of a sum that is read again. Backward,
 * gradient times scale is read by nothing else, the gradient times y and the norm's own result made again
 * are. What GELU needs stays. */
Test(fuse_prologue, gpt2_layer) {
  expect_layer(
      "gpt2", "bind batch = 8, seq = 16 micro 1", supports_norms,
      "normalize: 0 ops before, 2 after, 3 in, 3 out\nnormalize: 2 ops before, 2 after, 5 in, 4 out\n",
      "normalize_grad: 4 ops before, 1 after, 7 in, 3 out\nnormalize_grad: 6 ops before, 1 after, 9 in, 4 "
      "out\n",
      1);
}

Test(fuse_prologue, llama3_layer) {
  expect_layer(
      "llama3", "bind batch = 8, seq = 16 micro 1", supports_norms,
      "normalize: 0 ops before, 1 after, 2 in, 3 out\nnormalize: 1 ops before, 1 after, 3 in, 4 out\n",
      "normalize_grad: 4 ops before, 1 after, 7 in, 3 out\nnormalize_grad: 5 ops before, 1 after, 8 in, 3 "
      "out\n",
      1);
}

Test(fuse_prologue, as_the_device_says) {
  expect_layer(
      "gpt2", "bind batch = 8, seq = 16 micro 1", supports_after,
      "normalize: 0 ops before, 2 after, 3 in, 3 out\nnormalize: 0 ops before, 2 after, 3 in, 3 out\n",
      "normalize_grad: 0 ops before, 1 after, 4 in, 1 out\nnormalize_grad: 0 ops before, 1 after, 4 in, 1 "
      "out\n",
      3);
  expect_layer(
      "gpt2", "bind batch = 8, seq = 16 micro 1", supports_small,
      "normalize: 0 ops before, 2 after, 3 in, 3 out\nnormalize: 0 ops before, 2 after, 3 in, 3 out\n",
      "normalize_grad: 4 ops before, 1 after, 7 in, 3 out\nnormalize_grad: 0 ops before, 1 after, 4 in, 1 "
      "out\n",
      2);
}

/* A tensor-parallel layer: sums of parts come between products and pointwise nodes, none between pointwise
 * nodes and norms. What backward makes of y for the products' gradients is made before it waits for one. */
Test(fuse_prologue, collectives) {
  expect_layer(
      "gpt2", "mesh tensor = 2 bind batch = 8, seq = 16 micro 1 split head, ffn over tensor", supports_norms,
      "normalize: 0 ops before, 2 after, 3 in, 3 out\nnormalize: 2 ops before, 2 after, 5 in, 4 out\n",
      "normalize_grad: 2 ops before, 3 after, 9 in, 3 out\nnormalize_grad: 2 ops before, 1 after, 6 in, 2 "
      "out\n",
      3);
}

static void expect_forward(const char *body, const char *forward) {
  ZbText t = {0};
  zb_text_add(&t,
              "model M() {\n  axis batch, seq\n  axis embed = 16, out = 16, vocab = 8\n"
              "  input tokens: index(vocab)[batch, seq]\n  input targets: index(vocab)[batch, seq]\n"
              "  param wte[vocab, embed] ~ normal(1)\n  x = lookup(wte, tokens)\n"
              "  repeat 3 as layer {\n    param b[embed] ~ normal(1)\n    h = x + b\n    %s\n  }\n"
              "  loss xent[vocab](dot[embed](x, wte), targets) per known(targets)\n}\n",
              body);
  Model m = model_open(NULL, t.s, NULL);
  zb_text_free(&t);
  Plan q = plan_fused(m.g, "bind batch = 8, seq = 16 micro 1", supports_norms);
  cr_assert_str_eq(plan_wrong(q.p, q.a), "");
  expect_amid(q.p, ZP_FWD, forward);
  plan_close(&q);
  model_close(&m);
}

/* Where what follows the op reads something that is made between, the pointwise node stays; else it is a
 * prologue, though its result be read there. */
Test(fuse_prologue, made_between) {
  expect_forward("x = normalize[embed](h, mode = rms, eps = 1) * b",
                 "normalize: 1 ops before, 1 after, 2 in, 3 out\n");
  expect_forward("x = normalize[embed](h, mode = rms, eps = 1) * b + softmax[embed](h)",
                 "normalize: 0 ops before, 2 after, 3 in, 3 out\n");
  expect_forward(
      "s = softmax[embed](h) y = normalize[embed](h, mode = rms, eps = 1) * b x = y + dot[embed](s, y)",
      "normalize: 1 ops before, 1 after, 2 in, 4 out\n");
}

/* Of two pairs that cross, the first to be fused changes nothing about who makes what the other reads. */
Test(fuse_prologue, pairs_that_cross) {
  expect_forward(
      "param w[embed, out], g[embed, out] ~ normal(1)\n"
      "u = normalize[embed](w * g, mode = rms, eps = 1)\n"
      "y = normalize[embed](h, mode = rms, eps = 1) * x x = dot[out](dot[embed](y, u), u)",
      "normalize: 1 ops before, 1 after, 2 in, 3 out\nnormalize: 1 ops before, 0 after, 2 in, 2 out\n");
}

/* Of a weight that is normalized and scaled element by element, the pointwise node before normalize's
 * gradient also adds to the gradient of the scale: such a node stays, for what is fused adds to nothing. */
Test(fuse_prologue, what_adds_to_a_gradient) {
  static const char text[] =
      "model M() {\n  axis batch, seq\n  axis embed = 16, out = 16, vocab = 8\n"
      "  input tokens: index(vocab)[batch, seq]\n  input targets: index(vocab)[batch, seq]\n"
      "  param wte[vocab, embed] ~ normal(1)\n  x = lookup(wte, tokens)\n"
      "  repeat 3 as layer {\n    param w[embed, out], g[embed, out] ~ normal(1)\n"
      "    u = normalize[embed](w, mode = rms, eps = 1) * g\n    x = x + dot[out](sin(dot[embed](x, u)), "
      "u)\n  }\n"
      "  loss xent[vocab](dot[embed](x, wte), targets) per known(targets)\n}\n";
  Model m = model_open(NULL, text, NULL);
  Plan q = plan_fused(m.g, "bind batch = 8, seq = 16 micro 1", supports_norms);
  cr_assert_str_eq(plan_wrong(q.p, q.a), "");
  const ZpSegment *s = &q.p->programs.segments[segment_of(q.p, "layer", 0)];
  const ZpList *l = &s->list[ZP_BWD];
  int pointwise = 0, fused = 0;
  for (uint32_t i = 0; i < l->n; i++) {
    const ZpNode *n = &l->nodes[i];
    bool grads = false;
    for (int k = 0; k < n->call.nout; k++) grads |= s->values[n->out[k]].at.space == ZP_AT_GRAD;
    pointwise += n->call.op == ZG_OP_POINTWISE && grads;
    fused += n->call.pointwise && n->call.pointwise->prologue;
  }
  cr_expect_eq(pointwise, 2); /* of g, and of w after normalize's gradient */
  cr_expect_eq(fused, 0);
  plan_close(&q);
  model_close(&m);
}

/* More inputs than a call can have: the pointwise node before stays. */
Test(fuse_prologue, too_many_inputs) {
  expect_forward(
      "param p1[embed], p2[embed], p3[embed], p4[embed], p5[embed], p6[embed], p7[embed] ~ normal(1)\n"
      "x = normalize[embed](h * p1 * p2 * p3 * p4, mode = rms, eps = 1) * b * p5 * p6 * p7",
      "normalize: 5 ops before, 4 after, 9 in, 3 out\n");
  expect_forward(
      "param p1[embed], p2[embed], p3[embed], p4[embed], p5[embed], p6[embed], p7[embed] ~ normal(1)\n"
      "param q1[embed], q2[embed], q3[embed], q4[embed], q5[embed] ~ normal(1)\n"
      "x = normalize[embed](h * p1 * p2 * p3 * p4 * q1 * q2, mode = rms, eps = 1) * b * p5 * p6 * p7 * q3 * "
      "q4 * q5",
      "normalize: 0 ops before, 7 after, 8 in, 3 out\n");
}
