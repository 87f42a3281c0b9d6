/* Plans of steps of generation: what caches take, what a limit leaves of them, which models have no such plan, and that
 * what is wrong with a cache is seen. */
#include "tests/unit/plan/models/plan.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

static const char gpt2[] = "-D layers=3 -D heads=4 -D width=32 -D context=64 -D words=97";
static const char gemma[] =
    "-D layers=7 -D heads=4 -D kv_heads=2 -D width=32 -D head_dim=8 -D inner=48 -D words=97 -D window=20";

static Plan steps(const Model *m, const char *recipe, ZpGenerating g) {
  ZpOptions o = {.threads = 1, .generates = &g};
  return plan_as(m->g, recipe, &o);
}

static const ZpLedger *ledger(const Plan *q) { return &q->p->programs.stages[0].ledger; }

/* Keys and values of 3 layers of 32 numbers, for 5 sequences of 40 tokens in pages of 8. */
Test(steps, caches_are_keys_and_values) {
  Model m = model_open("gpt2", NULL, gpt2);
  Plan q = steps(&m, "bind batch = 5, seq = 40", (ZpGenerating){.step = 16, .page = 8});
  cr_assert(q.p, "%s", plan_messages(&q));
  cr_expect_eq(ledger(&q)->bytes[ZP_L_CACHE], 2 * 3 * 32 * 4 * 5 * 40);
  cr_expect_eq(q.p->pages[0], 25);
  plan_close(&q);
  q = steps(&m, "bind batch = 5, seq = 40 precision compute bf16", (ZpGenerating){.step = 16, .page = 8});
  cr_expect_eq(ledger(&q)->bytes[ZP_L_CACHE], 2 * 3 * 32 * 2 * 5 * 40);
  plan_close(&q);
  model_close(&m);
}

/* Of a window of 20 a sequence has what its last token sees, and a step's tokens: 20 + 4 of 60, in pages of 4. */
Test(steps, pages_behind_a_window_are_given_back) {
  Model m = model_open("gemma3", NULL, gemma);
  Plan q = steps(&m, "bind batch = 2, seq = 60", (ZpGenerating){.step = 4, .page = 4});
  cr_assert(q.p, "%s", plan_messages(&q));
  cr_assert_eq(q.p->stream->ngroups, 2);
  for (uint32_t i = 0; i < 2; i++)
    cr_expect_eq(q.p->pages[i], q.p->stream->groups[i].window ? 2 * 7 : 2 * 15);
  plan_close(&q);
  model_close(&m);
}

/* Pages are what a limit leaves, and the plan keeps to it; a sequence fits at least, or the limit is refused. */
Test(steps, pages_are_what_a_limit_leaves) {
  Model m = model_open("gpt2", NULL, gpt2);
  ZpGenerating g = {.step = 16, .page = 8};
  Plan free = steps(&m, "bind batch = 8, seq = 64", g);
  uint64_t all = ledger(&free)->total[ZP_DEVICE], cache = ledger(&free)->bytes[ZP_L_CACHE];
  char recipe[120];
  snprintf(recipe, sizeof recipe, "bind batch = 8, seq = 64 limit memory %llu B",
           (unsigned long long)(all - cache / 2));
  Plan q = steps(&m, recipe, g);
  cr_assert(q.p, "%s", plan_messages(&q));
  cr_expect_leq(ledger(&q)->total[ZP_DEVICE], all - cache / 2);
  cr_expect_eq(q.p->pages[0], 32);
  plan_close(&q);
  snprintf(recipe, sizeof recipe, "bind batch = 8, seq = 64 limit memory %llu B",
           (unsigned long long)(all - cache));
  q = steps(&m, recipe, g);
  cr_expect(!q.p && strstr(plan_messages(&q), "Z0501"), "%s", plan_messages(&q));
  plan_close(&q), plan_close(&free);
  model_close(&m);
}

Test(steps, sequences_are_no_longer_than_the_model_knows) {
  Model m = model_open("gpt2", NULL, gpt2);
  Plan q = steps(&m, "bind batch = 2, seq = 32", (ZpGenerating){.step = 16, .page = 8, .length = 65});
  cr_expect(!q.p, "65 positions of 64");
  plan_close(&q);
  q = steps(&m, "bind batch = 2", (ZpGenerating){.step = 16, .page = 8});
  cr_expect(!q.p && strstr(plan_messages(&q), "Z0307"), "%s", plan_messages(&q));
  plan_close(&q);
  model_close(&m);
}

