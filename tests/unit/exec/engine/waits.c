/* Where a rank is while it waits for others, as its communicator sees it: that of the tests, but for what
 * tests requests. */
#include "tests/unit/exec/engine/job.h"
#include "tests/unit/exec/engine/queued.h"

#include <criterion/criterion.h>

TestSuite(waits, .init = scratch_make, .fini = scratch_remove);

/* ---- looking on ---- */
static ZxCommTable table;
static bool (*test_of)(ZxComm *c, ZxRequest r);
static _Thread_local const ZxEngine *engine; /* of this rank */

/* From now on requests of this rank are tested by `test`. */
static void look_on(Player *p, bool (*test)(ZxComm *c, ZxRequest r)) {
  ZxComm *c = p->e->c;
  if (!p->rank) table = *c->t, test_of = c->t->test, table.test = test;
  p->c->t->barrier(p->c);
  engine = p->e;
  c->t = &table;
}

/* ---- instructions ---- */
/* A SEND_GRAD lasts until nothing is computed any more, but 10 s at most. */
static double until;
static _Atomic int left_over;
static bool sends_late(ZxComm *c, ZxRequest r) {
  const ZxEngine *e = engine;
  for (uint32_t k = 0; k < e->nflight; k++)
    if (e->request[e->flight[k]] == r && e->st->prog.instrs[e->flight[k]].op == ZP_I_SEND_GRAD) {
      if (e->at != ZP_NONE && zb_now() < until) return false;
      left_over += e->at == ZP_NONE;
    }
  return test_of(c, r);
}
static void step_with_a_late_send(Player *p) {
  p->ok = zx_engine_init(p->e, &p->err);
  look_on(p, sends_late);
  job_steps(p, 1, 1);
}

/* What is waited for at the end of a step is not said to be some instruction's that was computed before. */
Test(waits, behind_all_that_is_computed) {
  Model m =
      job_model("examples/gpt2.zug", NULL, "-D layers=2 -D heads=2 -D width=8 -D context=8 -D words=11");
  Job j = job_of(&m,
                 "bind batch = 4, seq = 8 micro 4 optimizer sgd(lr = 0.1) mesh pipe = 2 stages over pipe = "
                 "[1, 1]",
                 "", &zx_device_cpu, (ZpOptions){0});
  until = zb_now() + 10;
  job_play(&j, step_with_a_late_send);
  cr_expect_gt(left_over, 0);
  job_close(&j);
  model_close(&m);
}

/* ---- nodes ---- */
static _Atomic int most, shared_slots, others;
static bool look_at_nodes(ZxComm *c, ZxRequest r) {
  const ZxEngine *e = engine;
  others += !e->node || !e->node->dims;
  if ((int)e->nbeside > most) most = (int)e->nbeside;
  for (uint32_t i = 0; i < e->nbeside; i++)
    for (uint32_t k = 0; k < i; k++) shared_slots += e->beside_calls[i].slot == e->beside_calls[k].slot;
  return test_of(c, r);
}
static void step_beside(Player *p) {
  p->ok = zx_engine_init(p->e, &p->err);
  look_on(p, look_at_nodes);
  job_steps(p, 1, 1);
}

/* Who is waited for is those of a collective; those that are under way at the same time have marks of their
 * own. */
Test(waits, in_nodes) {
  Model m =
      job_model("examples/gpt2.zug", NULL, "-D layers=2 -D heads=2 -D width=8 -D context=8 -D words=11");
  Job j =
      job_of(&m, "bind batch = 4, seq = 8 micro 4 optimizer sgd(lr = 0.1) pad vocab to 4",
             "mesh tensor = 2 split head, ffn, vocab over tensor else seq", queued_device(), (ZpOptions){0});
  job_play(&j, step_beside);
  cr_expect_gt(most, 1);
  cr_expect(shared_slots == 0 && others == 0, "%d, %d", shared_slots, others);
  most = 0;
  j.o.times = true; /* each call by itself */
  job_play(&j, step_beside);
  cr_expect_eq(most, 0);
  job_close(&j);
  model_close(&m);
}
