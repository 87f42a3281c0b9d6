/* Instances to stages: the best cut by cost, cuts by hand, tied parameters. */
#include "tests/unit/plan/models/plan.h"

#include <criterion/criterion.h>
#include <string.h>

/* Layers of three widths in three repeats, one after the other. */
static const char stairs[] =
    "model Stairs(a = 3, b = 2, c = 4) {\n"
    "  axis batch\n  axis x = 16, thin = 8, mid = 64, wide = 256, vocab = 8\n"
    "  input i: real[batch, x]\n  input t: index(vocab)[batch]\n"
    "  param shared[x] = 1\n  param w[x, vocab] ~ normal(1)\n  y = i * shared\n"
    "  repeat a as low  { param u[x, thin], v[thin, x] ~ normal(1)  y = y + dot[thin](dot[x](y, u), v) }\n"
    "  repeat b as high { param u[x, wide], v[wide, x] ~ normal(1)  y = y * shared + dot[wide](dot[x](y, u), "
    "v) }\n"
    "  repeat c as more { param u[x, mid], v[mid, x] ~ normal(1)  y = y + dot[mid](dot[x](y, u), v) }\n"
    "  loss xent[vocab](dot[x](y, w), t) per known(t)\n}\n";

/* Costs of what can be cut between: an iteration, with the straight parts before the first and after any. */
static uint32_t items_of(const ZpPlan *p, double *cost) {
  uint32_t n = 0;
  bool open = false;
  for (uint32_t s = 0; s < p->graph->nsegments; s++)
    for (uint32_t i = 0; i < p->graph->segments[s].trip; i++) {
      bool repeat = p->graph->segments[s].repeat;
      if (!n || (repeat && open)) cost[n++] = 0, open = false;
      cost[n - 1] += p->programs.segments[s].cost;
      open |= repeat;
    }
  return n;
}

/* Least cost of the dearest of `stages` groups of items from..n, by trying all. */
static double best(const double *cost, uint32_t from, uint32_t n, uint32_t stages) {
  double sum = 0, least = 1e300;
  if (stages == 1) {
    for (; from < n; from++) sum += cost[from];
    return sum;
  }
  for (uint32_t k = from; k + stages <= n; k++) {
    sum += cost[k];
    double rest = best(cost, k + 1, n, stages - 1), max = rest > sum ? rest : sum;
    if (max < least) least = max;
  }
  return least;
}

static double dearest(const ZpPlan *p) {
  double max = 0;
  for (uint32_t s = 0; s < p->programs.nstages; s++)
    if (p->programs.stages[s].cost > max) max = p->programs.stages[s].cost;
  return max;
}

static void expect_best(const ZgGraph *g, const char *recipe, uint32_t stages) {
  ZbText t = {0};
  zb_text_add(&t, "%s mesh pipe = %u stages over pipe by cost", recipe, stages);
  Plan q = plan_of(g, t.s);
  double cost[64];
  uint32_t n = items_of(q.p, cost);
  cr_assert_eq(q.p->programs.nstages, stages);
  cr_expect_float_eq(dearest(q.p), best(cost, 0, n, stages), 1, "%s: %.0f, best is %.0f", t.s, dearest(q.p),
                     best(cost, 0, n, stages));
  cr_expect_str_eq(plan_wrong(q.p, q.a), ""); /* every instance once, in order */
  zb_text_free(&t);
  plan_close(&q);
}

Test(stage, by_cost_is_best) {
  Model m = model_open(NULL, stairs, NULL);
  for (uint32_t stages = 1; stages <= 9; stages++) expect_best(m.g, "bind batch = 16 micro 1", stages);
  model_close(&m);
  m = model_open("gpt2", NULL, "-D layers=7 -D words=1000 -D width=96 -D heads=4");
  for (uint32_t stages = 1; stages <= 7; stages++) {
    expect_best(m.g, "bind batch = 8, seq = 64 micro 1", stages);
    expect_best(m.g, "bind batch = 8, seq = 64 micro 1 recompute Layer", stages);
  }
  model_close(&m);
}

