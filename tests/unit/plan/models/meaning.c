/* What the proof of local programs says of one that does not compute the graph. That it sees such programs, and no
 * others, is tested by thousands of changes: random/nodes.c. */
#include "tests/unit/plan/models/plan.h"

#include <criterion/criterion.h>
#include <string.h>

static const char layout[] =
    "bind batch = 8, seq = 32 micro 2 mesh data = 2, tensor = 2 split batch over data "
    "split head, ffn, vocab over tensor else seq";

/* The first node of an operation in a list, in any segment. */
static ZpNode *find(const ZpPlan *p, ZpPhase phase, uint16_t op, uint32_t *segment) {
  for (uint32_t i = 0; i < p->graph->nsegments; i++)
    for (uint32_t k = 0; k < p->programs.segments[i].list[phase].n; k++)
      if (p->programs.segments[i].list[phase].nodes[k].call.op == op)
        return *segment = i, &p->programs.segments[i].list[phase].nodes[k];
  cr_assert_fail("no node like that");
  return NULL;
}

static void expect_said(const ZpPlan *p, const char *const *facts, int n) {
  ZbErr err = {0};
  cr_assert(!zp_check_meaning(p, &err));
  for (int i = 0; i < n; i++) cr_expect(strstr(err.text, facts[i]), "`%s` is not in: %s", facts[i], err.text);
}

Test(meaning, names_what_differs_first) {
  Model m = model_open("gpt2", NULL, "-D layers=2 -D heads=4 -D width=32 -D context=32 -D words=128");
  Plan q = plan_of(m.g, layout);
  ZbErr err = {0};
  uint32_t segment;
  cr_assert(zp_check_meaning(q.p, &err), "%s", err.text);
  ZpNode *n = find(q.p, ZP_FWD, ZG_OP_ATTEND, &segment);
  n->call.opt[0] = 0; /* not causal */
  const char *const causal[] = {"part 1 (layer), forward", "carried value 0",
                                "attend (gpt2.zug:", "on rank 0"};
  expect_said(q.p, causal, 4);
  n->call.opt[0] = 1;
  cr_assert(zp_check_meaning(q.p, &err), "%s", err.text);
  n = find(q.p, ZP_FWD, ZG_OP_REDUCE_SCATTER, &segment);
  n->call.opt[0] = 1; /* the maximum */
  const char *const maximum[] = {"part 0, forward", "reduce_scatter"};
  expect_said(q.p, maximum, 2);
  plan_close(&q);
  model_close(&m);
}

/* A gradient that is added twice, or to nothing, is nobody's intermediate value. */
Test(meaning, gradients_are_added_once) {
  Model m = model_open("mlp", NULL, NULL);
  Plan q = plan_of(m.g, "bind batch = 8 mesh d = 2 split batch over d");
  uint32_t segment;
  find(q.p, ZP_BWD, ZG_OP_DOT, &segment);
  ZpList *l = &q.p->programs.segments[segment].list[ZP_BWD];
  for (uint32_t i = 0; i < l->n; i++) {
    if (!l->nodes[i].call.accumulate) continue;
    l->nodes[i].call.accumulate = false;
    const char *const facts[] = {"backward", "gradient of"};
    expect_said(q.p, facts, 2);
    l->nodes[i].call.accumulate = true;
  }
  plan_close(&q);
  model_close(&m);
}

/* Parts whose axes cannot be made small are left out, and said to be; planning does not take minutes. */
Test(meaning, what_is_left_out_is_said) {
  Model m = model_open(NULL,
                       "model M {\n"
                       "  axis batch, a = 10007, a1 = 5003, a2 = 5004, b = 10009, b1 = 4001, b2 = 6008\n"
                       "  input x: real[batch, a]\n"
                       "  param w[a, b] ~ normal(0.1)\n"
                       "  y = concat[a, a2, a1](slice[a, a2](x, start = 5003), slice[a, a1](x))\n"
                       "  z = dot[a](y, w)\n"
                       "  u = concat[b, b2, b1](slice[b, b2](z, start = 4001), slice[b, b1](z))\n"
                       "  loss mean[b](u * u) per samples()\n"
                       "}\n",
                       NULL);
  Plan q = plan_of(m.g, "bind batch = 4");
  ZbErr err = {0};
  cr_expect_eq(zp_parts_unproved(q.p), 1);
  cr_expect(zp_check_meaning(q.p, &err));
  plan_close(&q);
  model_close(&m);
}