Test(steps, models_that_see_later_tokens_have_none) {
  Model m =
      model_open("bert", NULL, "-D layers=2 -D heads=4 -D width=32 -D inner=48 -D context=64 -D words=97");
  Plan q = steps(&m, "bind batch = 2, seq = 32", (ZpGenerating){.step = 16, .page = 8});
  cr_expect(!q.p && strstr(plan_messages(&q), "Z0815") && strstr(plan_messages(&q), "mask = none"), "%s",
            plan_messages(&q));
  plan_close(&q);
  model_close(&m);
}

static const char t5[] = "-D layers=2 -D heads=4 -D width=32 -D head_dim=8 -D inner=48 -D words=97";

/* An encoder, and keys and values of what it makes, are a plan of their own, for one sequence: parameters of
 * either are stored where they are read, what is kept is in the steps' caches, and a limit is of both
 * together. */
Test(steps, an_encoder_has_a_plan_of_its_own) {
  Model m = model_open("t5", NULL, t5);
  ZpGenerating g = {.step = 16, .page = 8};
  Plan q = steps(&m, "bind batch = 3, src = 20, tgt = 40", g);
  cr_assert(q.p && q.p->admission, "%s", plan_messages(&q));
  cr_expect_eq(ledger(&q)->bytes[ZP_L_CACHE], 2 * 2 * 32 * 4 * 3 * (40 + 20));
  uint32_t both = 0;
  for (uint32_t i = 0; i < m.g->nparams; i++) {
    bool steps = zp_has_param(q.p, i), own = zp_has_param(q.p->admission, i);
    cr_expect(steps || own, "%s is read by neither", m.g->params[i].path);
    both += steps && own;
  }
  cr_expect_eq(both, 1, "of which one is the table of words");
  uint64_t all = ledger(&q)->total[ZP_DEVICE] + zp_admission_bytes(q.p);
  plan_close(&q);
  for (int less = 0; less < 2; less++) {
    char recipe[120];
    snprintf(recipe, sizeof recipe, "bind batch = 3, src = 20, tgt = 40 limit memory %llu B",
             (unsigned long long)(all - (less ? 64 : 0)));
    q = steps(&m, recipe, g);
    cr_expect(q.p && (q.p->pages[0] < 15) == less, "%s", plan_messages(&q));
    plan_close(&q);
  }
  q = steps(&m, "bind batch = 3, src = 20, tgt = 40 limit memory 20 kB", g);
  cr_expect(!q.p && strstr(plan_messages(&q), "Z0501"), "%s", plan_messages(&q));
  plan_close(&q);
  model_close(&m);
}

/* ---- faults -------------------------------------------------------------------------------------------- */
static ZpValue *cache(ZpSegment *s, int nth) {
  for (uint32_t v = 0; v < s->nvalues; v++)
    if (s->values[v].at.space == ZP_AT_CACHE && nth-- == 0) return &s->values[v];
  cr_assert_fail("no such cache");
  return NULL;
}
static ZpNode *node(ZpSegment *s, ZgOp op) {
  for (uint32_t i = 0; i < s->list[ZP_FWD].n; i++)
    if (s->list[ZP_FWD].nodes[i].call.op == op) return &s->list[ZP_FWD].nodes[i];
  cr_assert_fail("no such node");
  return NULL;
}

static bool proved(const ZpPlan *p) {
  ZbErr err = {0};
  return zp_check_segments(p, &err) && zp_check(p, &err) && zp_check_meaning(p, &err);
}

