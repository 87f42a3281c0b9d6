/* Plans that only go forward: what they hold, what dropout becomes, and that those in the arena of another
 * plan keep off what is not theirs. */
#include "tests/unit/plan/models/plan.h"

#include <criterion/criterion.h>
#include <string.h>

static const char options[] = "-D layers=4 -D heads=4 -D width=32 -D context=16 -D words=128";
static const char recipe[] =
    "mesh pipe = 2, data = 2, tensor = 2\n split batch over data\n split head, ffn, vocab over tensor\n"
    "stages over pipe by cost\n shard params, grads, states over data unit layer\n"
    "precision compute bf16\n bind batch = 8, seq = 16\n micro 2";

/* ---- alone --------------------------------------------------------------------------------------------- */
Test(forward, holds_no_more_than_it_reads) {
  Model m = model_open("gpt2", NULL, options);
  Plan train = plan_of(m.g, recipe), q = plan_forward(m.g, recipe, NULL);
  for (uint32_t s = 0; s < 2; s++) {
    const ZpLedger *l = &q.p->programs.stages[s].ledger, *t = &train.p->programs.stages[s].ledger;
    cr_expect_eq(l->bytes[ZP_L_PARAMS], t->bytes[ZP_L_PARAMS]);
    cr_expect_eq(l->bytes[ZP_L_GATHERED], t->bytes[ZP_L_GATHERED]);
    cr_expect_eq(l->bytes[ZP_L_OTHER], 128);
    cr_expect_eq(l->bytes[ZP_L_ACTIVATIONS], q.p->programs.vstages[s].input_bytes);
    uint64_t none = l->bytes[ZP_L_MASTER] + l->bytes[ZP_L_GRADS] + l->bytes[ZP_L_STATES];
    cr_expect_eq(none + l->bytes[ZP_L_STAGING] + l->bytes[ZP_L_TRAINING], 0);
    cr_expect_lt(l->total[ZP_DEVICE], t->total[ZP_DEVICE]);
  }
  for (uint32_t i = 0; i < m.g->nsegments; i++) {
    const ZpSegment *x = &q.p->programs.segments[i];
    cr_expect_eq(x->list[ZP_BWD].n, 0);
    cr_expect_eq(x->saved_bytes, 0);
    cr_expect(!x->saves_carry);
  }
  plan_close(&q);
  plan_close(&train);
  model_close(&m);
}

/* Who evaluates need not say how to train. */
Test(forward, wants_no_optimizer) {
  Model m = model_open("mlp", NULL, "-D inputs=12 -D hidden=8 -D classes=6");
  Plan q = plan_forward(m.g, "bind batch = 16 micro 4", NULL); /* adds one */
  ZlRecipe r = *q.r;
  r.optimizer = (__typeof__(r.optimizer)){0};
  ZpOptions o = {.threads = 1, .forward_only = true};
  cr_expect(zp_plan(q.a, m.g, &r, q.d, &o));
  o.forward_only = false;
  cr_expect(!zp_plan(q.a, m.g, &r, q.d, &o));
  plan_close(&q);
  model_close(&m);
}

/* ---- dropout ------------------------------------------------------------------------------------------- */
static const char dropping[] = "use std.nn as nn\n"
                               "model Drop() {\n"
                               "  axis batch, pixel = 12, hidden = 8, class = 6\n"
                               "  input image: real[batch, pixel]\n"
                               "  input label: index(class)[batch]\n"
                               "  x = nn.dropout(nn.relu(nn.Linear[pixel, hidden](image) as one), p = 0.25)\n"
                               "  mask = random[batch, hidden](0.5)\n"
                               "  y = dot[hidden](mask, x)\n"
                               "  z = nn.Linear[hidden, class](x + y * mask) as two\n"
                               "  loss xent[class](z, label) per known(label)\n"
                               "}\n";

static uint32_t nodes_of(const ZpPlan *p, uint16_t op) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < p->graph->nsegments; i++)
    for (int k = 0; k < ZP_PHASES; k++)
      for (uint32_t j = 0; j < p->programs.segments[i].list[k].n; j++)
        n += p->programs.segments[i].list[k].nodes[j].call.op == op;
  return n;
}

