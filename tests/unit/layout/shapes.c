/* Shapes of calls: another name for the samples of a micro-batch, and plans whose operands do not fit. */
#include "tests/unit/layout/plan.h"

#include <criterion/criterion.h>
#include <string.h>

/* A statistic over the samples of a micro-batch, under another name. */
static const char renamed[] = "model M {\n"
                              "  axis batch, other\n"
                              "  axis a = 6, cl = 2\n"
                              "  input x: real[batch, a]\n"
                              "  input l: index(cl)[batch]\n"
                              "  param w[a, cl] ~ normal(1)\n"
                              "  y = dot[a](x, w)\n"
                              "  aux 0.1 * mean[cl](mean[other](rename[batch, other](y * y)))\n"
                              "  loss xent[cl](y, l) per known(l)\n"
                              "}\n";

static void refuses(const ZgGraph *g, const char *recipe, const char *message, const char *help) {
  Plan q = plan_try(g, recipe);
  cr_assert_null(q.p, "accepted: %s", recipe);
  cr_assert(strstr(plan_messages(&q), message), "%s\nnot: %s", plan_messages(&q), message);
  cr_assert(strstr(plan_messages(&q), help), "%s\nnot: %s", plan_messages(&q), help);
  plan_close(&q);
}

Test(shapes, renamed_batch) {
  Model x = model_open(NULL, renamed, NULL);
  refuses(x.g, "bind batch = 16, other = 16 micro 4",
          "error[Z0805]: `batch` has 4 samples in a micro-batch, `other` has 16: rename at ",
          "bind other = 4");
  refuses(x.g, "mesh d = 2 bind batch = 16, other = 4 micro 4 split batch over d",
          "`batch` has 8 samples in a micro-batch, `other` has 4:", "bind other = 8");
  refuses(x.g, "bind batch = 16, other = 8",
          "`batch` has 16 samples in a micro-batch, `other` has 8:", "bind other = 16");
  static const char *const good[] = {
      "bind batch = 16, other = 4 micro 4", "bind batch = 16, other = 16",
      "mesh d = 2 bind batch = 16, other = 8 micro 4 split batch over d",
      "mesh d = 2 bind batch = 16, other = 8 micro 4 split batch, other over d",
      "mesh d = 2 bind batch = 16, other = 4 micro 4 split cl over d else other"};
  for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
    Plan q = plan_of(x.g, good[i]);
    cr_assert_str_eq(plan_wrong(q.p, q.a), "");
    plan_close(&q);
  }
  model_close(&x);
}

/* ---- broken plans ---- */
static ZpNode *find(const ZpPlan *p, ZgOp op, uint32_t *segment) {
  for (uint32_t i = 0; i < p->graph->nsegments; i++)
    for (int phase = FWD; phase <= COUNT; phase++) {
      uint32_t n;
      ZpNode *k = (ZpNode *)(uintptr_t)phase_nodes(&p->segments[i], (Phase)phase, &n);
      for (uint32_t q = 0; q < n; q++)
        if (k[q].call.op == op) return *segment = i, &k[q];
    }
  cr_assert_fail("the plan has no %s", zg_op_info[op].text);
  return NULL;
}

static void rejects(const ZpPlan *p, const char *text) {
  ZbErr err = {0};
  cr_assert(!zp_check(p, &err), "accepted, but: %s", text);
  cr_assert(strstr(err.text, text), "says: %s\nnot: %s", err.text, text);
}

Test(shapes, rename_of_another_size) {
  Model x = model_open(NULL, renamed, NULL);
  Plan q = plan_of(x.g, "bind batch = 16, other = 4 micro 4");
  uint32_t s;
  const ZpNode *k = find(q.p, ZG_OP_RENAME, &s);
  uint16_t other = k->call.ax[1];
  q.p->axis_size[other] = 16; /* as if it were not cut into micro-batches */
  rejects(q.p, "4 of other on each of 1 ranks, but there are 16");
  for (uint32_t v = 0; v < q.p->segments[s].nvalues; v++) {
    ZpValue *w = &q.p->segments[s].values[v];
    for (int i = 0; i < w->type.naxes; i++)
      if (w->axis[i] == other) w->size[i] = 16, w->bytes *= 4;
  }
  rejects(q.p, "forward of part 0, rename (test.zug:8): batch has 4 elements, other has 16");
  plan_close(&q);
  model_close(&x);
}

Test(shapes, operands_of_other_shapes) {
  Model x = model_open("gpt2", NULL, "-D layers=2 -D heads=4 -D width=16 -D context=32 -D words=12");
  Plan q = plan_of(x.g, "mesh t = 2 bind batch = 4, seq = 16 split head, ffn, vocab over t else seq");
  const ZpSegment *seg;
  uint32_t s;
  ZpNode *k = find(q.p, ZG_OP_DOT, &s);
  seg = &q.p->segments[s];
  ZpValue *v = &seg->values[k->in[0]], was = *v;
  v->bytes += 4;
  rejects(q.p, "an operand that has other bytes than its shape");
  *v = was;
  v->size[0] *= 2;
  rejects(q.p, "of batch on each of 1 ranks, but there are 4");
  *v = was;
  uint32_t in = k->in[0];
  k->in[0] = seg->nvalues;
  rejects(q.p, "an operand that does not exist");
  k->in[0] = in;
  k = find(q.p, ZG_OP_ALL_GATHER, &s);
  uint16_t axis = k->axis;
  k->axis = axis + 1;
  rejects(q.p, "all_gather (gpt2.zug:");
  k->axis = axis;
  ZpDims dims = k->dims;
  k->dims = 0; /* no collective any more: both have the axis */
  rejects(q.p, " elements here and ");
  k->dims = dims;
  k = find(q.p, ZG_OP_REDUCE_SCATTER, &s);
  k->call.op = ZG_OP_ALL_REDUCE;
  rejects(q.p, "the members' parts do not make up the whole");
  plan_close(&q);
  model_close(&x);
}