/* Each value of a cache is at one place: all of it is moved. */
static void move(ZpSegment *s, uint32_t index, uint64_t to) {
  for (uint32_t v = 0; v < s->nvalues; v++)
    if (s->values[v].at.space == ZP_AT_CACHE && s->values[v].at.index == index) s->values[v].at.offset = to;
}
static void over_another(ZpPlan *p, ZpSegment *s) { (void)p, move(s, 1, cache(s, 0)->at.offset); }
static void behind_the_end(ZpPlan *p, ZpSegment *s) { (void)p, move(s, 1, s->cache_bytes); }
static void out_of_line(ZpPlan *p, ZpSegment *s) { (void)p, move(s, 0, 8); }
static void in_two_places(ZpPlan *p, ZpSegment *s) { (void)p, cache(s, 0)->at.offset += s->cache_bytes / 2; }
static void another_cache(ZpPlan *p, ZpSegment *s) { (void)p, cache(s, 0)->at.index = 1; }
static void no_cache(ZpPlan *p, ZpSegment *s) { cache(s, 0)->at.index = p->stream->ncaches; }
static void smaller(ZpPlan *p, ZpSegment *s) { (void)p, s->cache_bytes -= 64; }
static void instances_overlap(ZpPlan *p, ZpSegment *s) { (void)s, p->programs.stages[0].cache_at[2] -= 64; }
static void no_buffer(ZpPlan *p, ZpSegment *s) {
  (void)s;
  ZpProgram *g = &p->programs.stages[0].prog;
  for (uint32_t i = 0; i < g->nbufs; i++)
    if (g->bufs[i].kind == ZP_B_CACHE) g->bufs[i].bytes -= 64;
}
static void keys_for_values(ZpPlan *p, ZpSegment *s) {
  (void)p;
  ZpNode *n = node(s, ZG_OP_ATTEND_PAGES);
  n->in[2] = n->in[1];
}
static void nothing_is_put(ZpPlan *p, ZpSegment *s) {
  (void)p;
  ZpList *l = &s->list[ZP_FWD];
  uint32_t i = (uint32_t)(node(s, ZG_OP_PUT_PAGES) - l->nodes);
  memmove(&l->nodes[i], &l->nodes[i + 1], (l->n - i - 1) * sizeof *l->nodes);
  l->n--;
}
static void put_too_late(ZpPlan *p, ZpSegment *s) {
  (void)p;
  ZpList *l = &s->list[ZP_FWD];
  uint32_t i = (uint32_t)(node(s, ZG_OP_PUT_PAGES) - l->nodes),
           k = (uint32_t)(node(s, ZG_OP_ATTEND_PAGES) - l->nodes);
  ZpNode n = l->nodes[i];
  memmove(&l->nodes[i], &l->nodes[i + 1], (k - i) * sizeof *l->nodes);
  l->nodes[k] = n;
}
static void another_window(ZpPlan *p, ZpSegment *s) { (void)p, node(s, ZG_OP_ATTEND_PAGES)->call.opt[1] = 3; }
static void positions_for_sequences(ZpPlan *p, ZpSegment *s) {
  (void)p;
  ZpNode *n = node(s, ZG_OP_ATTEND_PAGES);
  n->in[4] = n->in[5];
}

Test(steps, what_is_wrong_with_a_cache_is_seen) {
  static const struct {
    const char *what;
    void (*plant)(ZpPlan *p, ZpSegment *s);
  } fault[] = {{"one cache over another", over_another},
               {"behind the end", behind_the_end},
               {"out of line", out_of_line},
               {"in two places", in_two_places},
               {"another cache", another_cache},
               {"no cache", no_cache},
               {"fewer bytes", smaller},
               {"caches of two layers overlap", instances_overlap},
               {"a smaller buffer", no_buffer},
               {"keys for values", keys_for_values},
               {"nothing is put", nothing_is_put},
               {"put too late", put_too_late},
               {"another window", another_window},
               {"positions for sequences", positions_for_sequences}};
  Model m = model_open("gpt2", NULL, gpt2);
  for (size_t i = 0; i < sizeof fault / sizeof *fault; i++) {
    Plan q = steps(&m, "bind batch = 3, seq = 32", (ZpGenerating){.step = 8, .page = 4});
    cr_assert(q.p, "%s", plan_messages(&q));
    uint32_t layer = 0;
    while (!q.p->programs.segments[layer].cache_bytes) layer++;
    cr_expect(proved(q.p));
    fault[i].plant(q.p, &q.p->programs.segments[layer]);
    cr_expect(!proved(q.p), "accepted: %s", fault[i].what);
    plan_close(&q);
  }
  model_close(&m);
}
