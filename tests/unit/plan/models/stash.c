/* What is stashed for backward since `limit memory` has room for it: to the byte, the best first, and nothing
 * else changes. */
#include "runtime/plan/text.h"
#include "tests/unit/breadth.h"
#include "tests/unit/plan/models/recipes.h"

#include <criterion/criterion.h>
#include <string.h>

static const char sizes[] = "-D layers=4 -D heads=4 -D width=32 -D context=32 -D words=64";
#define BIND "bind batch = 8, seq = 32 micro 2 "
static const char piped[] = BIND "mesh pipe = 2, data = 2 split batch over data stages over pipe by cost ";

static uint64_t arena_of(const ZpPlan *p) {
  uint64_t most = 0;
  for (uint32_t s = 0; s < p->programs.nstages; s++)
    if (p->programs.stages[s].ledger.total[ZP_DEVICE] > most)
      most = p->programs.stages[s].ledger.total[ZP_DEVICE];
  return most;
}

static Plan limited(const ZgGraph *g, const char *recipe, uint64_t limit) {
  ZbArena *a = zb_arena_new();
  Plan q = plan_of(g, zb_printf(a, "%s limit memory %llu B", recipe, (unsigned long long)limit));
  zb_arena_free(a);
  cr_expect_leq(arena_of(q.p), limit);
  cr_expect_str_eq(plan_wrong(q.p, q.a), "");
  return q;
}
#define ROOM 4000000000000000000

static void add(void *ctx, const char *what, uint64_t digest) {
  zb_text_add(ctx, "%s %llx\n", what, (unsigned long long)digest);
}
static bool same(const ZpPlan *p, const ZpPlan *q) {
  ZbText t = {0}, u = {0};
  ZbArena *a = zb_arena_new();
  zp_digest(p, a, add, &t);
  zp_digest(q, a, add, &u);
  bool eq = !strcmp(t.s, u.s);
  zb_text_free(&t);
  zb_text_free(&u);
  zb_arena_free(a);
  return eq;
}

static const char *named(const ZpPlan *p, ZbArena *a) {
  const char *s = "";
  for (uint32_t i = 0; i < p->programs.nstashed; i++)
    s = zb_printf(a, "%s%u %s\n", s, p->programs.stashed[i].segment,
                  zg_type_text(p->graph, a, &p->programs.stashed[i].type));
  return s;
}

static uint64_t moved(const ZpSegment *s) {
  uint64_t bytes = 0;
  for (int phase = ZP_FWD; phase <= ZP_BWD; phase++)
    for (uint32_t i = 0; i < s->list[phase].n; i++) {
      const ZpNode *n = &s->list[phase].nodes[i];
      for (int k = 0; k < n->call.nin; k++) bytes += s->values[n->in[k]].bytes;
      for (int k = 0; k < n->call.nout; k++) bytes += s->values[n->out[k]].bytes;
    }
  return bytes;
}

/* The GELU and what norms hand to products; q, k and v in place of the products without their biases. In a
 * LayerNorm's place of llama3 there is an RMSNorm, and its gate times up is kept. */
