/* Random recipes, sensible and not, on four models: each gives a plan that passes its proofs and
 * brute force, or says why not; never silence, never a crash, and the same twice. Where there is a plan to
 * train there is one to evaluate, by itself and in the arena of the other. */
#include "runtime/plan/text.h"
#include "tests/unit/breadth.h"
#include "tests/unit/plan/models/recipes.h"

#include <criterion/criterion.h>
#include <string.h>

static bool same_ledgers(const ZpPlan *p, const ZpPlan *q) {
  bool same = p->programs.nstages == q->programs.nstages;
  for (uint32_t s = 0; same && s < p->programs.nstages; s++)
    same = !memcmp(&p->programs.stages[s].ledger, &q->programs.stages[s].ledger,
                   sizeof p->programs.stages[s].ledger) &&
           p->programs.stages[s].prog.ninstrs == q->programs.stages[s].prog.ninstrs;
  return same;
}

static void try_forward(const ZgGraph *g, const char *recipe, const ZpPlan *beside) {
  Plan q = plan_forward(g, recipe, beside);
  const char *wrong = plan_wrong(q.p, q.a);
  if (*wrong) cr_assert_fail("%s\nforward only%s: %s", recipe, beside ? ", beside another" : "", wrong);
  ZbText t = {0};
  zp_show(q.p, &t);
  zp_explain(q.p, &t);
  cr_assert(t.len > 100);
  zb_text_free(&t);
  plan_close(&q);
}

/* Steps of generation in the arena of the other, of models of tokens: whatever is split or cut, unless memory is short. */
static void try_steps(const ZgGraph *g, const char *recipe, const ZpPlan *beside) {
  Plan q = plan_try_steps(g, recipe, beside);
  bool short_of_memory = !q.p && strstr(plan_messages(&q), "Z0501");
  if (!q.p && !short_of_memory) cr_assert_fail("no steps beside\n%s\n%s", recipe, plan_messages(&q));
  plan_close(&q);
}

/* True if there is a plan. */
static bool try_one(int m, const ZgGraph *g, const char *recipe, bool twice) {
  Plan q = plan_try(g, recipe);
  bool made = q.p != NULL;
  if (!q.p && !zl_errors(q.d)) cr_assert_fail("no plan and no reason for\n%s", recipe);
  if (!q.p && strstr(plan_messages(&q), "Z0999"))
    cr_assert_fail("a bad plan for\n%s\n%s", recipe, plan_messages(&q));
  if (q.p) {
    const char *wrong = plan_wrong(q.p, q.a);
    if (*wrong) cr_assert_fail("%s\n%s", recipe, wrong);
    ZbText t = {0};
    zp_show(q.p, &t);
    zp_show_schedule(q.p, &t);
    zp_explain(q.p, &t);
    cr_assert(t.len > 100);
    zb_text_free(&t);
  }
  if (q.p) try_forward(g, recipe, NULL), try_forward(g, recipe, q.p);
  if (q.p && (m == GPT2 || m == LLAMA3)) try_steps(g, recipe, q.p);
  if (q.p && twice) {
    Plan r = plan_of(g, recipe);
    cr_assert(same_ledgers(q.p, r.p), "two plans differ for\n%s", recipe);
    plan_close(&r);
  }
  plan_close(&q);
  return made;
}

static void many(int m) {
  const uint32_t n = breadth_many(100);
  Model x = model_open(random_models[m].name, random_models[m].text, random_models[m].options);
  uint32_t plans = 0;
  for (uint32_t i = 0; i < n; i++) {
    ZbText t = {0};
    put_recipe(m, i, &t);
    plans += try_one(m, x.g, t.s, i % 4 == 0);
    zb_text_free(&t);
  }
  cr_log_info("%s: %u plans of %u recipes", random_models[m].name, plans, n);
  cr_assert(plans * 8 > n, "only %u plans of %u recipes", plans, n);
  model_close(&x);
}

Test(random, mlp) { many(MLP); }
Test(random, gpt2) { many(GPT2); }
Test(random, llama3) { many(LLAMA3); }
Test(random, odd) { many(ODD); }
