/* Gradients of logits that are made with the sums of cross-entropy. (That such plans compute the same:
 * play.c.) */
#include "tests/unit/plan/models/faults.h"

static bool supports_none(const ZkCall *k) { return k->op == ZG_OP_COUNT; }
static bool supports_both(const ZkCall *k) {
  return k->op == ZG_OP_XENT_SUMS_GRAD || k->op == ZG_OP_XENT_MAX_SUMS;
}

/* How many calls of an op all segments have in a phase; the last of them. */
typedef struct {
  int n;
  ZpSegment *s;
  ZpNode *node;
} Calls;
static Calls calls(const ZpPlan *p, ZpPhase phase, ZgOp op) {
  Calls c = {0};
  for (uint32_t i = 0; i < p->graph->nsegments; i++) {
    uint32_t n;
    const ZpNode *nodes = phase_nodes(&p->programs.segments[i], phase, &n);
    for (uint32_t k = 0; k < n; k++)
      if (nodes[k].call.op == op) c.n++, c.s = &p->programs.segments[i], c.node = (ZpNode *)&nodes[k];
  }
  return c;
}

/* Logits and their gradient have one place, as before. */
static void expect_place(Calls c, ZpSpace space) {
  const ZpLoc *z = &c.s->values[c.node->in[0]].at, *dz = &c.s->values[c.node->out[0]].at;
  cr_expect(z->space == space && dz->space == space && z->offset == dz->offset);
}

/* So many are made in forward, so many in backward, and so many apart; and all memory that there was
 * before. */
static void expect(const char *text, const char *recipe, int forward, int backward, int apart) {
  Model m = model_open(text ? NULL : "gpt2", text, text ? NULL : "-D layers=4");
  Plan q = plan_fused(m.g, recipe, supports_both), old = plan_fused(m.g, recipe, supports_none);
  const char *wrong = plan_wrong(q.p, q.a);
  cr_assert_str_eq(wrong, "", "%s\n%s", wrong, recipe);
  Calls f = calls(q.p, ZP_FWD, ZG_OP_XENT_SUMS_GRAD), b = calls(q.p, ZP_BWD, ZG_OP_XENT_SUMS_GRAD);
  cr_expect_eq(f.n, forward, "%d in forward, expected %d\n%s%s", f.n, forward, text ? text : "", recipe);
  cr_expect_eq(b.n, backward, "%d in backward, expected %d\n%s%s", b.n, backward, text ? text : "", recipe);
  int grads = calls(q.p, ZP_BWD, ZG_OP_XENT_GRAD).n;
  cr_expect_eq(grads, apart, "%d apart, expected %d\n%s%s", grads, apart, text ? text : "", recipe);
  cr_expect_eq(calls(old.p, ZP_BWD, ZG_OP_XENT_GRAD).n, forward + backward + apart);
  if (f.n) expect_place(f, ZP_AT_SAVED);
  if (b.n) expect_place(b, ZP_AT_TEMP);
  for (uint32_t s = 0; s < q.p->programs.nstages; s++) {
    cr_expect_leq(q.p->programs.vstages[s].slot_bytes, old.p->programs.vstages[s].slot_bytes);
    cr_expect_leq(q.p->programs.stages[s].scratch_bytes, old.p->programs.stages[s].scratch_bytes);
  }
  plan_close(&q);
  plan_close(&old);
  model_close(&m);
}

#define ONE " bind batch = 8, seq = 16 micro 1"
#define FOUR " bind batch = 32, seq = 16 micro 4"

/* Where the vocabulary is split, the ranks' maxima and sums come first. Logits in chunks are made again in
 * backward, of sums that are kept. */
