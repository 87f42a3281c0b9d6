/* Faults of the generator that are consistent: one pass decides wrongly and all that follow fit its decision,
 * so that every size agrees with every other. Only who derives it a second time can see it. */
#include "tests/unit/plan/models/plan.h"

#include <criterion/criterion.h>
#include <string.h>

#include "runtime/plan/schedule/schedule.h"

typedef enum { BIND, SHARD, BUCKETS } Pass;
typedef void Fault(ZpPlan *p);

/* The passes of plan.c, with a fault after one of them. */
static ZpPlan *plan_with(Plan *q, const ZgGraph *g, Pass pass, Fault *fault) {
  static const ZpOptions o = {.threads = 1};
  ZpPlan *p = ZB_NEW(q->a, ZpPlan);
  *p = (ZpPlan){.arena = q->a, .graph = g, .asked.recipe = q->r};
  ZpBuild b = {.p = p, .d = q->d, .o = &o};
  cr_assert(zp_bind(&b));
  if (pass == BIND) fault(p);
  cr_assert(zp_shard(&b));
  if (pass == SHARD) fault(p);
  cr_assert(zp_buckets(&b));
  if (pass == BUCKETS) fault(p);
  zp_lower(&b);
  cr_assert(zp_stages(&b));
  zp_program(p);
  cr_assert(zp_ledger(&b));
  return p;
}

static void nothing(ZpPlan *p) { (void)p; }

static void caught(const char *recipe, Pass pass, Fault *fault, const char *text) {
  Model m = model_open("gpt2", NULL, "-D layers=2 -D heads=2 -D width=16 -D context=16 -D words=31");
  Plan q = plan_of(m.g, recipe);
  ZbErr err = {0};
  const ZpPlan *good = plan_with(&q, m.g, BIND, nothing), *p = plan_with(&q, m.g, pass, fault);
  cr_expect(zp_check(good, &err) && zp_check_segments(good, &err), "%s", err.text);
  cr_expect(!zp_check(p, &err) || !zp_check_segments(p, &err), "accepted, but: %s", text);
  cr_expect(strstr(err.text, text), "says: %s\nnot: %s", err.text, text);
  plan_close(&q);
  model_close(&m);
}

#define SIZES "bind batch = 4, seq = 16 pad vocab to 8 "
#define ZERO3 "mesh d = 2 split batch over d shard params, grads, states over d " SIZES

/* ---- sizes --------------------------------------------------------------------------------------------- */
static void padding_is_valid(ZpPlan *p) { /* a checkpoint would hold it, and the softmax count it */
  for (uint32_t i = 0; i < p->graph->naxes; i++) p->layout.axis_valid[i] = p->layout.axis_size[i];
}
static void smaller_than_valid(ZpPlan *p) {
  uint32_t vocab = zg_axis_find(p->graph, "vocab");
  p->layout.axis_size[vocab] = 24;
}
static void padding_is_a_class(ZpPlan *p) {
  for (uint32_t s = 0; s < p->graph->nsegments; s++)
    for (int k = 0; k < ZP_PHASES; k++)
      for (uint32_t i = 0; i < p->programs.segments[s].list[k].n; i++) {
        ZkCall *c = &p->programs.segments[s].list[k].nodes[i].call;
        if (c->op == ZG_OP_XENT_SUMS) c->opt[1] = 0;
      }
}

Test(generator, padding) {
  caught(SIZES, BIND, padding_is_valid,
         "axis vocab has 31 elements by the model, but 32 without padding by the plan");
  caught(SIZES, BIND, smaller_than_valid, "axis vocab has 31 elements, but 24 with padding");
  caught(SIZES, SHARD, padding_is_a_class, "takes padding for classes");
}

static void too_large(ZpPlan *p) { p->programs.buckets[0].elems += 1024; }

Test(generator, bucket_sizes) {
  caught(SIZES, BUCKETS, too_large, "elements for slices of");
  caught(ZERO3, BUCKETS, too_large, "elements for slices of");
}

/* ---- what the recipe says of storage ------------------------------------------------------------------- */
static void whole_states(ZpPlan *p) {
  for (uint32_t i = 0; i < p->programs.nbuckets; i++) {
    ZpBucket *k = &p->programs.buckets[i];
    k->shard = 0, k->gathers = false, k->scatters = ZP_SCATTER_NEVER, k->reduces = k->partial;
    k->elems = zb_round_up(k->slices[k->nslices - 1].at + k->slices[k->nslices - 1].n, 16);
  }
}
static void whole_params(ZpPlan *p) {
  for (uint32_t i = 0; i < p->programs.nbuckets; i++)
    p->programs.buckets[i].gathers = false, p->programs.buckets[i].republishes = true;
}
static void keeps(ZpPlan *p) {
  for (uint32_t i = 0; i < p->programs.nbuckets; i++) p->programs.buckets[i].keeps = true;
}
static void one_group(ZpPlan *p) {
  for (uint32_t i = 0; i < p->programs.nbuckets; i++)
    for (uint32_t k = 0; k < p->programs.buckets[i].nslices; k++) p->programs.buckets[i].slices[k].group = 0;
}

Test(generator, storage) {
  caught(ZERO3, BUCKETS, whole_states, "is stored otherwise than the recipe says");
  caught(ZERO3, BUCKETS, whole_params, "is stored otherwise than the recipe says");
  caught(ZERO3, BUCKETS, keeps, "is stored otherwise than the recipe says");
  caught(ZERO3 "optimizer adamw(lr = 1e-3) decay 0.1 except bias", BUCKETS, one_group,
         "is updated otherwise than the recipe says");
}