Test(stash, what) {
  static const struct {
    const char *model, *options, *expect;
  } cases[] = {
      {"gpt2", sizes,
       "1 real[batch, seq, head, hd]\n1 real[batch, seq, head, hd]\n1 real[batch, seq, head, hd]\n"
       "1 real[batch, seq, embed]\n1 real[batch, seq, embed]\n2 real[batch, seq, embed]\n"
       "1 real[batch, seq, ffn]\n"},
      {"llama3", "-D layers=4 -D heads=4 -D kv_heads=2 -D width=32 -D inner=64 -D words=64",
       "1 real[batch, seq, embed]\n1 real[batch, seq, embed]\n1 real[batch, seq, ffn]\n"
       "2 real[batch, seq, embed]\n"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    Model m = model_open(cases[i].model, NULL, cases[i].options);
    Plan q = limited(m.g, BIND, ROOM), bare = plan_of(m.g, BIND);
    cr_expect_str_eq(named(q.p, q.a), cases[i].expect, "%s", named(q.p, q.a));
    cr_expect(bare.p->programs.nstashed == 0 && bare.p->notes.not_stashed == 0 &&
              q.p->notes.not_stashed == 0);
    cr_expect(q.p->notes.least == arena_of(bare.p) && bare.p->notes.least == q.p->notes.least);
    for (uint32_t s = 0; s < 3; s++) {
      const ZpSegment *with = &q.p->programs.segments[s], *without = &bare.p->programs.segments[s];
      cr_expect_eq(with->saved_bytes, without->saved_bytes + with->stashed_bytes);
      cr_expect_eq(moved(with) + with->stashed_moves, moved(without));
    }
    cr_expect(q.p->programs.segments[0].stashed_moves == 0 && q.p->programs.segments[1].stashed_moves &&
              q.p->programs.segments[2].stashed_moves);
    for (uint32_t k = 1; k < q.p->programs.nstashed; k++) {
      const ZpStash *x = &q.p->programs.stashed[k - 1], *y = &q.p->programs.stashed[k];
      cr_expect((double)x->moves * (double)y->bytes >= (double)y->moves * (double)x->bytes, "best first");
    }
    plan_close(&q);
    plan_close(&bare);
    model_close(&m);
  }
}

/* Layers within the body of a repeat, which look alike but for the first and the last. */
static const char nested[] =
    "use std.nn as nn\n"
    "model M { axis batch, seq, vocab = 64, embed = 16, ffn = 32\n"
    "  input tokens: index(vocab)[batch, seq]\n"
    "  param table[vocab, embed] ~ normal(0.02)\n"
    "  x = lookup(table, tokens)\n"
    "  repeat 2 as outer { repeat 12 as inner { x = x + nn.SwiGLU[embed, ffn](nn.RMSNorm[embed](x)) } }\n"
    "  loss mean[embed](x) per samples() }";

/* From room for everything down to the last byte that the plan needs: what is kept fits, and with one byte
 * less than it takes something else is kept, or nothing. */
Test(stash, to_the_byte) {
  static const struct {
    const char *model, *text, *options, *recipe;
  } cases[] = {{"gpt2", NULL, sizes, BIND}, {"gpt2", NULL, sizes, piped}, {NULL, nested, NULL, BIND}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    if (!breadth_tries(i, 2)) continue;
    Model m = model_open(cases[i].model, cases[i].text, cases[i].options);
    const char *recipe = cases[i].recipe;
    Plan bare = plan_of(m.g, recipe), all = limited(m.g, recipe, ROOM);
    uint64_t least = arena_of(bare.p), limit = arena_of(all.p);
    uint32_t n = all.p->programs.nstashed, steps = 0;
    cr_assert_gt(limit, least);
    Plan exact = limited(m.g, recipe, limit);
    cr_expect(same(exact.p, all.p), "what takes all of the limit is kept");
    plan_close(&exact);
    for (limit--; limit >= least; limit--, steps++) {
      Plan q = limited(m.g, recipe, limit);
      cr_expect_leq(q.p->programs.nstashed, n);
      cr_expect_eq(q.p->programs.nstashed + q.p->notes.not_stashed, all.p->programs.nstashed);
      if (!steps) { /* the last, and worst, is what does not fit */
        cr_expect_eq(q.p->programs.nstashed, n - 1);
        for (uint32_t k = 0; k < q.p->programs.nstashed; k++)
          cr_expect_eq(q.p->programs.stashed[k].value, all.p->programs.stashed[k].value);
      }
      n = q.p->programs.nstashed;
      limit = arena_of(q.p); /* with one byte less it is another plan */
      plan_close(&q);
    }
    cr_expect_gt(steps, 2);
    Plan none =
        plan_try(m.g, zb_printf(bare.a, "%s limit memory %llu B", recipe, (unsigned long long)least - 1));
    cr_expect(!none.p && strstr(plan_messages(&none), "Z0501"));
    plan_close(&none);
    plan_close(&bare);
    plan_close(&all);
    model_close(&m);
  }
}

/* The first stage holds more micro-batches than the last, and pays for each. */
Test(stash, stages) {
  Model m = model_open("gpt2", NULL, sizes);
  Plan bare = plan_of(m.g, piped), all = limited(m.g, piped, ROOM);
  for (uint32_t s = 0; s < 2; s++) {
    const ZpStage *st = &all.p->programs.stages[s], *was = &bare.p->programs.stages[s];
    uint64_t kept = 0;
    for (uint32_t i = 0; i < st->ninsts; i++)
      kept += all.p->programs.segments[st->insts[i].segment].stashed_bytes;
    cr_expect_eq(st->ninsts, was->ninsts);
    cr_expect_eq(st->ledger.bytes[ZP_L_ACTIVATIONS],
                 was->ledger.bytes[ZP_L_ACTIVATIONS] + st->prog.nslots * kept);
  }
  cr_expect(all.p->programs.stages[0].prog.nslots == 2 && all.p->programs.stages[1].prog.nslots == 1);
  plan_close(&bare);
  plan_close(&all);
  model_close(&m);
}

/* What a recipe wants made again, and what is there for a moment only, stays so. */
Test(stash, not ) {
  Model m = model_open("gpt2", NULL, sizes);
  Plan q = limited(m.g, BIND "recompute Layer ", ROOM), r = plan_of(m.g, BIND "recompute Layer ");
  cr_expect_str_eq(named(q.p, q.a), "2 real[batch, seq, embed]\n");
  cr_expect_eq(q.p->programs.segments[1].saved_bytes, r.p->programs.segments[1].saved_bytes);
  plan_close(&r);
  plan_close(&q);
  q = limited(m.g, BIND "recompute Layer.mlp ", ROOM);
  cr_expect(!strstr(named(q.p, q.a), "ffn") && strstr(named(q.p, q.a), "head"), "%s", named(q.p, q.a));
  plan_close(&q);
  model_close(&m);
  m = model_open("gemma2", NULL,
                 "-D layers=2 -D heads=4 -D kv_heads=2 -D width=32 -D inner=64 -D head_dim=8 -D words=64");
  q = limited(m.g, BIND, ROOM); /* capped logits */
  cr_expect(strstr(named(q.p, q.a), "real[batch, seq, vocab]"), "%s", named(q.p, q.a));
  plan_close(&q);
  q = limited(m.g, BIND "chunk vocab = 4 ", ROOM);
  cr_expect(!strstr(named(q.p, q.a), "vocab"), "%s", named(q.p, q.a));
  plan_close(&q);
  model_close(&m);
}

/* Evaluations save nothing, alone or in the arena of a plan that keeps. */
Test(stash, forward) {
  static const char with[] = BIND "limit memory 1 GB";
  Model m = model_open("gpt2", NULL, sizes);
  Plan q = plan_of(m.g, with), alone = plan_forward(m.g, with, NULL), beside = plan_forward(m.g, with, q.p);
  cr_expect(q.p->programs.nstashed && !alone.p->programs.nstashed && !beside.p->programs.nstashed);
  plan_close(&beside);
  plan_close(&alone);
  plan_close(&q);
  model_close(&m);
}

/* Of a device with fused calls. */
Test(stash, fused) {
  Model m = model_open("gpt2", NULL, sizes);
  Plan q = plan_fused(m.g, BIND "limit memory 1 GB", supports_all), r = plan_fused(m.g, BIND, supports_all);
  uint32_t layer = segment_of(q.p, "layer", 0);
  cr_expect_lt(moved(&q.p->programs.segments[layer]), moved(&r.p->programs.segments[layer]));
  cr_expect_str_eq(plan_wrong(q.p, q.a), "");
  cr_expect(strstr(named(q.p, q.a), "ffn"), "%s", named(q.p, q.a));
  plan_close(&r);
  plan_close(&q);
  model_close(&m);
}

/* Of random recipes that plan: the same is kept twice; stages are cut as without it. */
Test(stash, random) {
  uint32_t kept = 0, plans = 0;
  for (int k = 0; k < NMODELS; k++) {
    Model m = model_open(random_models[k].name, random_models[k].text, random_models[k].options);
    for (uint32_t i = 0; i < breadth_many(20); i++) {
      ZbText t = {0};
      put_recipe(k, i, &t);
      Plan bare = plan_try(m.g, t.s);
      if (bare.p && !strstr(t.s, "limit")) {
        Plan q = limited(m.g, t.s, ROOM), r = limited(m.g, t.s, ROOM);
        cr_expect(same(q.p, r.p) && q.p->programs.nstashed == r.p->programs.nstashed,
                  "two plans differ for\n%s", t.s);
        cr_expect(q.p->programs.nstashed || same(q.p, bare.p), "nothing is kept, but it is another plan:\n%s",
                  t.s);
        for (uint32_t s = 0; s < q.p->programs.nstages; s++)
          cr_expect_eq(q.p->programs.stages[s].ninsts, bare.p->programs.stages[s].ninsts);
        plans++, kept += q.p->programs.nstashed > 0;
        plan_close(&q);
        plan_close(&r);
      }
      plan_close(&bare);
      zb_text_free(&t);
    }
    model_close(&m);
  }
  cr_log_info("%u of %u plans keep something", kept, plans);
  cr_expect_gt(kept, plans / 2);
}