Test(fuse_xent_grad, gpt2) {
  expect(NULL, ONE, 1, 0, 0);
  expect(NULL, "mesh data = 2 split batch over data" FOUR, 1, 0, 0);
  expect(NULL, "mesh pipe = 2 stages over pipe by cost" FOUR, 1, 0, 0);
  expect(NULL, "mesh pipe = 2 stages over pipe by cost schedule gpipe" FOUR, 1, 0, 0);
  expect(NULL, "mesh t = 2 split head, ffn over t else seq" ONE, 1, 0, 0);
  expect(NULL, "mesh t = 2 split head, ffn, vocab over t pad vocab to 64" ONE, 0, 0, 1);
  expect(NULL, "pad vocab to 64 precision compute bf16" ONE, 1, 0, 0);
  expect(NULL, "chunk vocab = 4" ONE, 0, 0, 4);
}

/* ---- which ---- */
#define MODEL(body)                                                                                          \
  "use std.nn\nmodel M() {\n  axis batch, seq\n  axis embed = 16, vocab = 8\n"                               \
  "  input tokens: index(vocab)[batch, seq]\n  input targets: index(vocab)[batch, seq]\n"                    \
  "  param wte[vocab, embed], head[vocab, embed] ~ normal(1)\n  param w[embed] ~ normal(1)\n"                \
  "  x = lookup(wte, tokens)\n" body "\n}\n"
#define Z "  z = dot[embed](x, head)\n"

/* Weights of tokens that are there before, several losses, losses of samples. */
Test(fuse_xent_grad, scales) {
  expect(MODEL(Z "  loss xent[vocab](z, targets) per known(targets)"), ONE, 1, 0, 0);
  expect(MODEL(Z "  loss 0.3 * xent[vocab](z, targets) per samples()"), ONE, 1, 0, 0);
  expect(MODEL("  a = f32(sigmoid(dot[embed](x, w)))\n" Z
               "  loss a * xent[vocab](z, targets) per known(targets)"),
         ONE, 1, 0, 0);
  expect(MODEL(Z "  loss xent[vocab](z, targets) per known(targets)\n"
                 "  loss draft = 0.3 * xent[vocab](dot[embed](x * w, wte), tokens) per known(tokens)"),
         ONE, 2, 0, 0);
  expect(MODEL(Z "  aux mean[batch, seq](xent[vocab](z, targets))"), ONE, 1, 0, 0);
}

/* What depends on the maximum or on the sum in another way, logits that others read or that are made again of
 * what is kept, and scales that come from a later part. */
Test(fuse_xent_grad, not_these) {
  expect(MODEL(Z "  y = xent[vocab](z, targets)\n  loss y * y per known(targets)"), ONE, 0, 0, 1);
  expect(MODEL(Z "  y = lse[vocab](z)\n  loss xent[vocab](z, targets) + 0.1 * y * y per known(targets)"), ONE,
         0, 0, 2);
  expect(MODEL(Z "  loss nn.smoothed[vocab](z, targets, smoothing = 0.1) per known(targets)"), ONE, 0, 0, 2);
  expect(
      MODEL(Z
            "  loss xent[vocab](z, targets) per known(targets)\n  aux 0.1 * mean[batch, seq, vocab](z * z)"),
      ONE, 0, 0, 1);
  expect(MODEL(Z "  loss xent[vocab](30 * tanh(z / 30), targets) per known(targets)"), ONE, 0, 0, 1);
  expect(
      MODEL(
          Z
          "  y = xent[vocab](z, targets)\n  repeat 2 as more {\n    param c[embed] ~ normal(1)\n    y = y + "
          "f32(mean[embed](c)) * y\n"
          "  }\n  loss y per known(targets)"),
      ONE, 0, 0, 1);
}

/* Logits that are made again in backward, with their sums. */
Test(fuse_xent_grad, recomputed) {
  static const char text[] =
      "block Head[e, v](x: real[.., e], t: index(v)[..], table: real[v, e]) -> f32[..] {\n"
      "  return xent[v](dot[e](x, table), t)\n}\n"
      "model M() {\n  axis batch, seq\n  axis embed = 16, vocab = 8\n"
      "  input tokens: index(vocab)[batch, seq]\n  input targets: index(vocab)[batch, seq]\n"
      "  param wte[vocab, embed] ~ normal(1)\n  x = lookup(wte, tokens)\n"
      "  loss Head[embed, vocab](x, targets, wte) per known(targets)\n}\n";
  expect(text, ONE, 1, 0, 0);
  expect(text, "recompute Head" ONE, 0, 1, 0);
}

