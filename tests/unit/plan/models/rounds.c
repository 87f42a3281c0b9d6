/* What is between dispatch and combine is one run of neighbours that is played in rounds; faults in it are
 * refused. */
#include "graph/ragged.h"
#include "runtime/plan/time/time.h"
#include "tests/unit/plan/models/faults.h"

#define MOE(after)                                                                                           \
  "model M {\n  axis batch, seq, d = 8, f = 6, expert = 4, choice = 2, slot\n"                               \
  "  input x: real[batch, seq, d]\n  param g[d] ~ normal(1)\n  y = x * g\n  repeat 2 as layer {\n"           \
  "    param router[d, expert], up[expert, d, f], down[expert, f, d] ~ normal(1)\n"                          \
  "    w, e = topk[expert, choice](softmax[expert](dot[d](y, router)))\n"                                    \
  "    rows = dispatch[expert, slot](y, e)\n"                                                                \
  "    rows = dot[f](tanh(dot[d](rows, up)), down)\n"                                                        \
  "    y = " after "(y + combine[expert, slot, choice](rows, e, w)"                                          \
  ")\n  }\n  loss y * y per samples() }"
static const char moe[] = MOE("tanh");

static ZpNode *node_of(ZpSegment *s, ZpPhase phase, ZgOp op) {
  for (uint32_t i = 0; i < s->list[phase].n; i++)
    if (s->list[phase].nodes[i].call.op == op) return &s->list[phase].nodes[i];
  cr_assert_fail("no %s", zg_op_info[op].text);
  return NULL;
}

static uint32_t count_of(const ZpSegment *s, ZpPhase phase, ZgOp op) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < s->list[phase].n; i++) n += s->list[phase].nodes[i].call.op == op;
  return n;
}

/* A device that takes more to add up rows than to begin with them. */
static size_t more_to_add(const ZkCall *c, int threads) {
  return zk_cpu_scratch(c, threads) + (c->op == ZG_OP_COMBINE && c->accumulate ? 1 << 20 : 0);
}

Test(rounds, later_rounds_add) {
  Model m = model_open(NULL, moe, NULL);
  Plan q = plan_of(m.g, "bind batch = 4, seq = 6, slot = 0.5 micro 2");
  accepts(q.p);
  cr_assert(!node_of(&q.p->programs.segments[1], ZP_FWD, ZG_OP_COMBINE)->call.accumulate);
  WITH(q.p->asked.scratch, more_to_add, "has not the scratch that its kernel takes");
  plan_close(&q);
  model_close(&m);
}

Test(rounds, faults) {
  Model m = model_open(NULL, moe, NULL);
  Plan q =
      plan_of(m.g, "mesh ep = 2 split batch, expert over ep bind batch = 4, seq = 6, slot = 0.5 micro 2");
  ZpSegment *s = &q.p->programs.segments[1];
  ZpNode *round = node_of(s, ZP_FWD, ZG_OP_ROUND), *dispatch = node_of(s, ZP_FWD, ZG_OP_DISPATCH);
  ZpNode *dot = node_of(s, ZP_FWD, ZG_OP_GROUPED_DOT), *combine = node_of(s, ZP_FWD, ZG_OP_COMBINE);
  accepts(q.p);
  /* 24 tokens of two ranks with two choices each, of four experts: half the average is 6 rows of each. */
  cr_expect_eq(round->call.opt[1], 2 * 6);
  WITH(round->call.opt[1], 13, "has another number of rows than its round");
  WITH(round->dims, 0, "counts rows of other experts than the rank's");
  WITH(dispatch->dims, 0, "exchanges rows with others than those that it counts");
  WITH(combine->dims, 0, "exchanges rows with others than those that it counts");
  WITH(dispatch->scratch_bytes, 64, "has not the scratch for rows that travel");
  WITH(dispatch->in[1], dispatch->in[2], "sees operand 1 otherwise than it lies");
  WITH(dispatch->call.ax[1], dispatch->call.ax[2], "names an axis that its operands have not");
  WITH(dot->rounds, 0, "has rows of experts outside of rounds");
  WITH(round->rounds, 0, "begins rounds without saying which");
  WITH(combine[1].rounds, combine->rounds, "gives out of rounds what is of the last one alone");
  WITH(combine->rounds, 9, "begins rounds without saying which");
  plan_close(&q);
  model_close(&m);
}