Test(forward, nothing_is_random) {
  Model m = model_open("drop", dropping, NULL);
  const char *sizes = "mesh d = 2 split batch over d bind batch = 8 micro 2";
  Plan train = plan_of(m.g, sizes), q = plan_forward(m.g, sizes, train.p);
  cr_expect_gt(nodes_of(train.p, ZG_OP_RANDOM), 1);
  cr_expect_eq(nodes_of(q.p, ZG_OP_RANDOM), 0);
  ZpPlan as_if = *train.p; /* the proof sees one that is left */
  ZbErr err = {0};
  as_if.asked.forward_only = true;
  as_if.asked.noptimizers = 0;
  cr_expect(!zp_check_segments(&as_if, &err));
  cr_expect(strstr(err.text, "is nothing that a plan which only goes forward does"), "%s", err.text);
  plan_close(&q);
  plan_close(&train);
  model_close(&m);
}

/* ---- outputs ------------------------------------------------------------------------------------------- */
Test(forward, outputs_are_taken_out) {
  Model m = model_open("gpt2", NULL, options);
  Plan train = plan_of(m.g, recipe), q = plan_forward(m.g, recipe, NULL),
       b = plan_forward(m.g, recipe, train.p);
  cr_expect_eq(nodes_of(train.p, ZG_OP_OUTPUT) + nodes_of(b.p, ZG_OP_OUTPUT), 0);
  cr_expect_eq(nodes_of(q.p, ZG_OP_OUTPUT), 1);
  ZpSegment *s = &q.p->programs.segments[q.p->graph->nsegments - 1];
  ZpList *l = &s->list[ZP_FWD], was = *l;
  ZpNode *n = l->nodes;
  while (n->call.op != ZG_OP_OUTPUT) n++;
  ZbErr err = {0};
  ZpState *state = &s->values[n->in[0]].state[2];
  cr_expect_eq(state->kind, 'S'); /* over vocab: not gathered to be written */
  uint32_t sink = n->sink;
  n->sink = 1;
  cr_expect(!zp_check_segments(q.p, &err) && strstr(err.text, "is nothing that is taken out"), "%s",
            err.text);
  n->sink = sink;
  q.p->asked.outputs = false;
  cr_expect(!zp_check_segments(q.p, &err) && strstr(err.text, "is nothing that is taken out"), "%s",
            err.text);
  q.p->asked.outputs = true;
  memmove(n, n + 1, (size_t)(l->nodes + l->n - n - 1) * sizeof *n);
  l->n--;
  for (; n < l->nodes + l->n; n++) n->until -= n->until > 0;
  cr_expect(!zp_check_segments(q.p, &err) && strstr(err.text, "takes out 0 of 1 `output 0`"), "%s", err.text);
  *l = was;
  plan_close(&b);
  plan_close(&q);
  plan_close(&train);
  model_close(&m);
}

/* ---- beside ---------------------------------------------------------------------------------------------- */
typedef void Break(ZpPlan *p);

static ZpBuf *buffer(ZpPlan *p, ZpBufKind kind) {
  ZpProgram *g = &p->programs.stages[1].prog;
  for (uint32_t i = 0; i < g->nbufs; i++)
    if (g->bufs[i].kind == kind && g->bufs[i].bytes) return &g->bufs[i];
  cr_assert_fail("no buffer of kind %d", kind);
  return NULL;
}
static const ZpBuf *theirs(const ZpPlan *p, ZpBufKind kind) {
  return buffer((ZpPlan *)(uintptr_t)p->asked.eval_of, kind);
}

