/* linear_attend in plans: what it is counted as, what is kept of it, and where it cannot be. */
#include "tests/unit/plan/models/plan.h"

#include <criterion/criterion.h>
#include <string.h>

#include "graph/linear.h"

static const char *const text =
    "model M {\n"
    "  axis batch, seq, embed = 6, head = 4, k = 2, v = 4, embed2 = 6\n  input x: real[batch, seq, embed]\n"
    "  repeat 2 as layer {\n"
    "    param wq[embed, k], wk[embed, k], wv[embed, head, v], wg[embed, head], wo[head, v, embed] ~ "
    "normal(1)\n"
    "    y = linear_attend[seq, k, v](dot[embed](x, wq), dot[embed](x, wk), dot[embed](x, wv),\n"
    "      decay = -sigmoid(dot[embed](x, wg)))\n"
    "    x = x + dot[head, v](y, wo)\n  }\n"
    "  loss x * x per samples()\n}\n";

static const ZpNode *call_in(const ZpPlan *p, ZpPhase phase, ZgOp op) {
  const ZpList *l = &p->programs.segments[segment_of(p, "layer", 0)].list[phase];
  for (uint32_t i = 0; i < l->n; i++)
    if (l->nodes[i].call.op == op) return &l->nodes[i];
  cr_assert_fail("no %s", zg_op_info[op].text);
  return NULL;
}

/* 300 tokens in chunks of 128: of each token and head the state is read and written, 2 x 2 x 2 x 4, and half
 * of a chunk's pairs are products along k and along v. Backward twice that. A split of heads leaves each rank
 * its share. */
Test(linear, flops_and_chunks) {
  Model m = model_open(NULL, text, NULL);
  for (int ranks = 1; ranks <= 2; ranks++) {
    Plan q = plan_of(m.g, ranks == 1 ? "bind batch = 3, seq = 300"
                                     : "bind batch = 3, seq = 300 mesh t = 2 split head over t");
    const ZpNode *f = call_in(q.p, ZP_FWD, ZG_OP_LINEAR_ATTEND),
                 *b = call_in(q.p, ZP_BWD, ZG_OP_LINEAR_ATTEND_GRAD);
    double flops = 3 * 300 * 4 / ranks * (2 * 2 * 2 * 4 + 128 * (2 + 4));
    cr_expect_eq(f->call.opt[1], 128);
    cr_expect_float_eq(f->flops, flops, 0.5, "%g", f->flops);
    cr_expect_float_eq(b->flops, 2 * flops, 0.5, "%g", b->flops);
    plan_close(&q);
  }
  model_close(&m);
}

/* The operands, and the result for what comes after it; no states. */
Test(linear, keeps_its_operands) {
  Model m = model_open(NULL, text, NULL);
  Plan q = plan_of(m.g, "bind batch = 3, seq = 300");
  expect_saved(q.p, "layer", 0,
               "carry\n"
               "dot: real[batch, seq, k]\n"
               "dot: real[batch, seq, k]\n"
               "dot: real[batch, seq, head, v]\n"
               "dot: real[batch, seq, head]\n"
               "linear_attend: real[batch, seq, head, v]\n");
  plan_close(&q);
  model_close(&m);
}

/* Values split: what has none of them is a sum over ranks in backward. */
Test(linear, split_values) {
  Model m = model_open(NULL, text, NULL);
  Plan q = plan_of(m.g, "bind batch = 3, seq = 8 mesh t = 2 split v over t");
  uint32_t layer = segment_of(q.p, "layer", 0);
  cr_expect_eq(count_collectives(q.p, layer, ZP_FWD, ZG_OP_ALL_REDUCE, "t"), 1); /* x */
  cr_expect_geq(count_collectives(q.p, layer, ZP_BWD, ZG_OP_ALL_REDUCE, "t"), 1);
  cr_expect_eq(count_collectives(q.p, layer, ZP_BWD, ZG_OP_ALL_GATHER, "t"), 0);
  plan_close(&q);
  model_close(&m);
}

Test(linear, features_are_whole) {
  Model m = model_open(NULL, text, NULL);
  Plan q = plan_try(m.g, "bind batch = 3, seq = 8 mesh t = 2 split k over t");
  cr_expect(!q.p && strstr(plan_messages(&q), "Z0302"), "%s", plan_messages(&q));
  plan_close(&q);
  model_close(&m);
}

Test(linear, on_gpus) {
  Model m = model_open(NULL, text, NULL);
  Plan q = plan_try_pinned(m.g, "bind batch = 3, seq = 8");
  cr_expect(q.p, "%s", plan_messages(&q));
  plan_close(&q);
  model_close(&m);
}