/* Ranks that have other tokens have other rounds. */
Test(rounds, others_are_not_waited_for) {
  Model m = model_open(NULL, moe, NULL);
  Plan q = plan_of(m.g, "mesh d = 2, ep = 2 split batch over d split batch, expert over ep\n"
                        "bind batch = 8, seq = 6, slot = 0.5 micro 2");
  ZpSegment *s = &q.p->programs.segments[1];
  ZpNode *dispatch = node_of(s, ZP_FWD, ZG_OP_DISPATCH);
  accepts(q.p);
  cr_assert_eq(dispatch->dims, 2);
  WITH(dispatch->dims, 3, "waits for ranks that have other rounds");
  WITH(dispatch->dims, 1, "waits for ranks that have other rounds");
  plan_close(&q);
  model_close(&m);
}

/* What a node of a round sums over ranks they wait for in each: these have the same choices, so that they
 * count as many rounds. */
Test(rounds, ranks_have_as_many) {
  Model m = model_open(NULL, moe, NULL);
  Plan q = plan_of(
      m.g, "mesh b = 2, t = 2 split batch over b split d over t bind batch = 8, seq = 6, slot = 0.5 micro 2");
  ZpSegment *s = &q.p->programs.segments[1];
  ZpNode *slots = node_of(s, ZP_FWD, ZG_OP_SLOTS), *sum = node_of(s, ZP_FWD, ZG_OP_ROUND);
  while (sum->call.op != ZG_OP_ALL_REDUCE) sum++;
  cr_assert(sum->rounds && sum->dims == 2);
  accepts(q.p);
  WITH(sum->dims, 1, "waits for ranks that have other rounds");
  ZpValue *choices = &s->values[slots->in[0]], *place = &s->values[slots->out[0]];
  ZpState swapped[2] = {choices->state[1], choices->state[0]},
          was[2] = {choices->state[0], choices->state[1]};
  memcpy(place->state, swapped, sizeof swapped);
  rejects(q.p, "numbers choices that other ranks have");
  memcpy(choices->state, swapped, sizeof swapped); /* the sum is over ranks that have other choices */
  rejects(q.p, "has tokens and rows that are split otherwise");
  memcpy(place->state, was, sizeof was);
  rejects(q.p, "numbers choices that other ranks have");
  plan_close(&q);
  model_close(&m);
}

/* A dim of one rank cuts nothing, but it says who has what: places of other tokens than the rows are. */
Test(rounds, places_of_other_tokens) {
  Model m = model_open(NULL, moe, NULL);
  Plan q = plan_of(
      m.g, "mesh b = 2, t = 1 split batch over b split d over t bind batch = 8, seq = 6, slot = 0.5 micro 2");
  ZpSegment *s = &q.p->programs.segments[1];
  ZpNode *slots = node_of(s, ZP_FWD, ZG_OP_SLOTS);
  accepts(q.p);
  s->values[slots->in[0]].state[1] = s->values[slots->out[0]].state[1] =
      (ZpState){.kind = 'S', .axis = (uint16_t)zg_axis_find(m.g, "seq")};
  rejects(q.p, "has tokens and rows that are split otherwise");
  plan_close(&q);
  model_close(&m);
}

/* Rows of a region are those that its `round` counts: of the same choices, and of no other round. */
Test(rounds, rows_are_of_their_round) {
  Model m = model_open(NULL,
                       "model M {\n  axis batch, seq, d = 8, f = 6, expert = 4, choice = 2, slot\n"
                       "  input x: real[batch, seq, d]\n  param g[d], a[d, expert], b[d, expert], up[expert, "
                       "d, f], down[expert, f, d] ~ normal(1)\n"
                       "  y = x * g\n  v, e = topk[expert, choice](softmax[expert](dot[d](y, a)))\n"
                       "  w, o = topk[expert, choice](softmax[expert](dot[d](y, b)))\n"
                       "  r = combine[expert, slot, choice](dot[f](tanh(dot[d](dispatch[expert, slot](y, e), "
                       "up)), down), e, v)\n"
                       "  s = combine[expert, slot, choice](dot[f](tanh(dot[d](dispatch[expert, slot](y, o), "
                       "up)), down), o, w)\n"
                       "  loss r * s per samples() }",
                       NULL);
  Plan q = plan_of(m.g, "mesh ep = 2 split batch, expert over ep bind batch = 4, seq = 6 micro 2");
  ZpSegment *s = &q.p->programs.segments[0];
  cr_assert_eq(count_of(s, ZP_FWD, ZG_OP_ROUND), 2);
  ZpNode *list = s->list[ZP_FWD].nodes, *end = list + s->list[ZP_FWD].n, *round[2] = {0}, *slots[2] = {0},
         *other = NULL;
  for (ZpNode *n = list; n < end; n++) {
    if (n->call.op == ZG_OP_ROUND) round[round[0] != NULL] = n;
    if (n->call.op == ZG_OP_SLOTS) slots[slots[0] != NULL] = n;
  }
  accepts(q.p);
  for (ZpNode *n = round[1] + 1; n < end && n->rounds == round[1]->rounds; n++) {
    bool travels = n->call.op == ZG_OP_DISPATCH || n->call.op == ZG_OP_COMBINE;
    other = slots[n->in[1] == slots[0]->out[0] ? 1 : 0];
    if (travels) WITH(n->in[1], other->out[0], "has rows at other places than its round counts");
    if (travels || n->call.op == ZG_OP_GROUPED_DOT)
      WITH(n->in[2], round[0]->out[0], "has the rows of another round");
  }
  WITH(slots[0]->out[1], slots[1]->out[1], "counts rows that have no places");
  plan_close(&q);
  model_close(&m);
}

