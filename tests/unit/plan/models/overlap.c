/* Collectives beside calls: in which order lists are, what they cost, and what the proof says where one is
 * disturbed. That numbers stay is play.c's. */
#include "runtime/plan/text.h"
#include "tests/unit/plan/models/faults.h"

static const char *const options = "-D layers=2 -D heads=4 -D width=16 -D context=16 -D words=32";
static const char *const split =
    "mesh tensor = 2 split head, ffn, vocab over tensor bind batch = 4, seq = 16 micro 4";
static const char *const split_seq =
    "mesh tensor = 2 split head, ffn, vocab over tensor else seq bind batch = 4, seq = 16 micro 4";

static const ZpList *backward(const Plan *q, uint32_t *index) {
  *index = segment_of(q->p, "layer", 0);
  return &q->p->programs.segments[*index].list[ZP_BWD];
}

/* Gradients of weights between the beginning of node i and what waits for it. */
static uint32_t gradients_beside(const Plan *q, const ZpList *l, uint32_t segment, uint32_t i) {
  uint32_t found = 0;
  for (uint32_t k = i + 1; k < l->nodes[i].until; k++)
    found += l->nodes[k].call.op == ZG_OP_DOT &&
             q->p->programs.segments[segment].values[l->nodes[k].out[0]].at.space == ZP_AT_GRAD;
  return found;
}

/* The sum of the gradient of what a layer takes in goes beside gradients of its weights; so do what is
 * gathered to make them, and what is scattered. */
Test(overlap, gradients_of_weights_hide_sums) {
  Model m = model_open("gpt2", NULL, options);
  for (int seq = 0; seq < 2; seq++) {
    Plan q = plan_pinned(m.g, seq ? split_seq : split);
    uint32_t s, sums = 0, hidden = 0;
    const ZpList *l = backward(&q, &s);
    for (uint32_t i = 0; i < l->n; i++) {
      if (l->nodes[i].call.op != (seq ? ZG_OP_REDUCE_SCATTER : ZG_OP_ALL_REDUCE) || l->nodes[i].recomputed)
        continue;
      sums++;
      hidden += gradients_beside(&q, l, s, i) > 0;
    }
    cr_expect_geq(sums, 2);
    cr_expect_eq(hidden, sums, "%u of %u", hidden, sums);
    const char *wrong = plan_wrong(q.p, q.a);
    cr_expect_str_eq(wrong, "", "%s", wrong);
    plan_close(&q);
  }
  model_close(&m);
}

/* A device that does its calls at once gets lists as they were: everything is complete before the next. */
Test(overlap, hosts_do_one_after_the_other) {
  Model m = model_open("gpt2", NULL, options);
  Plan q = plan_bare(m.g, split_seq);
  uint32_t found = 0;
  for (uint32_t s = 0; s < q.p->graph->nsegments; s++)
    for (int k = 0; k < ZP_PHASES; k++) {
      const ZpList *l = &q.p->programs.segments[s].list[k];
      for (uint32_t i = 0; i < l->n; i++) {
        found += zp_is_async(&l->nodes[i]);
        cr_expect_eq(l->nodes[i].until, zp_is_async(&l->nodes[i]) ? i + 1 : 0);
      }
    }
  cr_expect_geq(found, 8);
  plan_close(&q);
  model_close(&m);
}

/* Where there is no memory for it, calls wait; and what is too little for that is reported as that. */
Test(overlap, waits_where_it_does_not_fit) {
  Model m = model_open("gpt2", NULL, options);
  Plan with = plan_try_streams(m.g, split_seq, NULL);
  uint64_t most = with.p->programs.stages[0].ledger.total[ZP_DEVICE], least = 0;
  cr_assert_eq(with.p->notes.async_bytes, 0);
  for (int tight = 1; tight >= 0; tight--) { /* one byte less than with; one less than without */
    uint64_t limit = tight ? most - 1 : least - 1;
    ZbText t = {0};
    zb_text_add(&t, "%s limit memory %llu B", split_seq, (unsigned long long)limit);
    Plan q = plan_try_streams(m.g, t.s, NULL);
    if (tight) {
      cr_assert(q.p, "%s", plan_messages(&q));
      least = q.p->notes.least;
      cr_expect_eq(q.p->notes.async_bytes, most);
      char need[24];
      ZbText shown = {0};
      zp_show(q.p, &shown);
      cr_expect(
          strstr(shown.s, zb_printf(q.a, "with async ones a rank would need %s\n", zb_bytes(need, most))));
      zb_text_free(&shown);
      cr_expect_lt(least, most);
      uint32_t s;
      const ZpList *l = backward(&q, &s);
      for (uint32_t i = 0; i < l->n; i++)
        cr_expect_eq(l->nodes[i].until, zp_is_async(&l->nodes[i]) ? i + 1 : 0);
      accepts(q.p);
    } else {
      cr_assert(!q.p && strstr(plan_messages(&q), "Z0501"), "%s", q.text.s);
    }
    plan_close(&q);
    zb_text_free(&t);
  }
  plan_close(&with);
  model_close(&m);
}

/* The first node of temporaries behind node i and before what waits for that; NULL: there is none. */
static ZpNode *maker_beside(const ZpList *l, const ZpValue *values, uint32_t i) {
  for (uint32_t k = i + 1; k < l->nodes[i].until; k++)
    if (values[l->nodes[k].out[0]].at.space == ZP_AT_TEMP && !l->nodes[k].dims) return &l->nodes[k];
  return NULL;
}

Test(overlap, faults) {
  Model m = model_open("gpt2", NULL, options);
  Plan q = plan_pinned(m.g, split_seq);
  uint32_t s, i = 0;
  const ZpList *l = backward(&q, &s);
  ZpValue *values = q.p->programs.segments[s].values;
  accepts(q.p);
  while (i < l->n && (!zp_is_async(&l->nodes[i]) || l->nodes[i].until == l->n ||
                      values[l->nodes[i].in[0]].at.space != ZP_AT_TEMP || !maker_beside(l, values, i)))
    i++;
  cr_assert_lt(i, l->n);
  ZpNode *n = &l->nodes[i], *after = maker_beside(l, values, i);
  WITH(n->until, i, "is complete when it cannot be");
  WITH(n->until, l->n + 1, "is complete when it cannot be");
  WITH(after->until, i + 3, "is complete when it cannot be");
  WITH(n->until, n->until + 1, "which is not there, or not any more");
  /* What it sends, what it receives and where it packs are its own. */
  ZpValue *x = &values[n->in[0]], *y = &values[n->out[0]], *made = &values[after->out[0]];
  cr_assert(y->at.space == ZP_AT_TEMP && n->scratch_bytes);
  WITH(made->at.offset, x->at.offset, "writes over what `");
  WITH(made->at.offset, y->at.offset, "writes over what `");
  WITH(made->at.offset, n->scratch_at, "writes over what `");
  /* Not for a device that does calls at once. */
  q.p->asked.pins = false;
  rejects(q.p, "is complete when it cannot be");
  q.p->asked.pins = true;
  accepts(q.p);
  plan_close(&q);
  model_close(&m);
}
