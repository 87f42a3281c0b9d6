/* The axes that a call names, and the places of inputs: no plan in which either is changed is taken, and none
 * ends the program that looks at it. */
#include "runtime/plan/text.h"
#include "tests/unit/breadth.h"
#include "tests/unit/plan/models/faults.h"

static const char moe[] =
    "use std.nn as nn\nmodel M {\n  axis batch, seq, d = 8, f = 6, expert = 4, choice = 2, slot, v = 12, v2 "
    "= 12\n"
    "  input tokens: index(v)[batch, seq]\n  input targets: index(v)[batch, seq]\n"
    "  param table[v, d], router[d, expert], up[expert, d, f], down[expert, f, d], out[d, v] ~ normal(1)\n"
    "  param bias[expert, f] ~ normal(1)\n"
    "  y = lookup(table, tokens)\n"
    "  w, e = topk[expert, choice](softmax[expert](dot[d](y, router)))\n"
    "  rows = tanh(dot[d](dispatch[expert, slot](y, e), up) + bias)\n"
    "  y = y + combine[expert, slot, choice](dot[f](rows, down), e, w)\n"
    "  loss xent[v](dot[d](y, out), targets) per known(targets)\n}\n";

static bool is_refused(const Plan *q) {
  ZbErr err = {0};
  return !zp_check_segments(q->p, &err);
}

/* Each axis of each call as every other one. */
static uint32_t change_axes(Plan *q) {
  uint32_t tried = 0, naxes = q->p->graph->naxes;
  accepts(q->p);
  for (uint32_t s = 0; s < q->p->graph->nsegments; s++)
    for (ZpPhase phase = 0; phase < ZP_PHASES; phase++)
      for (uint32_t i = 0; i < q->p->programs.segments[s].list[phase].n; i++) {
        ZpNode *n = &q->p->programs.segments[s].list[phase].nodes[i];
        if (!breadth_tries(i, 2)) continue;
        for (int k = 0; k < n->call.nax; k++) {
          uint16_t was = n->call.ax[k];
          for (uint32_t a = 0; a <= naxes; a++) {
            n->call.ax[k] = (uint16_t)a;
            if (a == was) continue;
            cr_expect(is_refused(q), "%s at %s, axis %d: %s for %s", zg_op_info[n->call.op].text,
                      zp_loc_text(q->p, n->loc), k, a < naxes ? q->p->graph->axes[a].name : "none",
                      q->p->graph->axes[was].name);
            tried++;
          }
          n->call.ax[k] = was;
        }
      }
  return tried;
}

Test(axes, of_calls) {
  static const struct {
    const char *name, *text, *options, *recipe;
  } models[] = {
      {"gpt2", NULL, "-D layers=1 -D heads=2 -D width=8 -D context=8 -D words=12", "bind batch = 4, seq = 8"},
      {"gpt2", NULL, "-D layers=1 -D heads=2 -D width=8 -D context=8 -D words=12",
       "mesh t = 2, c = 2 split head, ffn, vocab over t split seq over c attention ring bind batch = 4, seq "
       "= 8"},
      {"llama3", NULL, "-D layers=1 -D heads=4 -D kv_heads=2 -D width=16 -D inner=12 -D words=12",
       "mesh t = 2 split kv, ffn, vocab over t else seq bind batch = 4, seq = 8 recompute Layer chunk vocab "
       "= 2"},
      {NULL, moe, NULL, "mesh ep = 2 split batch, expert over ep bind batch = 4, seq = 6"},
      {"mamba2", NULL, "-D layers=1 -D width=8 -D heads=2 -D words=12", "bind batch = 2, seq = 8"}};
  for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
    Model m = model_open(models[i].name, models[i].text, models[i].options);
    Plan q = plan_of(m.g, models[i].recipe);
    cr_expect(change_axes(&q) > 50);
    plan_close(&q);
    q = plan_fused(m.g, models[i].recipe, supports_all);
    cr_expect(change_axes(&q) > 50);
    plan_close(&q);
    model_close(&m);
  }
}

/* Tokens and targets have one type, so their places can be mistaken for each other. */
Test(axes, inputs_are_not_confused) {
  Model m = model_open(NULL, moe, NULL);
  Plan q = plan_of(m.g, "bind batch = 4, seq = 6");
  cr_assert_eq(q.p->programs.ninputs, 2);
  ZpSegment *s = &q.p->programs.segments[0];
  ZpValue *v[2] = {0};
  for (uint32_t i = 0; i < s->nvalues; i++)
    if (s->values[i].at.space == ZP_AT_INPUT) v[s->values[i].at.index] = &s->values[i];
  cr_assert(v[0] && v[1] && zg_type_eq(&v[0]->type, &v[1]->type));
  accepts(q.p);
  WITH(v[0]->at.offset, v[1]->at.offset, "");
  WITH(v[1]->at.offset, v[0]->at.offset, "");
  WITH(v[1]->at.index, 0, "");
  WITH(v[1]->at, v[0]->at, "");
  WITH(v[1]->at.index, 2, "");
  /* Both, and what the loader does: then each reads the other. */
  ZpLoc tokens = v[0]->at, targets = v[1]->at;
  v[0]->at = targets, v[1]->at = tokens;
  rejects(q.p, "");
  for (uint32_t i = 0; i < 2; i++)
    q.p->programs.inputs[i].value = (uint32_t)(v[!q.p->programs.inputs[i].input] - s->values);
  rejects(q.p, "selects by operand");
  plan_close(&q);
  model_close(&m);
}