/* Predicted times are those of all rounds: as if a round had room for all rows, as often. */
Test(rounds, take_their_time) {
  Model m = model_open(NULL, moe, NULL);
  ZlLevel node = {.name = {.s = "node"}, .size = 4, .bandwidth = 1e9, .latency = 1e-6, .start = 1e-5};
  ZlCluster c = {
      .flops_f32 = 1e30, .products = 1, .stream = 1e9, .launch = 1e-6, .levels = &node, .nlevels = 1};
  static const char *const recipe[] = {
      "mesh t = 2 split d over t bind batch = 4, seq = 6, slot = 0.33 micro 2",
      "mesh ep = 2 split batch, expert over ep bind batch = 8, seq = 6, slot = 0.33 micro 4"};
  for (int i = 0; i < 2; i++) {
    Plan q = plan_of(m.g, recipe[i]);
    ZpSegment *s = &q.p->programs.segments[1];
    const ZpList *l = &s->list[ZP_FWD];
    ZpNode *round = node_of(s, ZP_FWD, ZG_OP_ROUND);
    uint32_t first = (uint32_t)(round - l->nodes), regions = 0;
    double *all = ZB_NEWN(q.a, double, l->n), *one = ZB_NEWN(q.a, double, l->n);
    ZpRounds n = zp_rounds(q.p, s, l, first);
    cr_assert(n.even == 3 && n.most == (i ? 6 : 3), "%d, %d", (int)n.even, (int)n.most);
    zp_list_seconds(q.p, &c, 0, 1, ZP_FWD, all);
    round->call.opt[1] *= 3;
    zp_list_seconds(q.p, &c, 0, 1, ZP_FWD, one);
    for (uint32_t k = 0; k < l->n; k++) {
      const ZpNode *x = &l->nodes[k];
      bool travels = x->dims && (x->call.op == ZG_OP_DISPATCH || x->call.op == ZG_OP_COMBINE);
      ZpPlace at = zp_place_of_dim(&c, 2, 1);
      double start = 2 * zp_collective_seconds(&c, ZG_OP_ALL_TO_ALL, 1e3, &at) -
                     zp_collective_seconds(&c, ZG_OP_ALL_TO_ALL, 2e3, &at); /* bytes are as many in all */
      double times = x->rounds && !(x->dims && x == round) ? 3 : 1;
      double want = travels ? one[k] + 2 * start : times * one[k];
      cr_expect_float_eq(all[k], want, 1e-9 * want, "%s: %g, not %g", zg_op_info[x->call.op].text, all[k],
                         want);
      regions += x->rounds > 0;
    }
    cr_expect_gt(regions, 4);
    plan_close(&q);
  }
  model_close(&m);
}