static void over_states(ZpPlan *p) { buffer(p, ZP_B_SLOT)->offset = theirs(p, ZP_B_STATE)->offset; }
static void with_states(ZpPlan *p) {
  ZpProgram *g = &p->programs.stages[1].prog;
  ZpBuf *bufs = ZB_NEWN(p->arena, ZpBuf, g->nbufs + 1);
  memcpy(bufs, g->bufs, g->nbufs * sizeof *bufs);
  bufs[g->nbufs++] = *theirs(p, ZP_B_STATE);
  g->bufs = bufs;
}
static void over_master(ZpPlan *p) {
  const ZpBuf *x = theirs(p, ZP_B_PARAM);
  buffer(p, ZP_B_SLOT)->offset = x->offset + x->bytes - 64;
}
static void other_params(ZpPlan *p) { buffer(p, ZP_B_PARAM)->offset = theirs(p, ZP_B_GRAD)->offset; }
static void other_scalars(ZpPlan *p) { buffer(p, ZP_B_SCALARS)->offset = theirs(p, ZP_B_GRAD)->offset; }
static void other_bucket(ZpPlan *p) {
  ZpPlan *q = ZB_NEW(p->arena, ZpPlan);
  *q = *p->asked.eval_of;
  q->programs.buckets = ZB_NEWN(p->arena, ZpBucket, q->programs.nbuckets);
  memcpy(q->programs.buckets, p->asked.eval_of->programs.buckets,
         q->programs.nbuckets * sizeof *q->programs.buckets);
  q->programs.buckets[0].elems += 1024;
  p->asked.eval_of = q;
}
static void other_precision(ZpPlan *p) {
  ZpPlan *q = ZB_NEW(p->arena, ZpPlan);
  *q = *p->asked.eval_of;
  q->programs.buckets = ZB_NEWN(p->arena, ZpBucket, q->programs.nbuckets);
  memcpy(q->programs.buckets, p->asked.eval_of->programs.buckets,
         q->programs.nbuckets * sizeof *q->programs.buckets);
  for (uint32_t i = 0; i < q->programs.nbuckets; i++) q->programs.buckets[i].elem = ZK_F32;
  p->asked.eval_of = q;
}

static void caught_in(bool steps, Break *b, const char *text) {
  Model m = model_open("gpt2", NULL, options);
  Plan train = plan_of(m.g, recipe),
       q = steps ? plan_try_steps(m.g, recipe, train.p) : plan_forward(m.g, recipe, train.p);
  ZbErr err = {0};
  cr_assert(q.p, "%s", plan_messages(&q));
  b(q.p);
  cr_expect(!zp_check(q.p, &err), "accepted, but: %s", text);
  cr_expect(strstr(err.text, text), "says: %s\nnot: %s", err.text, text);
  plan_close(&q);
  plan_close(&train);
  model_close(&m);
}

static void caught(Break *b, const char *text) { caught_in(false, b, text); }

static void over_scalars(ZpPlan *p) {
  buffer(p, ZP_B_SCALARS)->offset = theirs(p, ZP_B_SCALARS)->offset + 64;
}

/* Steps of generation, whose caches and scalars are their own. */
Test(forward, steps_beside_keep_off) {
  caught_in(true, over_states, "lies over what the other plan of the arena keeps");
  caught_in(true, over_scalars, "lies over what the other plan of the arena keeps");
  caught_in(true, other_params, "is not where the other plan of the arena has it");
  caught_in(true, other_bucket, "do not hold the same parameters");
}

Test(forward, beside_keeps_off) {
  caught(over_states, "lies over what the other plan of the arena keeps");
  caught(with_states, "lies over what the other plan of the arena keeps");
  caught(over_master, "lies over what the other plan of the arena keeps");
  caught(other_params, "is not where the other plan of the arena has it");
  caught(other_scalars, "is not where the other plan of the arena has it");
  caught(other_bucket, "do not hold the same parameters");
  caught(other_precision, "do not hold the same parameters");
}

/* Every byte is on a line, what training keeps too; and it wants no more than training does. */
Test(forward, beside_ledger) {
  Model m = model_open("gpt2", NULL, options);
  Plan train = plan_of(m.g, recipe), alone = plan_forward(m.g, recipe, NULL),
       q = plan_forward(m.g, recipe, train.p);
  for (uint32_t s = 0; s < 2; s++) {
    const ZpLedger *l = &q.p->programs.stages[s].ledger, *t = &train.p->programs.stages[s].ledger,
                   *a = &alone.p->programs.stages[s].ledger;
    cr_expect_eq(l->bytes[ZP_L_TRAINING],
                 t->bytes[ZP_L_MASTER] + t->bytes[ZP_L_GRADS] + t->bytes[ZP_L_STATES]);
    cr_expect_eq(l->total[ZP_DEVICE], a->total[ZP_DEVICE] + l->bytes[ZP_L_TRAINING]);
    cr_expect_leq(l->total[ZP_DEVICE], t->total[ZP_DEVICE]);
    for (int i = 0; i < ZP_L_TRAINING; i++) cr_expect_eq(l->bytes[i], a->bytes[i]);
  }
  plan_close(&q);
  plan_close(&alone);
  plan_close(&train);
  model_close(&m);
}