Test(stage, by_hand) {
  Model m = model_open("gpt2", NULL, "-D layers=12");
  Plan q = plan_of(m.g, "bind batch = 8, seq = 64 micro 1 mesh pipe = 4 stages over pipe = [2, 4, 5, 1]");
  static const uint32_t layers[] = {2, 4, 5, 1};
  for (uint32_t s = 0; s < 4; s++) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < q.p->programs.stages[s].ninsts; i++)
      n += m.g->segments[q.p->programs.stages[s].insts[i].segment].repeat;
    cr_expect_eq(n, layers[s]);
  }
  cr_expect_eq(q.p->programs.stages[0].ninsts, 3); /* the embedding comes first, the head last */
  cr_expect_eq(q.p->programs.stages[3].ninsts, 2);
  cr_expect_str_eq(plan_wrong(q.p, q.a), "");
  plan_close(&q);
  /* far from balanced: says what would be better */
  q = plan_of(m.g, "bind batch = 8, seq = 64 micro 1 mesh pipe = 2 stages over pipe = [1, 11]");
  cr_expect(strstr(plan_messages(&q), "Z0401"));
  plan_close(&q);
  model_close(&m);
}

static void expect_tied(const ZpPlan *p, const char *param, uint32_t nstages, const uint32_t *stages) {
  const ZpBucket *k = bucket_with(p, param);
  for (uint32_t i = 0; i < p->programs.ntied; i++) {
    const ZpTied *t = &p->programs.tied[i];
    if (&p->programs.buckets[t->bucket] != k) continue;
    cr_assert_eq(t->nstages, nstages);
    for (uint32_t s = 0; s < nstages; s++) cr_expect_eq(t->stages[s], stages[s]);
    uint32_t counted = 0;
    for (uint32_t s = 0; s < p->programs.nstages; s++)
      for (uint32_t h = 0; h < p->programs.stages[s].nheld; h++) {
        const ZpStageBucket *held = &p->programs.stages[s].held[h];
        if (held->tied != i) continue;
        cr_expect_eq(held->norm_owner, s == stages[0]);
        counted += held->norm_owner;
      }
    cr_expect_eq(counted, 1);
    return;
  }
  cr_assert_eq(nstages, 0, "%s is not tied", param);
}

Test(stage, tied) {
  Model m = model_open("gpt2", NULL, "-D layers=6");
  Plan q = plan_of(m.g, "bind batch = 8, seq = 64 micro 1 mesh pipe = 3 stages over pipe = [2, 2, 2]");
  expect_tied(q.p, "wte", 2, (uint32_t[]){0, 2}); /* table and head */
  expect_tied(q.p, "wpe", 0, NULL);
  cr_expect_eq(q.p->programs.ntied, 1);
  plan_close(&q);
  q = plan_of(m.g, "bind batch = 8, seq = 64 micro 1");
  cr_expect_eq(q.p->programs.ntied, 0); /* one stage has one copy */
  plan_close(&q);
  model_close(&m);
  m = model_open("llama3", NULL, "-D layers=6");
  q = plan_of(m.g, "bind batch = 8, seq = 64 micro 1 mesh pipe = 3 stages over pipe = [2, 2, 2]");
  cr_expect_eq(q.p->programs.ntied, 0);
  plan_close(&q);
  model_close(&m);
  /* a parameter that the start and one repeat in the middle use, over stages that only have some of these */
  m = model_open(NULL, stairs, NULL);
  q = plan_of(m.g, "bind batch = 16 micro 1 mesh pipe = 4 stages over pipe = [3, 1, 1, 4]");
  expect_tied(q.p, "shared", 3, (uint32_t[]){0, 1, 2});
  plan_close(&q);
  model_close(&m);
}

/* A stage of one straight part each does not exist: a model without a repeat has one. */
Test(stage, no_repeat) {
  Model m = model_open("mlp", NULL, NULL);
  Plan q = plan_of(m.g, "bind batch = 8 mesh pipe = 1 stages over pipe by cost");
  cr_expect_eq(q.p->programs.nstages, 1);
  plan_close(&q);
  q = plan_try(m.g, "bind batch = 8 mesh pipe = 2 stages over pipe by cost");
  cr_expect(!q.p && strstr(plan_messages(&q), "[Z0404]: 2 pipeline stages, but model MLP has no `repeat`"),
            "%s", plan_messages(&q));
  cr_expect(strstr(plan_messages(&q), "help: use pipe = 1, or write the model's layers as a `repeat`"));
  plan_close(&q);
  model_close(&m);
  m = model_open(
      NULL,
      "model One { axis batch, x = 4 input i: real[batch, x] param w[x] = 1 y = i repeat 1 { y = y * w }\n"
      "loss sum[x](y) per sum[x](i * 0 + 1) }",
      NULL);
  q = plan_try(m.g, "bind batch = 8 mesh pipe = 2 stages over pipe by cost");
  cr_expect(!q.p && strstr(plan_messages(&q), "the outermost repeats of model One have 1 iteration\n"), "%s",
            plan_messages(&q));
  cr_expect(strstr(plan_messages(&q), "help: use pipe = 1, or compile the model with more layers"));
  plan_close(&q);
  model_close(&m);
}