/* ... also not by the head, which has another segment than the embedding. */
Test(axes, head_reads_targets) {
  Model m = model_open("gpt2", NULL, "-D layers=2 -D heads=2 -D width=8 -D context=8 -D words=12");
  Plan q = plan_of(m.g, "mesh p = 2 stages over p by cost bind batch = 4, seq = 8");
  ZpSegment *head = &q.p->programs.segments[q.p->graph->nsegments - 1];
  uint32_t found = 0;
  for (uint32_t i = 0; i < head->nvalues; i++) {
    ZpValue *v = &head->values[i];
    if (v->at.space != ZP_AT_INPUT) continue;
    const ZpInputUse *tokens = &q.p->programs.inputs[0];
    cr_assert_str_eq(q.p->graph->inputs[tokens->input].name, "tokens");
    cr_assert(v->at.offset != tokens->at);
    WITH(v->at.offset, tokens->at, "");
    WITH(v->at, ((ZpLoc){ZP_AT_INPUT, tokens->input, tokens->at}), "");
    found++;
  }
  cr_expect(found);
  plan_close(&q);
  model_close(&m);
}

static ZpNode *node_with(Plan *q, ZpSegment *s, bool (*is)(const ZpSegment *s, const ZpNode *n)) {
  for (int k = 0; k < ZP_PHASES; k++)
    for (uint32_t i = 0; i < s->list[k].n; i++)
      if (is(s, &s->list[k].nodes[i])) return &s->list[k].nodes[i];
  cr_assert_fail("no such node in %u", (uint32_t)(s - q->p->programs.segments));
  return NULL;
}
static bool is_bias_grad(const ZpSegment *s, const ZpNode *n) {
  return (void)s, n->call.op == ZG_OP_DOT_BIAS_GRAD && !s->values[n->out[0]].nmembers;
}
static bool is_norm(const ZpSegment *s, const ZpNode *n) {
  return (void)s, n->call.op == ZG_OP_NORMALIZE && n->call.nout == 3;
}
static bool broadcasts(const ZpSegment *s, const ZpNode *n) {
  return n->call.op == ZG_OP_POINTWISE && n->call.nin == 2 && n->call.nout == 1 &&
         s->values[n->in[1]].type.naxes < s->values[n->out[0]].type.naxes;
}

/* What a call reads and makes has the axes, and is as many values, as its operation asks for; else nobody could
 * evaluate it. */
Test(axes, of_operands) {
  Model m = model_open("gpt2", NULL, "-D layers=1 -D heads=2 -D width=8 -D context=8 -D words=12");
  Plan q = plan_fused(m.g, "bind batch = 4, seq = 8", supports_all);
  ZpSegment *s = &q.p->programs.segments[segment_of(q.p, "layer", 0)];
  ZpNode *sums = node_with(&q, s, is_bias_grad), *norm = node_with(&q, s, is_norm);
  WITH(sums->call.nax, 0, "axes");
  WITH(sums->call.nout, 1, "has not the operands and results of its operation");
  WITH(sums->call.op, ZG_OP_DOT, "has not the operands and results of its operation");
  ZkPointwise f = *norm->call.pointwise;
  f.out[f.out[0] == 1 ? 0 : f.out[1] == 1 ? 1 : 2] = 0; /* nobody stores the deviation */
  WITH(norm->call.pointwise, &f, "has a result of other axes than its operation makes");
  plan_close(&q);
  q = plan_of(m.g, "bind batch = 4, seq = 8");
  s = &q.p->programs.segments[segment_of(q.p, "layer", 0)];
  ZpNode *wide = node_with(&q, s, broadcasts);
  ZkCall was = wide->call;
  ZpNode narrow = *wide; /* the result is as the narrow operand */
  accepts(q.p);
  wide->out[0] = wide->in[1], wide->call.out[0] = wide->call.in[1];
  ZbErr err = {0};
  cr_assert(!zp_check_segments(q.p, &err));
  cr_assert(strstr(err.text, "with axes that its results have not"), "%s", err.text);
  *wide = narrow, wide->call = was;
  accepts(q.p);
  plan_close(&q);
  model_close(&m);
}
