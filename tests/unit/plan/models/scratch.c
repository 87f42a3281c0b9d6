/* What calls say about how they are to be done: in how much scratch, and whether with the same bits everywhere. */
#include "runtime/plan/text.h"
#include "tests/unit/plan/models/faults.h"

static const char *const options = "-D layers=2 -D heads=4 -D width=16 -D context=16 -D words=32";

/* A gradient of attention is done in pieces, and the larger these are the better. */
static size_t in_pieces(const ZkCall *call, int threads) {
  size_t most = (size_t)1 << 30, least = (size_t)8 << 20;
  (void)threads;
  if (call->op != ZG_OP_ATTEND_GRAD) return 0;
  if (!call->repeatable) most = (size_t)512 << 20;
  return !call->room || call->room > most ? most : call->room < least ? least : call->room;
}

static Plan plan_in_pieces(const ZgGraph *g, const char *recipe, bool repeatable, uint64_t limit) {
  ZbArena *a = zb_arena_new();
  const char *text =
      limit ? zb_printf(a, "%s limit memory %llu B", recipe, (unsigned long long)limit) : recipe;
  Plan q = plan_as(g, text,
                   &(ZpOptions){.scratch = in_pieces, .threads = 1, .pins = true, .repeatable = repeatable});
  zb_arena_free(a);
  return q;
}

/* The plan has what is fastest, with a limit as much of that as fits; and says so. */
Test(scratch, as_much_as_fits) {
  const char *recipe = "bind batch = 4, seq = 16 micro 4";
  const uint64_t room[] = {0, (uint64_t)256 << 20, (uint64_t)64 << 20};
  Model m = model_open("gpt2", NULL, options);
  uint64_t limit = 0, before = 0;
  for (int i = 0; i < 3; i++) {
    Plan q = plan_in_pieces(m.g, recipe, true, limit);
    cr_assert(q.p, "%s", plan_messages(&q));
    cr_expect_eq(q.p->layout.room, room[i]);
    if (i) cr_expect_eq(before - q.p->notes.least, (i == 1 ? (uint64_t)1 << 30 : room[i - 1]) - room[i]);
    cr_expect(!limit || q.p->programs.stages[0].ledger.total[ZP_DEVICE] <= limit);
    ZbText shown = {0};
    zp_show(q.p, &shown);
    cr_expect_eq(strstr(shown.s, "less scratch") != NULL, i > 0);
    zb_text_free(&shown);
    accepts(q.p);
    before = q.p->notes.least, limit = before - 1; /* what is kept for backward goes first */
    plan_close(&q);
  }
  Plan q = plan_in_pieces(m.g, recipe, true, limit);
  cr_expect(!q.p && strstr(plan_messages(&q), "Z0501"), "%s", q.text.s);
  plan_close(&q);
  model_close(&m);
}

static void expect_repeatable(Plan *given, bool wanted, bool proved, const char *where) {
  Plan q = *given; /* as WITH has it */
  int found = 0;
  for (uint32_t s = 0; s < q.p->graph->nsegments; s++) {
    const ZpList *l = &q.p->programs.segments[s].list[ZP_BWD];
    for (uint32_t i = 0; i < l->n; i++) {
      ZkCall *c = &l->nodes[i].call;
      if (c->op != ZG_OP_ATTEND_GRAD) continue;
      found++;
      cr_expect_eq(c->repeatable, wanted, "%s", where);
      if (proved) WITH(c->repeatable, false, "may get other bits each");
    }
  }
  cr_expect_geq(found, 1);
}

/* Ranks that make the same call must get the same bits, or their copies of parameters drift apart: those of a
 * dimension that does not split it. */
Test(scratch, same_bits_where_ranks_do_the_same) {
  static const struct {
    const char *recipe;
    bool repeatable;
  } cases[] = {
      {"bind batch = 4, seq = 16 micro 4", false},
      {"mesh data = 2 split batch over data bind batch = 8, seq = 16 micro 4", false},
      {"mesh tensor = 2 split head, ffn, vocab over tensor bind batch = 4, seq = 16 micro 4", false},
      {"mesh tensor = 2 split ffn, vocab over tensor bind batch = 4, seq = 16 micro 4", true},
      {"mesh data = 2, tensor = 2 split batch over data split ffn over tensor bind batch = 8, seq = 16 micro "
       "4",
       true},
  };
  Model m = model_open("gpt2", NULL, options);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    for (int all = 0; all < 2; all++) {
      Plan q = plan_in_pieces(m.g, cases[i].recipe, all, 0);
      cr_assert(q.p, "%s", plan_messages(&q));
      expect_repeatable(&q, all || cases[i].repeatable, cases[i].repeatable, cases[i].recipe);
      plan_close(&q);
    }
  model_close(&m);
}
