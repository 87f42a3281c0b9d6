/* Gradients of weights behind the gradient of the norm whose result they take. (That such plans compute the
 * same: play.c. What becomes of the pointwise nodes: fuse_prologue.c.) */
#include "tests/unit/plan/models/plan.h"

#include <criterion/criterion.h>

#define ONE "bind batch = 8, seq = 16 micro 1"

/* How many of the layer's products take what a norm's gradient made beside its own result: behind it. */
static void expect(const char *recipe, bool (*supports)(const ZkCall *), uint32_t expected) {
  Model m = model_open("gpt2", NULL, "-D layers=4");
  Plan q = plan_fused(m.g, recipe, supports);
  uint32_t n, behind = 0;
  const ZpSegment *s = &q.p->programs.segments[segment_of(q.p, "layer", 0)];
  const ZpNode *nodes = phase_nodes(s, ZP_BWD, &n);
  for (uint32_t i = 0; i < n; i++)
    for (uint32_t j = 0; nodes[i].call.op == ZG_OP_NORMALIZE_GRAD && j < n; j++)
      for (int k = 1; k < nodes[i].call.nout; k++)
        if (nodes[j].call.op == ZG_OP_DOT && zp_reads(&nodes[j], nodes[i].out[k])) {
          cr_assert(j > i && s->values[nodes[j].out[0]].at.space == ZP_AT_GRAD);
          behind++;
        }
  cr_expect_eq(behind, expected, "%u, expected %u", behind, expected);
  plan_close(&q);
  model_close(&m);
}

static bool after_alone(const ZkCall *k) { return supports_norms(k) && !k->pointwise->prologue; }

/* Those of w1, wq, wk and wv. Where a collective is between, they do not wait: what wq, wk and wv need is
 * made by the gradient of the other norm, which is before. Where norms have no prologue, by a node of its
 * own. */
Test(delay_grads, gpt2) {
  expect(ONE, supports_norms, 4);
  expect("mesh data = 2 split batch over data " ONE, supports_norms, 4);
  expect("mesh tensor = 2 split head, ffn over tensor " ONE, supports_norms, 3);
  expect(ONE, after_alone, 0);
}