/* ---- plans that only go forward, and proofs ---- */
Test(fuse_xent_grad, forward_only) {
  Model m = model_open("gpt2", NULL, "-D layers=2");
  Plan q = plan_fused(m.g, ONE, supports_both), e = plan_forward(m.g, ONE, q.p);
  cr_expect_eq(calls(q.p, ZP_FWD, ZG_OP_XENT_SUMS_GRAD).n, 1);
  cr_expect_eq(calls(e.p, ZP_FWD, ZG_OP_XENT_SUMS_GRAD).n, 0);
  plan_close(&e);
  plan_close(&q);
  model_close(&m);
}

/* Forward that divides by denominators waits until those of all ranks are there. */
Test(fuse_xent_grad, waits_for_the_count) {
  Model m = model_open("gpt2", NULL, "-D layers=2");
  Plan q = plan_fused(m.g, "mesh data = 2 split batch over data" FOUR, supports_both);
  ZpProgram *g = &q.p->programs.stages[0].prog;
  ZbErr err = {0};
  int waits = 0;
  for (uint32_t i = 0; i < g->ninstrs; i++) {
    ZpInstr *in = &g->instrs[i];
    bool counted = false;
    for (uint32_t k = 0; k < in->nwait; k++) counted |= g->instrs[in->wait[k]].op == ZP_I_REDUCE_COUNT;
    if (in->op != ZP_I_FWD || !counted) continue;
    uint32_t was = in->nwait;
    waits++;
    in->nwait = 0;
    cr_expect(!zp_check(q.p, &err));
    in->nwait = was;
    cr_expect(zp_check(q.p, &err));
  }
  cr_expect_eq(waits, 1);
  plan_close(&q);
  model_close(&m);
}

Test(fuse_xent_grad, proofs) {
  Model m = model_open("gpt2", NULL, "-D layers=2 -D heads=2 -D width=16 -D context=16 -D words=30");
  Plan q = plan_fused(m.g, "mesh d = 2 split batch over d pad vocab to 32 bind batch = 2, seq = 16",
                      supports_both);
  Calls c = calls(q.p, ZP_FWD, ZG_OP_XENT_SUMS_GRAD);
  ZpValue *z = &c.s->values[c.node->in[0]], *dz = &c.s->values[c.node->out[0]],
          *s = &c.s->values[c.node->out[1]];
  accepts(q.p);
  WITH(c.node->call.opt[1], 0, "takes padding for classes");
  WITH(dz->at.offset, z->at.offset + 64, "");
  WITH(s->at, z->at, "");
  WITH(c.node->call.op, ZG_OP_XENT_SUMS, "");
  plan_close(&q);
  q = plan_fused(m.g, "mesh d = 2 split vocab over d pad vocab to 32 bind batch = 2, seq = 16",
                 supports_both);
  c = calls(q.p, ZP_FWD, ZG_OP_XENT_SUMS);
  ZpNode was = *c.node, *n = c.node; /* z, m, t -> s, p becomes z, t -> s, p, m */
  n->call.op = ZG_OP_XENT_MAX_SUMS, n->call.nin = 2, n->call.nout = 3;
  n->in[1] = was.in[2], n->call.in[1] = was.call.in[2];
  n->out[2] = was.in[1], n->call.out[2] = was.call.in[1];
  rejects(q.p, "finds the maximum of some classes alone");
  *n = was;
  accepts(q.p);
  plan_close(&q);
  q = plan_fused(m.g, "mesh d = 1 split vocab over d bind batch = 2, seq = 16", supports_both);
  cr_expect_eq(calls(q.p, ZP_FWD, ZG_OP_XENT_SUMS_GRAD).n,
               1); /* split in name alone: the rank has all classes */
  accepts(q.p);
  plan_close(&q);
  model_close(&m);
}