/* On a device the host's tables go up to where there is room for them. */
Test(rounds, on_a_device) {
  static const char recipe[] =
      "mesh ep = 2 split batch, expert over ep bind batch = 4, seq = 6, slot = 0.5 micro 2";
  Model m = model_open(NULL, moe, NULL);
  Plan q = plan_pinned(m.g, recipe), host = plan_of(m.g, recipe);
  ZpSegment *s = &q.p->programs.segments[1];
  ZpNode *round = node_of(s, ZP_FWD, ZG_OP_ROUND), *dispatch = node_of(s, ZP_FWD, ZG_OP_DISPATCH);
  const ZpNode *there = node_of(&host.p->programs.segments[1], ZP_FWD, ZG_OP_DISPATCH);
  accepts(q.p);
  cr_expect_eq(round->scratch_bytes, 64);                           /* 4 experts of 2 ranks */
  cr_expect_eq(dispatch->scratch_bytes - there->scratch_bytes, 64); /* 12 slots, and how many rows travel */
  WITH(round->scratch_bytes, 0, "has not the scratch for what ranks have of each expert");
  WITH(dispatch->scratch_bytes, there->scratch_bytes, "has not the scratch for rows that travel");
  plan_close(&q);
  plan_close(&host);
  model_close(&m);
}

/* What every round reads outlives the first, and what is added up over rounds lies where nothing of a round
 * does: of every place for them that the block has, those that a node of the region writes to are refused. */
static uint32_t refused_places(const Plan *q, ZpPhase phase, ZpValue *v, const char *text) {
  const ZpSegment *s = &q->p->programs.segments[1];
  uint64_t was = v->at.offset;
  uint32_t found = 0;
  for (uint32_t i = 0; i < s->list[phase].n && v->at.space == ZP_AT_TEMP; i++) {
    const ZpNode *n = &s->list[phase].nodes[i];
    const ZpValue *made = n->rounds && n->call.nout ? &s->values[n->out[0]] : NULL;
    if (!made || made == v || made->at.offset + v->bytes > s->list[phase].temp) continue;
    ZbErr err = {0};
    v->at.offset = made->at.offset;
    cr_expect(!zp_check_segments(q->p, &err), "place of node %u", i);
    found += strstr(err.text, text) != NULL;
    v->at.offset = was;
  }
  return found;
}

Test(rounds, what_outlives_them) {
  Model m = model_open(NULL, moe, NULL);
  Plan q = plan_of(m.g, "bind batch = 4, seq = 6, slot = 0.5 micro 2");
  ZpSegment *s = &q.p->programs.segments[1];
  uint32_t sums = 0; /* backward: forward has no temporary that is one */
  for (ZpPhase k = ZP_FWD; k <= ZP_BWD; k++) {
    ZpValue *read = &s->values[node_of(s, k, ZG_OP_DISPATCH)->in[1]];
    ZpValue *sum = &s->values[node_of(s, k, ZG_OP_COMBINE)->out[0]];
    cr_expect_gt(refused_places(&q, k, read, "reads operand 1"), 0);
    sums += refused_places(&q, k, sum, "adds result 0 to what is not there any more");
  }
  cr_expect_gt(sums, 0);
  accepts(q.p);
  plan_close(&q);
  model_close(&m);
}

/* One region forward, one backward: rows are made again there, and a layer's dots are eight, of which two are
 * again. */
Test(rounds, one_region) {
  Model m = model_open(NULL, moe, NULL);
  Plan q = plan_of(m.g, "bind batch = 4, seq = 6 micro 2");
  ZpSegment *s = &q.p->programs.segments[1];
  cr_expect_eq(count_of(s, ZP_FWD, ZG_OP_ROUND), 1);
  cr_expect_eq(count_of(s, ZP_FWD, ZG_OP_GROUPED_DOT), 2);
  cr_expect_eq(count_of(s, ZP_BWD, ZG_OP_ROUND), 1);
  cr_expect_eq(count_of(s, ZP_BWD, ZG_OP_GROUPED_DOT), 4);
  cr_expect_eq(count_of(s, ZP_BWD, ZG_OP_GROUPED_OUTER), 2);
  plan_close(&q);
  model_close(&m);
}

/* Rows are the first operand of a product of experts, whichever they are in the model. */
Test(rounds, rows_come_first) {
  static const char *const part = "rows = dot[f](tanh(dot[d](rows, up)), down)";
  const char *at = strstr(moe, part);
  cr_assert(at);
  Model m = {0};
  ZbText t = {0};
  zb_text_add(&t, "%.*srows = dot[f](down, tanh(dot[d](up, rows)))%s", (int)(at - moe), moe,
              at + strlen(part));
  m = model_open(NULL, t.s, NULL);
  zb_text_free(&t);
  Plan q = plan_of(m.g, "bind batch = 4, seq = 6 micro 2");
  const ZpSegment *s = &q.p->programs.segments[1];
  for (ZpPhase k = ZP_FWD; k <= ZP_BWD; k++)
    for (uint32_t i = 0; i < s->list[k].n; i++) {
      const ZpNode *n = &s->list[k].nodes[i];
      if (n->call.op != ZG_OP_GROUPED_DOT) continue;
      cr_expect_neq(zg_slot_axis(q.p->layout.experts, &s->values[n->in[0]].type), ZG_NO_AXIS);
      cr_expect_eq(zg_slot_axis(q.p->layout.experts, &s->values[n->in[1]].type), ZG_NO_AXIS);
    }
  cr_expect_eq(count_of(s, ZP_FWD, ZG_OP_GROUPED_DOT), 2);
  plan_close(&q);
  model_close(&m);
}

