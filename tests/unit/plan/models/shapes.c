/* Another name for the samples of a micro-batch: how many there are, in the recipe and in the plan. */
#include "tests/unit/plan/models/plan.h"

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

Test(shapes, rename_to_another_size) {
  Model x = model_open(NULL, renamed, NULL);
  Plan q = plan_of(x.g, "bind batch = 16, other = 4 micro 4");
  ZbErr err = {0};
  uint32_t n, i = 0;
  ZpNode *k = (ZpNode *)(uintptr_t)phase_nodes(&q.p->programs.segments[0], ZP_FWD, &n);
  while (i < n && k[i].call.op != ZG_OP_RENAME) i++;
  cr_assert(i < n && zp_check_segments(q.p, &err), "%s", err.text);
  k[i].call.ax[1] = (uint16_t)zg_axis_find(x.g, "cl"); /* of which there are two */
  cr_assert(!zp_check_segments(q.p, &err));
  cr_assert(strstr(err.text, "rename (test.zug:8) names axes that its operands have not"), "%s", err.text);
  plan_close(&q);
  model_close(&x);
}