/* Where backward needs what combine gave, it is made again in a region of its own, and rows again in the
 * next. */
Test(rounds, two_regions) {
  Model m = model_open(NULL, moe, NULL);
  Plan q = plan_of(m.g, "bind batch = 4, seq = 6 micro 2 recompute layer");
  ZpSegment *s = &q.p->programs.segments[1];
  cr_expect_eq(count_of(s, ZP_BWD, ZG_OP_ROUND), 2);
  cr_expect_eq(count_of(s, ZP_BWD, ZG_OP_GROUPED_DOT), 6);
  accepts(q.p);
  plan_close(&q);
  model_close(&m);
}

/* A dim of one rank gives no rows away, whatever is split over it. */
Test(rounds, one_owner) {
  Model m = model_open(NULL, moe, NULL);
  static const char *const recipes[] = {
      "mesh e = 1 split batch, expert over e bind batch = 4, seq = 6 micro 2",
      "mesh e = 1, d = 2 split batch, expert over e split batch over d bind batch = 4, seq = 6 micro 2"};
  for (size_t i = 0; i < sizeof recipes / sizeof *recipes; i++) {
    Plan q = plan_of(m.g, recipes[i]);
    accepts(q.p);
    cr_expect_eq(node_of(&q.p->programs.segments[1], ZP_FWD, ZG_OP_ROUND)->dims, 0);
    plan_close(&q);
  }
  model_close(&m);
}

static void refused(const ZgGraph *g, const char *recipe, const char *text) {
  Plan q = plan_try(g, recipe);
  cr_expect(!q.p && strstr(plan_messages(&q), text), "%s: %s\nnot: %s", recipe, plan_messages(&q), text);
  plan_close(&q);
}

/* Whom dispatch cannot serve is told when a plan is made. */
Test(rounds, refusals) {
  Model m = model_open(NULL, moe, NULL);
  refused(m.g, "mesh tensor = 2 split expert over tensor bind batch = 4, seq = 6",
          "have the same tokens to dispatch");
  refused(m.g, "mesh d = 2 split slot over d bind batch = 4, seq = 6",
          "`slot` cannot be split over `d`: it counts rows of experts");
  refused(m.g, "mesh e = 2 split batch, f, expert over e bind batch = 4, seq = 6",
          "over `e` weights of experts would be split by `f`, not by `expert`");
  refused(m.g, "bind batch = 4, seq = 1.5", "the size of `seq` must be a whole number");
  refused(m.g, "bind batch = 4, seq = 6, slot = 1e12", "rows of each expert");
  model_close(&m);
}

/* Experts of which nothing comes are not in the graph: nobody has to say how large their rows are, and who
 * does, as a factor, is not told that it must be whole. */
Test(rounds, nobody_reads) {
  Model m = model_open(NULL,
                       "model M {\n  axis batch, d = 8, expert = 4, choice = 2, slot, other\n"
                       "  input x: real[batch, d]\n"
                       "  param router[d, expert] ~ normal(1)\n  param g[d] ~ normal(1)\n"
                       "  w, e = topk[expert, choice](softmax[expert](dot[d](x, router)))\n"
                       "  y = combine[expert, slot, choice](tanh(dispatch[expert, slot](x, e)), e, w)\n"
                       "  loss x * g per samples() }",
                       NULL);
  static const char *const bound[] = {"", ", slot = 0.5", ", slot = 3", ", other = 5"};
  for (int i = 0; i < 4; i++) {
    Plan q = plan_of(m.g, zb_printf(m.c.a, "bind batch = 4%s", bound[i]));
    cr_expect_str_eq(plan_wrong(q.p, q.a), "");
    plan_close(&q);
  }
  Plan q = plan_try(m.g, "");
  cr_expect(!q.p && strstr(plan_messages(&q), "does not give the size of the data axis `batch`"));
  plan_close(&q);
  model_close(&m);
}
